"""The largest symbol of the rows of a frame that is to be sent, in all banks: asc.md's last symbol."""

from collections.abc import Sequence

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.memory.clear_walk import line_begin
from oscar_hdl.nic.memory.ports import SYMBOL_BITS, BankTop
from oscar_hdl.nic.ports import COUNT_BITS, TopPort
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.largest import largest

States = enum("IDLE", "WAIT", "ASK", "SEEK", "COMPARE")
ROWS_BITS = COUNT_BITS - 5 + 1
SETTLED = 3  # clocks from the ask until it is known how the frame is split
COMPARED = 4  # from the last bank's symbol until all are compared


@block
def frame_symbol(
    clk, rst, port: TopPort, behind, row, words, tops: Sequence[BankTop], *, block_bits: int, skip_bits: int
):
    """Ask each bank for the largest symbol of its part of a frame, and keep the largest of these.

    port: of a frame that begins a block. behind: level, descriptors behind a frame's rows are not yet 0; the
    search waits. row, words: of all BankTops.
    """
    BANKS, BANK_BITS, LINE_BITS = len(tops), max(1, skip_bits), len(row) - block_bits
    LAST, ALL, EIGHTS = len(tops) - 1, (1 << len(tops)) - 1, block_bits - 3
    BLOCKS_BITS = ROWS_BITS - block_bits
    state = Signal(States.IDLE)
    line, skip, first_line = word(LINE_BITS), word(4), word(LINE_BITS)
    # Whole blocks of the frame, and eights of rows of the last one if it is not; the bank of that one,
    # counted from the frame's first. index: whose part is asked for; place: the same counted from the first.
    rows, whole, rest, rest_place = word(ROWS_BITS), word(BLOCKS_BITS), word(EIGHTS + 1), word(BANK_BITS)
    index, place, blocks, extra = word(4), word(BANK_BITS), word(BLOCKS_BITS + 1), bit()
    asks, asks_before, pending, clocks = word(BANKS), word(BANKS), word(BANKS), word(3)
    most, symbols, knowns = word(SYMBOL_BITS), [top.symbol for top in tops], [top.known for top in tops]
    parts = [copied(None, asks(i), top.ask) for i, top in enumerate(tops)]
    parts += [
        line_begin(port.row, first_line, skip, block_bits=block_bits, skip_bits=skip_bits),
        largest(clk, symbols, most) if BANKS > 1 else copied(None, symbols[0], most),
        place_of_rest(whole, rest_place, skip_bits=skip_bits),
    ]

    @always(clk.posedge)
    def measure():
        if state == States.IDLE:
            rows.next = (port.count + 31) >> 5
        whole.next = rows[:block_bits]
        rest.next = (concat(False, rows[block_bits:]) + 7) >> 3

    # A bank's part: blocks in the clock behind its index, and a clock later all that it is asked for.
    @always(clk.posedge)
    def split():
        blocks.next = (whole + LAST - place) >> skip_bits
        extra.next = rest_place == place
        line.next = first_line
        if index < skip:
            line.next = first_line + 1
        asks_before.next = 0
        if state == States.ASK:
            for i in range(BANKS):
                asks_before.next[i] = index == i
        asks.next = asks_before
        row.next = concat(line, modbv(0)[block_bits:])
        words.next = blocks << EIGHTS
        if extra:
            words.next = (blocks << EIGHTS) + rest
        if rst:
            asks_before.next = 0
            asks.next = 0

    @always(clk.posedge)
    def gather():
        for i in range(BANKS):
            if knowns[i]:
                pending.next[i] = False
        if state == States.WAIT:
            pending.next = ALL

    @always(clk.posedge)
    def control():
        port.known.next = False
        clocks.next = clocks + 1
        if state == States.IDLE:
            clocks.next = 0
            if port.ask:
                state.next = States.WAIT
        elif state == States.WAIT:
            index.next = 0
            place.next = 0 - skip
            if clocks == SETTLED:
                clocks.next = SETTLED
                if not behind:
                    state.next = States.ASK
        elif state == States.ASK:
            index.next = index + 1
            place.next = place + 1
            if index == LAST:
                state.next = States.SEEK
        elif state == States.SEEK:
            clocks.next = 0
            if pending == 0:
                state.next = States.COMPARE
        elif clocks == COMPARED:
            state.next = States.IDLE
            port.known.next = True
            port.symbol.next = most
        if rst:
            state.next = States.IDLE
            port.known.next = False

    return parts, measure, split, gather, control


@block
def place_of_rest(whole, place, *, skip_bits: int):
    """Say which of the banks, counted from a frame's first, has the rows behind so many whole blocks."""
    if skip_bits == 0:

        @always_comb
        def cut():
            place.next = 0 * whole
    else:

        @always_comb
        def cut():
            place.next = whole[skip_bits:]

    return cut
