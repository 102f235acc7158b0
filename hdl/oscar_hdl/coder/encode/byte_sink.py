"""Bytes of an encoder, paired, counted and kept until they are taken."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word

ADDRESS_BITS = 10
FLUSH_PAIRS = 48  # of a block's final states


@block
def byte_sink(
    clk: Any, rst: Any, phase: Any, put: Any, put_two: Any, data: Any, final: Any, clear: Any, counting: Any,
    size: Any, room: Any, m_axis: Any,
) -> Any:  # fmt: skip
    """Keep up to 1,024 pairs, one or two bytes a clock.

    put: a byte comes, in data[8:]; put_two (only with put): two, the second in data[16:8]. final: this is a
    block's last clock with bytes, and both are there. clear: a block begins, whose bytes are counted from
    the first on; counting: these bytes are counted. size u19: 96 and the bytes counted, two clocks after
    they came. room: four slots with 32 pairs each fit. phase u5: counts. m_axis: Stream(16, keep=2).
    """
    store = [word(18) for _ in range(1 << ADDRESS_BITS)]
    write_at, read_at, used = word(ADDRESS_BITS), word(ADDRESS_BITS), word(ADDRESS_BITS)
    held, have, ending = word(8), bit(), bit()
    pair, writes, counts = word(18), bit(), bit()
    pairs, odd, recent = word(18), bit(), bit()
    some, reading, moves = bit(), bit(), bit()
    read_valid, valid = bit(), bit()
    read_data, data_out = word(18), word(18)

    @always(clk.posedge)
    def pair_up() -> None:
        ending.next = final
        writes.next = put_two or (have and (put or ending))
        counts.next = counting and (put_two or (have and put))
        pair.next[16:] = data
        if have:
            pair.next[16:8] = data[8:]
            pair.next[8:] = held
        pair.next[16] = (final and not have) or ending
        pair.next[17] = ending
        if put_two:
            held.next = data[16:8]
        elif put:
            held.next = data[8:]
        have.next = have ^ (put and not put_two)
        if rst or ending:
            have.next = False
        if rst:
            writes.next = False

    @always(clk.posedge)
    def count() -> None:
        if counts:
            pairs.next = pairs + 1
        recent.next = counting
        if recent:
            odd.next = have
        if clear:
            pairs.next = FLUSH_PAIRS

    @always(clk.posedge)
    def write() -> None:
        if writes:
            store[write_at].next = pair
            write_at.next = write_at + 1
        if rst:
            write_at.next = 0

    # The level is two clocks old where it is used, so the last three pairs are read at every eighth clock.
    @always(clk.posedge)
    def watch() -> None:
        used.next = write_at - read_at
        some.next = used[:2] != 0 or (used[2:] != 0 and phase[3:] == 0)
        room.next = used[:7] != 7
        if rst:
            used.next = 0
            some.next = False

    @always_comb
    def move() -> None:
        moves.next = m_axis.tready or not valid
        reading.next = some and (m_axis.tready or not valid)

    @always(clk.posedge)
    def read() -> None:
        if reading:
            read_at.next = read_at + 1
        if moves:
            read_data.next = store[read_at]
            data_out.next = read_data
            read_valid.next = some
            valid.next = read_valid
        if rst:
            read_at.next = 0
            read_valid.next = False
            valid.next = False

    @always_comb
    def outputs() -> None:
        size.next = concat(pairs, odd)
        m_axis.tdata.next = data_out[16:]
        m_axis.tlast.next = data_out[16]
        m_axis.tkeep.next[0] = True
        m_axis.tkeep.next[1] = not data_out[17]
        m_axis.tvalid.next = valid

    return pair_up, count, write, watch, move, read, outputs
