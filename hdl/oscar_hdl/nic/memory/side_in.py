"""Distances, means and descriptors from a stream into a NIC's banks of rows for barrel units."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.clear_walk import EIGHT, clear_walk
from oscar_hdl.nic.memory.ports import DISTANCE_BITS, HEADER_BITS, RowCommand, SideWrite
from oscar_hdl.nic.memory.row_lines import KNOWN, OPENED, ROWS_BITS, RowLines, row_walk
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word

DISTANCES_AT = 32  # in a row's word


@block
def side_in(
    clk, rst, phase, command: RowCommand, lines: RowLines, s_axis_side, row, lanes,
    writes: Sequence[SideWrite], behind, *, skip_bits: int,
):  # fmt: skip
    """Write what belongs to a packet's rows but their values, a row of each bank in four clocks.

    command: RowCommand, whose first row begins a group of 32; with `clear`, only descriptors of rows
    (class, size, top) become 0, from the first row of a block on: eight of each bank in four clocks.
    lines: its shape, there with or before the fourth clock behind its start. s_axis_side: lines.steps words,
    of 128 bits for each bank, the first bank in the lowest bits: of its row the header (class, size << 4,
    mean << 7, top << 11), and from bit 32 on the 32 distances in three bits each, the first in the lowest
    bits; tlast is not looked at. A word is taken in a clock of phase 0 modulo 4. Headers behind the last row
    become 0 to the end of its group; where no other bank has rows beside them in four clocks each, while
    `behind` (level). row, lanes: of writes, a SideWrite a bank, in clocks of phase 1 modulo 4. skip_bits:
    2^skip_bits banks.
    """
    BANKS, FILLED, LAST = len(writes), KNOWN - 1, OPENED - 1
    # What is done: a command begins (clocks since then), rows come, rows are cleared, one of these or rows
    # behind those that came are written; what is done next is the last.
    begun, reading, clearing, running, final = word(OPENED), bit(), bit(), bit(), bit()
    restart, forward, tick, go = bit(), bit(), bit(), bit()
    here, ends, over, at = word(BANKS), word(BANKS), word(BANKS), word(len(row))
    clear_bank, clear_row, clear_lanes, clear_final = word(BANKS), word(len(row)), word(EIGHT), bit()
    left, ending, at_end = word(ROWS_BITS), bit(), bit()

    walks = [
        row_walk(clk, restart, command.first, lines, forward, at, here, ends, over, skip_bits=skip_bits),
        clear_walk(
            clk, restart, command.first, lines.rows, forward, clear_bank, clear_row, clear_lanes, clear_final,
            block_bits=len(lines.end), skip_bits=skip_bits,
        ),
    ]  # fmt: skip
    parts = [
        side_group(
            clk, rst, go, reading, clearing, here, over, clear_bank, s_axis_side.tdata, write, bank=bank
        )
        for bank, write in enumerate(writes)
    ]

    @always_comb
    def show():
        behind.next = running and not reading and not clearing
        s_axis_side.tready.next = reading and tick
        go.next = tick and running and (s_axis_side.tvalid or not reading)
        restart.next = begun[1]

    @always(clk.posedge)
    def place():
        # A step takes four clocks, so what follows from `left` and `at` is there in time.
        tick.next = phase[2:] == 3
        ending.next = left <= 1
        at_end.next = at[5:] == 31
        final.next = (ending or (running and not reading)) and at_end
        row.next = at
        if clearing:
            row.next = clear_row
        lanes.next = clear_lanes
        if go and not clearing:
            left.next = left - 1
        if begun[FILLED]:
            left.next = lines.steps

    @always(clk.posedge)
    def control():
        command.done.next = False
        forward.next = go
        begun.next = concat(begun[LAST:], command.start)
        if command.start:
            command.idle.next = False
        if begun[LAST]:
            running.next = True
            reading.next = not command.clear
            clearing.next = command.clear
        if go:
            if reading:
                reading.next = not ending
            if (clearing and clear_final) or (not clearing and final):
                reading.next = False
                clearing.next = False
                running.next = False
                command.done.next = True
                command.idle.next = True
        if rst:
            begun.next = 0
            forward.next = False
            reading.next = False
            clearing.next = False
            running.next = False
            command.done.next = False
            command.idle.next = True

    return walks, parts, show, place, control


@block
def side_group(clk, rst, go, reading, clearing, here, over, clears, offered, write: SideWrite, *, bank: int):
    """Write a bank's row, a header of 0 behind the last one, or clear."""
    BANK, HEADER, HEADER_END = bank, STREAM_BITS * bank, STREAM_BITS * bank + HEADER_BITS
    LOW, HIGH = HEADER + DISTANCES_AT, HEADER + DISTANCES_AT + DISTANCE_BITS

    @always(clk.posedge)
    def put():
        write.data.next = offered[HIGH:LOW]
        write.header_data.next = offered[HEADER_END:HEADER]
        if over[BANK]:
            write.header_data.next = 0
        write.distances.next = go and reading and here[BANK] and not rst
        write.header.next = go and not clearing and (here[BANK] or over[BANK]) and not rst
        write.clear.next = go and clearing and clears[BANK] and not rst

    return put
