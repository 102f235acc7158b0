"""Fields of 1 to 16 bits into 16-bit words, lowest bit first."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def bit_packer(
    clk: Any, rst: Any, in_valid: Any, in_ready: Any, in_data: Any, in_bits: Any, in_end: Any, in_last: Any,
    m_axis: Any,
) -> Any:  # fmt: skip
    """Pack a field a clock; five clocks from a field to the word that it fills.

    in_valid, in_ready: handshake. in_data u16, in_bits u5: the low 1 to 16 bits count, the others may be
    anything. in_end: fill up with zeros to a whole word (a clock more, unless it is whole); in_last, only
    with in_end: the word is sent with tlast. m_axis: Stream u16.

    A field is turned left by the bits that wait already: what belongs to this word then stands above those,
    what belongs to the next at the bottom, where it waits in turn. Nothing needs a mask: what is above the
    waiting bits is replaced by the next field.
    """
    fill, total = word(4), word(5)  # bits that wait
    padding, padding_last = bit(), bit()
    move = bit()
    turn1, turn2, turn3, turn4 = (word(16) for _ in range(4))
    fill1, fill2, fill3 = word(4), word(4), word(4)
    emit1, emit2, emit3, emit4 = (bit() for _ in range(4))
    last1, last2, last3, last4 = (bit() for _ in range(4))
    above = word(16)  # places that are not taken by bits that wait
    waiting = word(16)
    valid = bit()

    @always_comb
    def handshake():
        move.next = m_axis.tready or not valid
        in_ready.next = (m_axis.tready or not valid) and not padding
        total.next = fill + in_bits
        m_axis.tvalid.next = valid

    @always(clk.posedge)
    def place():
        if move:
            emit1.next = False
            last1.next = False
            fill1.next = fill
            if padding:
                turn1.next = 0
                emit1.next = True
                last1.next = padding_last
                fill.next = 0
                padding.next = False
            else:
                if fill[3]:
                    turn1.next = concat(in_data[8:], in_data[16:8])
                else:
                    turn1.next = in_data
                if in_valid:
                    fill.next = total[4:]
                    emit1.next = total[4]
                    last1.next = in_last and total[4:] == 0
                    padding.next = in_end and total[4:] != 0
                    padding_last.next = in_last
        if rst:
            fill.next = 0
            emit1.next = False
            padding.next = False

    @always(clk.posedge)
    def turn():
        if move:
            turn2.next = turn1
            if fill1[2]:
                turn2.next = concat(turn1[12:], turn1[16:12])
            turn3.next = turn2
            if fill2[1]:
                turn3.next = concat(turn2[14:], turn2[16:14])
            turn4.next = turn3
            if fill3[0]:
                turn4.next = concat(turn3[15:], turn3[15])
            fill2.next = fill1
            fill3.next = fill2
            for i in range(16):
                above.next[i] = fill3 <= i
            emit2.next = emit1
            emit3.next = emit2
            emit4.next = emit3
            last2.next = last1
            last3.next = last2
            last4.next = last3
        if rst:
            emit2.next = False
            emit3.next = False
            emit4.next = False

    # A clock without a field leaves what waits as it is: its turn* stand above what waits, or it is emitted.
    @always(clk.posedge)
    def collect():
        if move:
            for i in range(16):
                if above[i]:
                    m_axis.tdata.next[i] = turn4[i]
                else:
                    m_axis.tdata.next[i] = waiting[i]
                if above[i] or emit4:
                    waiting.next[i] = turn4[i]
            m_axis.tlast.next = last4
            valid.next = emit4
        if rst:
            valid.next = False

    return handshake, place, turn, collect
