"""Values from a stream into a NIC's banks of rows for barrel units."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.float_tally import float_tally
from oscar_hdl.nic.memory.ports import Adding, FloatPacket, GroupWrite, QuantisedWord, RowCommand
from oscar_hdl.nic.memory.row_adder import row_kind, row_sums
from oscar_hdl.nic.memory.row_lines import OPENED, ROWS_BITS, RowLines, row_walk
from oscar_hdl.nic.memory.whole_rows import whole_rows
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied

WRITTEN, DESCRIBED = 3, 7  # turns from the one in which a row is read until its sums, its kind are written
UNDER_WAY = 6  # turns behind the one in which a row is asked for in which no decoder may have it


@block
def added_row(mark, adds, added):
    """Give a row's mark if its packet adds, else 0: then its descriptor is not written.

    adds (level) holds while the packet's rows are written. When they are described it may be the next one's.
    """

    @always_comb
    def choose():
        added.next = 0
        if adds:
            added.next = mark

    return choose


@block
def added_to(adds, replaces, with_old):
    """Say whether a packet that takes the path of those that add does add."""

    @always_comb
    def choose():
        with_old.next = adds and not replaces

    return choose


@block
def loaded_row(mark, some, here, final, row):
    """Take a row's mark to pieces."""
    BANKS, ROW_BITS, END = len(here), len(row), len(mark) - 1
    HERE, FINAL = ROW_BITS + len(here), ROW_BITS

    @always_comb
    def cut():
        some.next = mark[END]
        here.next = mark[END:HERE]
        final.next = mark[HERE:FINAL]
        row.next = mark[ROW_BITS:]

    if END != ROW_BITS + 2 * BANKS:
        raise ValueError(f"a mark of {BANKS} banks has {ROW_BITS + 2 * BANKS + 1} bits, got {END + 1}")
    return cut


@block
def values_in(
    clk, rst, phase, command: RowCommand, lines: RowLines, s_axis_values, adding: Adding, row,
    writes: Sequence[GroupWrite], *, skip_bits: int, adds: bool, floats: FloatPacket | None = None,
):  # fmt: skip
    """Write a packet's values, eight a clock and bank, and zeros to the end of its last row; or add them.

    command: RowCommand of one value or more; `clear` is ignored. lines: its shape, there with or before the
    fourth clock behind its start.
    s_axis_values: lines.words words of eight values for each bank, the first bank in the lowest bits, and the
    first value there; tlast is not looked at. A row begins when its words have come, one each four clocks.
    row: of writes, a GroupWrite a bank. skip_bits: 2^skip_bits banks.

    adds: there may be commands that add; else of `adding` nothing is looked at. floats: packets may bring
    floats, whose commands add, to nothing where the packet replaces; then adds is true.
    """
    if floats is not None and not adds:
        raise ValueError("expected a loader that adds where packets bring floats, got adds=False")
    BANKS, FILLED, LAST = len(writes), OPENED - 2, OPENED
    ROW_BITS, ask, under_way, busy = len(row), adding.ask, adding.rows, adding.busy
    opening = word(OPENED + 1)
    restart, begins, opens = opening(1), opening(FILLED), opening(LAST)
    running, want, taken, ended, whole = bit(), bit(), bit(), bit(), bit()
    here, final, over, at = word(BANKS), word(BANKS), word(BANKS), word(ROW_BITS)
    left, recent = word(ROWS_BITS), word(3)  # rows to be taken; turns until all that was taken is written
    marks = [word(2 * BANKS + ROW_BITS + 1) for _ in range((DESCRIBED if adds else WRITTEN) + 1)]
    begun, some, here_now, final_now = marks[0], bit(), word(BANKS), word(BANKS)
    written, added = marks[WRITTEN], word(len(begun))
    top, lanes, ahead, ends = QuantisedWord(BANKS), word(8), word(2), bit()  # ends: in phase 3
    with_old = bit()

    parts = [
        row_walk(clk, restart, command.first, lines, taken, at, here, final, over, skip_bits=skip_bits),
        whole_rows(
            clk, rst, begins, opens, lines.words, s_axis_values, whole, taken, some, top, floats=floats
        ),
        # A turn later each, from phase 0 on.
        [copied(clk, *two, load=ends) for two in pairwise(marks[: WRITTEN + 1])],
        loaded_row(written, some, here_now, final_now, row),
    ]
    for bank, (write, old) in enumerate(zip(writes, adding.olds, strict=True)):
        to_write = some, here_now, final_now, lanes, top.data, old, with_old, write
        parts.append(row_sums(clk, rst, *to_write, bank=bank, adds=adds))
    if floats is None:
        parts.append(copied(None, command.adds, with_old))
    else:
        parts += [
            float_tally(clk, rst, command, floats, some, here_now, final_now, lanes, top),
            added_to(command.adds, floats.replaces, with_old),
        ]
    if adds:
        done, dones, finals, done_row = bit(), word(BANKS), word(BANKS), adding.banks[0].row
        parts += [
            added_row(written, command.adds, added),
            [copied(clk, *two, load=ends) for two in pairwise([added, *marks[WRITTEN + 1 :]])],
            loaded_row(marks[DESCRIBED], done, dones, finals, done_row),
        ]
        parts += [
            row_kind(clk, rst, phase, ahead, write.data, done, dones, kind, bank=bank)
            for bank, (write, kind) in enumerate(zip(writes, adding.banks, strict=True))
        ]

    @always_comb
    def show():
        taken.next = want and (ask.taken or not command.adds)
        ask.want.next = want and command.adds
        ask.row.next = at
        ask.bank.next = 0
        ends.next = phase[2:] == 3

    @always_comb
    def tell():
        begun.next = concat(taken, here, final, at)
        # What is under way: the row that may be asked for in this turn, and those of the turns before.
        under_way.row.next = at
        under_way.on.next = command.adds and ((running and whole) or recent != 0)

    @always(clk.posedge)
    def place():
        under_way.last.next = at - UNDER_WAY
        ahead.next = phase[2:] + 2
        lanes.next = 0
        if ahead < lines.part:
            lanes.next = 0xFF
        elif ahead == lines.part:
            lanes.next = lines.tail
        want.next = phase[2:] == 2 and running and whole and not (command.adds and busy) and not rst

    @always(clk.posedge)
    def count():
        if phase[2:] == 3:
            if taken:
                recent.next = WRITTEN
                if command.adds:
                    recent.next = UNDER_WAY
            elif recent != 0:
                recent.next = recent - 1
        if taken:
            left.next = left - 1
        if opening[FILLED]:
            left.next = lines.steps
        if rst:
            recent.next = 0

    @always(clk.posedge)
    def control():
        opening.next = concat(opening[LAST:], command.start)
        command.done.next = False
        if opening[LAST]:
            running.next = True
        elif taken and left == 1:
            running.next = False
            ended.next = True
        if ended and recent == 0 and phase[2:] == 1:
            ended.next = False
            command.done.next = True
            command.idle.next = True
        if command.start:
            command.idle.next = False
        if rst:
            opening.next = 0
            running.next = False
            ended.next = False
            command.done.next = False
            command.idle.next = True

    return parts, show, tell, place, count, control
