"""Values and descriptors out of a NIC's banks of rows, into streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.bank_ports import DESCRIPTOR_BITS, STREAM_LANES
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree

ROWS_LOG2 = 3  # of rows between memory and stream
ROWS_BITS, WORDS_BITS = 15, 17


@block
def row_unloader(
    clk: Any, rst: Any, phase: Any, command: Any, row: Any, described: Any, banks: Sequence[Any],
    descriptors: Sequence[Any], m_axis_values: Any, m_axis_descriptors: Any, *, block_bits: int,
    skip_bits: int,
) -> Any:  # fmt: skip
    """Read a frame's values and a descriptor a row, in four clocks a row.

    command: RowCommand of one value or more; `clear` is ignored. row, described: of BankRead, for all banks.
    banks, descriptors: what the banks give, halves of rows and descriptors.
    m_axis_values: Stream of half as many bits as a bank gives, ceil(count / 8) words of eight values;
    m_axis_descriptors: Stream(16), a row's descriptor; both with tlast at the end. Values of rows
    of class 0 are given as 0. Up to eight rows are read ahead of what was taken of either stream.
    """
    BANKS = len(banks)
    opening, asking, draining, restart = bit(), bit(), bit(), bit()
    bank, row_now = word(BANKS), word(len(row))
    left, before, issue, last = word(ROWS_BITS), word(ROWS_BITS), bit(), bit()  # rows to be asked for
    # Every four clocks a row goes on: its descriptor is asked for, its values are, all of it comes.
    moves, asked, reading, coming = bit(), bit(), bit(), bit()
    asked_bank, reading_bank, live_bank = word(BANKS), word(BANKS), word(BANKS)
    found, half, put = word(len(banks[0])), word(len(banks[0])), bit()
    kind, descriptor, put_descriptor = word(DESCRIPTOR_BITS), word(DESCRIPTOR_BITS), bit()
    room, descriptor_room, over, descriptor_over = bit(), bit(), bit(), bit()

    parts = [
        row_walk(
            clk, restart, command.first, issue, None, bank, row_now, block_bits=block_bits,
            skip_bits=skip_bits,
        ),
        hot_tree(None, banks, live_bank, found),
        hot_tree(None, descriptors, reading_bank, kind),
        words_out(clk, rst, restart, command.count, issue, put, half, m_axis_values, room, over),
        descriptors_out(
            clk, rst, restart, command.count, issue, put_descriptor, descriptor, m_axis_descriptors,
            descriptor_room, descriptor_over,
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        before.next = left - 1
        issue.next = asking and moves and room and descriptor_room
        put.next = coming and phase[1]
        put_descriptor.next = coming and phase[2:] == 2

    @always(clk.posedge)
    def move() -> None:
        moves.next = phase[2:] == 0
        if moves:
            asked.next = issue
            asked_bank.next = bank
            described.next = row_now
            reading.next = asked
            reading_bank.next = asked_bank
            row.next = described
            coming.next = reading
            descriptor.next = kind
        if rst:
            asked.next = False
            reading.next = False
            coming.next = False

    # Rows are asked for every fourth clock at most, so it is known in time which is the last.
    @always(clk.posedge)
    def go_on() -> None:
        last.next = left == 1
        if issue:
            left.next = before
        if command.start:
            left.next = (command.count + 31) >> 5

    @always(clk.posedge)
    def choose() -> None:
        half.next = found
        for i in range(BANKS):
            live_bank.next[i] = reading_bank[i] and descriptors[i][4:] != 0

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

    return parts, show, move, go_on, choose, control


@block
def words_out(
    clk: Any, rst: Any, restart: Any, count: Any, issue: Any, put: Any, half: Any, m_axis: Any, room: Any,
    over: Any,
) -> Any:  # fmt: skip
    """Keep halves of rows, and give their words.

    restart (strobe): `count` values are to be given, nothing is kept; issue (strobe): two halves will be put,
    of a row; room: one more row may be asked for. over: all words were taken.
    """
    WIDTH = len(half)
    MIDDLE, SLOTS_LOG2 = WIDTH // 2, ROWS_LOG2 + 1
    memory = [word(WIDTH) for _ in range(1 << SLOTS_LOG2)]
    write_at, read_at = word(SLOTS_LOG2), word(SLOTS_LOG2)
    rows, stored = word(ROWS_LOG2 + 1), word(SLOTS_LOG2 + 1)  # asked for and not given; halves kept
    top, part, left = word(WIDTH), word(2), word(WORDS_BITS)
    some, last, few = bit(), bit(), bit()  # of left: not 0; 1; below four, a clock later
    ready, popped = bit(), bit()  # a half is stored; a word is given
    half_over, row_over, half_gone, row_gone = bit(), bit(), bit(), bit()
    held, open_wide = bit(), bit()  # m_axis.tvalid again, for tdata: its readers shall not delay `popped`

    @always_comb
    def look() -> None:
        top.next = memory[read_at]
        popped.next = ready and some and (m_axis.tready or not m_axis.tvalid)
        open_wide.next = m_axis.tready or not held

    @always_comb
    def end() -> None:
        half_over.next = popped and (part[0] or last)
        row_over.next = popped and (part == 3 or last)

    # Halves end two clocks apart, or no other follows; so they are counted a clock later.
    @always(clk.posedge)
    def keep() -> None:
        room.next = not rows[ROWS_LOG2]
        half_gone.next = half_over
        row_gone.next = row_over
        if issue and not row_gone:
            rows.next = rows + 1
        elif row_gone and not issue:
            rows.next = rows - 1
        if put and not half_gone:
            stored.next = stored + 1
        elif half_gone and not put:
            stored.next = stored - 1
        ready.next = put or (ready and not (half_over and stored[SLOTS_LOG2 + 1 : 1] == 0))
        if put:
            memory[write_at].next = half
            write_at.next = write_at + 1
        if half_over:
            read_at.next = read_at + 1
        if restart or rst:
            rows.next = 0
            stored.next = 0
            ready.next = False
            half_gone.next = False
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
            m_axis.tdata.next = top[MIDDLE:]
            if part[0]:
                m_axis.tdata.next = top[WIDTH:MIDDLE]

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
            left.next = left - 1
            last.next = few and left[2:] == 2
            some.next = not last
        if restart:
            part.next = 0
            left.next = (count + (STREAM_LANES - 1)) >> 3
            last.next = count <= STREAM_LANES
            some.next = True
        if rst:
            some.next = False
            m_axis.tvalid.next = False

    return look, end, keep, show, give


@block
def descriptors_out(
    clk: Any, rst: Any, restart: Any, count: Any, issue: Any, put: Any, descriptor: Any, m_axis: Any,
    room: Any, over: Any,
) -> Any:  # fmt: skip
    """Keep descriptors of rows, and give them; arguments as of words_out, but one descriptor is put a row."""
    memory = [word(DESCRIPTOR_BITS) for _ in range(1 << ROWS_LOG2)]
    write_at, read_at = word(ROWS_LOG2), word(ROWS_LOG2)
    rows, stored = word(ROWS_LOG2 + 1), word(ROWS_LOG2 + 1)  # asked for and not given; descriptors kept
    top, left, popped = word(DESCRIPTOR_BITS), word(ROWS_BITS), bit()

    @always_comb
    def look() -> None:
        top.next = memory[read_at]
        popped.next = stored != 0 and (m_axis.tready or not m_axis.tvalid)

    @always(clk.posedge)
    def keep() -> None:
        room.next = not rows[ROWS_LOG2]
        if issue and not popped:
            rows.next = rows + 1
        elif popped and not issue:
            rows.next = rows - 1
        if put and not popped:
            stored.next = stored + 1
        elif popped and not put:
            stored.next = stored - 1
        if put:
            memory[write_at].next = descriptor
            write_at.next = write_at + 1
        if popped:
            read_at.next = read_at + 1
        if restart or rst:
            rows.next = 0
            stored.next = 0
            write_at.next = 0
            read_at.next = 0

    @always(clk.posedge)
    def give() -> None:
        over.next = left == 0 and not m_axis.tvalid
        if m_axis.tready:
            m_axis.tvalid.next = False
        if popped:
            m_axis.tvalid.next = True
            m_axis.tlast.next = left == 1
            m_axis.tdata.next = concat(modbv(0)[5:], top)
            left.next = left - 1
        if restart:
            left.next = (count + 31) >> 5
        if rst:
            left.next = 0
            m_axis.tvalid.next = False

    return look, keep, give
