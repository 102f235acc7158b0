"""The table sets of a lane's links, and the checksum of each (docs/format2.md, "State" and "Frame")."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.crc32 import ONES, crc32, unstep
from oscar_hdl.format2.params import CONTEXT_MAP, CONTEXTS, HIST_BITS, SYMBOLS
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import bit, word

ENTRIES = CONTEXTS * SYMBOLS


def fresh_checksum(params: LaneParams) -> int:
    """Return the checksum of the state that every link starts with."""
    return TableState.initial().checksum(params.asc)


@block
def state_store(
    clk: Any, rst: Any, restart: Any, dec_load: Any, dec_save: Any, enc_load: Any, enc_save: Any,
    state_client: Any, m_axis_state: Any, s_axis_state: Any, commit: Any, commit_shift: Any, busy: Any,
    q_set: Any, q_shift: Any, q_checksum: Any, *, params: LaneParams, sets: int = 16,
) -> Any:  # fmt: skip
    """Hand out and take in table sets, and work out the checksum of what was taken in.

    restart (pulse, while no set is on its way): the set numbers dec_load, dec_save, enc_load, enc_save are
    new. state_client: 0 decoder, 1 encoder. m_axis_state: Stream(10), 256 words of that client's load set;
    tvalid falls at once when the client changes. s_axis_state: Stream(10), 256 words for its save set, one a
    clock; then none until the set is committed. commit (pulse), commit_shift u4: the shift of the set just
    taken in; its checksum is stored 130 clocks after its last word or 3 after commit. busy: from a set's
    first word until its checksum is stored. q_set -> q_shift u4, q_checksum u16 one clock later, not while
    busy.

    sets: a power of two, up to 256; which set is whose, and which are valid, is the driver's to know.
    """
    set_bits = sets.bit_length() - 1
    if sets != 1 << set_bits or not 2 <= sets <= 256:
        raise ValueError(f"sets is a power of two from 2 to 256, got {sets}")
    if any(len(s) != set_bits for s in (dec_load, dec_save, enc_load, enc_save, q_set)):
        raise ValueError(f"numbers of {sets} sets have {set_bits} bits")
    if tuple(max(0, ((c >> 4) + (c & 15) - 4) >> 1) for c in range(256)) != CONTEXT_MAP:
        raise ValueError("the context map is not the one that is built in")

    # Bytes go through the CRC in pairs: one that is not there, 512 of histograms, 256 of the map, one of the
    # shift. The missing one counts as 0, and the start value undoes it.
    BEGIN = unstep(params.asc.fingerprint ^ ONES, 0, 8)

    states = enum("WORDS", "CELLS", "ENDING", "SETTLE", "KEEP")
    state = Signal(states.WORDS)
    hist = [word(HIST_BITS) for _ in range(sets * ENTRIES)]
    meta = [word(20) for _ in range(sets)]
    client, valid, rd_index, rd_addr = bit(), bit(), word(8), word(set_bits + 8)
    wr_index, wr_addr, saving = word(8), word(set_bits + 8), word(set_bits)
    high, shift, committed = word(8), word(4), bit()
    crc, pair, pair_valid, crc_next = word(32), word(16), bit(), word(32)
    folded, found = word(16), word(20)

    crc_step = crc32(crc, pair, crc_next)

    @always_comb
    def address():
        m_axis_state.tvalid.next = valid and client == state_client
        s_axis_state.tready.next = state == states.WORDS
        rd_addr.next = concat(dec_load, rd_index)
        wr_addr.next = concat(dec_save, wr_index)
        if client:
            rd_addr.next = concat(enc_load, rd_index)
        if state_client:
            wr_addr.next = concat(enc_save, wr_index)
        busy.next = state != states.WORDS or wr_index != 0
        folded.next = crc[32:16] ^ crc[16:]  # the final inversion cancels out
        q_shift.next = found[20:16]
        q_checksum.next = found[16:]

    @always(clk.posedge)
    def give():
        found.next = meta[q_set]
        if restart or client != state_client:
            client.next = state_client
            valid.next = False
            rd_index.next = 0
        elif m_axis_state.tready or not valid:
            valid.next = True
            m_axis_state.tdata.next = hist[rd_addr]
            m_axis_state.tlast.next = rd_index == ENTRIES - 1
            rd_index.next = (rd_index + 1) & 0xFF
        if rst:
            valid.next = False
            rd_index.next = 0

    @always(clk.posedge)
    def take():
        even = modbv(0)[4:]
        odd = modbv(0)[4:]
        pair_valid.next = False
        if pair_valid:
            crc.next = crc_next
        if commit:
            committed.next = True
            shift.next = commit_shift

        if state == states.WORDS:
            pair.next = concat(s_axis_state.tdata[8:], high)
            if wr_index == 0:
                high.next = 0
                crc.next = BEGIN
                pair.next[8:] = 0
                saving.next = wr_addr[set_bits + 8 : 8]
            if s_axis_state.tvalid:
                pair_valid.next = True
                high.next = s_axis_state.tdata[10:8]
                hist[wr_addr].next = s_axis_state.tdata
                wr_index.next = (wr_index + 1) & 0xFF
                if s_axis_state.tlast:
                    wr_index.next = 0
                    state.next = states.CELLS

        # Cells 2 j and 2 j + 1 of the map, j = wr_index: max(0, (v - 4) >> 1), v = (cell >> 4) + (cell & 15).
        elif state == states.CELLS:
            even[:] = wr_index[7:4] + wr_index[3:]
            odd[:] = wr_index[7:4] + wr_index[3:] + wr_index[3]
            if even >= 2:
                even[:] = even - 2
            else:
                even[:] = 0
            if odd >= 2:
                odd[:] = odd - 2
            else:
                odd[:] = 0
            pair.next = concat(even, high)
            high.next = odd
            pair_valid.next = True
            wr_index.next = wr_index + 1
            if wr_index == ENTRIES // 2 - 1:
                wr_index.next = 0
                state.next = states.ENDING

        elif state == states.ENDING:
            pair.next = concat(shift, high)
            if committed:
                pair_valid.next = True
                committed.next = False
                state.next = states.SETTLE

        elif state == states.SETTLE:
            state.next = states.KEEP

        else:
            meta[saving].next = concat(shift, folded)
            state.next = states.WORDS

        if rst:
            state.next = states.WORDS
            wr_index.next = 0
            pair_valid.next = False
            committed.next = False

    return crc_step, address, give, take
