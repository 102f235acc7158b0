"""Values and descriptors out of a NIC's banks of rows for barrel units, into streams."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.coder.ports import LANES
from oscar_hdl.nic.memory.barrel_ports import RowAsk, RowsRead
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

ROWS_LOG2 = 3  # of rows between memory and stream
ROWS_BITS, WORDS_BITS = 15, 17


@block
def rows_out(
    clk: Any, rst: Any, command: Any, ask: RowAsk, found: RowsRead, m_axis_values: Any,
    m_axis_descriptors: Any, *, block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Read a frame's values and a descriptor a row, in four clocks a row.

    command: RowCommand of one value or more; `clear` is ignored. m_axis_values: Stream of as many bits as
    RowsRead has values, ceil(count / 8) words of eight values; m_axis_descriptors: Stream(16), a row's
    descriptor; both with tlast at the end. Up to eight rows are read ahead of what was taken of either.
    """
    opening, asking, draining, restart = bit(), bit(), bit(), bit()
    bank, row, issue = word(len(ask.bank)), word(len(ask.row)), bit()
    left, before, last = word(ROWS_BITS), word(ROWS_BITS), bit()  # rows to be asked for
    put, put_before, put_descriptor = bit(), bit(), bit()
    room, descriptor_room, over, descriptor_over = bit(), bit(), bit(), bit()
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}

    parts = [
        row_walk(clk, restart, command.first, issue, None, bank, row, **placing),
        words_out(
            clk, rst, restart, command.count, issue, put, found.data, m_axis_values, room, over, words=4
        ),
        words_out(
            clk, rst, restart, command.count, issue, put_descriptor, found.descriptor, m_axis_descriptors,
            descriptor_room, descriptor_over, words=1,
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        before.next = left - 1
        ask.want.next = asking and room and descriptor_room
        ask.row.next = row
        ask.bank.next = bank
        issue.next = ask.taken
        put.next = ask.comes
        put_descriptor.next = ask.comes and not put_before

    # Rows are asked for every fourth clock at most, so it is known in time which is the last.
    @always(clk.posedge)
    def go_on() -> None:
        last.next = left == 1
        if issue:
            left.next = before
        if command.start:
            left.next = (command.count + 31) >> 5

    @always(clk.posedge)
    def control() -> None:
        command.done.next = False
        restart.next = command.start
        opening.next = command.start or (opening and restart)
        if command.start:
            command.idle.next = False
        if opening and not restart:
            asking.next = True
        if issue and last:
            asking.next = False
            draining.next = True
        if draining and over and descriptor_over:
            draining.next = False
            command.done.next = True
            command.idle.next = True
        if rst:
            opening.next = False
            asking.next = False
            draining.next = False
            command.done.next = False
            command.idle.next = True

    beats = first_of_row(clk, put, put_before)
    return parts, beats, show, go_on, control


@block
def first_of_row(clk: Any, comes: Any, inside: Any) -> Any:
    """Say whether a word that comes is behind another one of its row, of four."""
    part = word(2)

    @always(clk.posedge)
    def count() -> None:
        part.next = 0
        if comes:
            part.next = part + 1

    @always_comb
    def see() -> None:
        inside.next = part != 0

    return count, see


@block
def words_out(
    clk: Any, rst: Any, restart: Any, count: Any, issue: Any, put: Any, given: Any, m_axis: Any, room: Any,
    over: Any, *, words: int,
) -> Any:  # fmt: skip
    """Keep words of rows, and give them; words: of a row, 1 or 4.

    restart (strobe): of `count` values, nothing is kept; issue (strobe): a row's words will be put; room: one
    more row may be asked for. over: all words were taken.
    """
    WIDTH, SLOTS_LOG2, LAST = len(given), ROWS_LOG2 + words.bit_length() - 1, words - 1
    SHIFT, VALUES = 6 - words.bit_length(), LANES // words  # of a word
    memory = [word(WIDTH) for _ in range(1 << SLOTS_LOG2)]
    write_at, read_at, stored = word(SLOTS_LOG2), word(SLOTS_LOG2), word(SLOTS_LOG2 + 1)
    rows = word(ROWS_LOG2 + 1)  # asked for and not given
    top, part, left = word(WIDTH), word(2), word(WORDS_BITS)
    some, last, few = bit(), bit(), bit()  # of left: not 0; 1; below four, a clock later
    ready, popped, row_over, row_gone = bit(), bit(), bit(), bit()  # a word is stored; it is given
    held, open_wide = bit(), bit()  # m_axis.tvalid again, for tdata: its readers shall not delay `popped`

    @always_comb
    def look() -> None:
        top.next = memory[read_at]
        popped.next = ready and some and (m_axis.tready or not m_axis.tvalid)
        open_wide.next = m_axis.tready or not held

    @always_comb
    def end() -> None:
        row_over.next = popped and (part == LAST or last)

    @always(clk.posedge)
    def keep() -> None:
        room.next = not rows[ROWS_LOG2]
        row_gone.next = row_over
        if issue and not row_gone:
            rows.next = rows + 1
        elif row_gone and not issue:
            rows.next = rows - 1
        if put and not popped:
            stored.next = stored + 1
        elif popped and not put:
            stored.next = stored - 1
        ready.next = put or (ready and not (popped and stored == 1))
        if put:
            memory[write_at].next = given
            write_at.next = write_at + 1
        if popped:
            read_at.next = read_at + 1
        if restart or rst:
            rows.next = 0
            stored.next = 0
            ready.next = False
            row_gone.next = False
            write_at.next = 0
            read_at.next = 0

    @always(clk.posedge)
    def show() -> None:
        if m_axis.tready:
            held.next = False
        if popped:
            held.next = True
        if restart or rst:
            held.next = False
        if open_wide:
            m_axis.tdata.next = top

    @always(clk.posedge)
    def give() -> None:
        over.next = not some and not m_axis.tvalid
        few.next = left[WORDS_BITS:2] == 0
        if m_axis.tready:
            m_axis.tvalid.next = False
        if popped:
            m_axis.tvalid.next = True
            m_axis.tlast.next = last
            part.next = part + 1
            if part == LAST:
                part.next = 0
            left.next = left - 1
            last.next = few and left[2:] == 2
            some.next = not last
        if restart:
            part.next = 0
            left.next = (count + (VALUES - 1)) >> SHIFT
            last.next = count <= VALUES
            some.next = True
        if rst:
            some.next = False
            m_axis.tvalid.next = False

    return look, end, keep, show, give
