"""Deals the blocks of a frame to the units at whose bank they are."""

from collections.abc import Sequence

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.coder.ports import BANK_BITS
from oscar_hdl.nic.send.ports import DealtBlock, PlannedFrame, UnitRing
from oscar_hdl.streams.bundles import bit, word


@block
def bank_place(row, hot, first, *, block_log2: int):
    """Say at which bank a row is (a bit of `hot` for each), and which row of the bank it is; combinational.

    Block b of memory is in bank b modulo their number.
    """
    BANKS, BITS = len(hot), len(row)
    if BANKS == 1:

        @always_comb
        def alone():
            hot.next = 1
            first.next = row

        return alone

    LOW, HIGH = block_log2 - 5, block_log2 - 5 + BANKS.bit_length() - 1
    bank = word(HIGH - LOW)

    @always_comb
    def cut():
        bank.next = row[HIGH:LOW]
        first.next = concat(row[BITS:HIGH], row[LOW:])

    @always_comb
    def choose():
        for n in range(BANKS):
            hot.next[n] = bank == n

    return cut, choose


@block
def encode_dealer(
    clk, rst, start, row, frame: PlannedFrame, busy, dealt: DealtBlock, rings: Sequence[UnitRing], *,
    block_log2: int,
):  # fmt: skip
    """Give each block of a frame to the next thread of its unit, in three clocks if one is free.

    start (strobe, while not busy): frame has values, `row` is its first row in the memory. busy (level): not
    all its blocks are dealt. Blocks of the frame before may be under way.
    """
    gos, rooms, units = [ring.go for ring in rings], [ring.room for ring in rings], len(rings)
    states = enum("IDLE", "LOOK", "DEAL", "STEP")
    state = Signal(states.IDLE)
    index, base, final, may = word(8), word(len(row)), bit(), bit()
    last_block, last_size = word(8), word(len(frame.last_size))
    VALUES, ROWS = 1 << block_log2, 1 << (block_log2 - 5)  # of a block but the last
    bank, next_hot, hot = word(BANK_BITS), word(units), word(units)
    next_first, first = word(len(dealt.first)), word(len(dealt.first))

    place = bank_place(base, next_hot, next_first, block_log2=block_log2)

    @always_comb
    def look():
        any_room = modbv(0)[1:]
        for n in range(units):
            if hot[n] and rooms[n]:
                any_room[:] = 1
        may.next = any_room == 1
        busy.next = state != states.IDLE

    @always(clk.posedge)
    def deal():
        if start:
            last_block.next = frame.last_block
            last_size.next = frame.last_size
            bank.next = frame.bank
        final.next = index == last_block
        hot.next = next_hot
        first.next = next_first
        if state == states.LOOK:
            state.next = states.DEAL
        elif state == states.DEAL:
            if may:
                state.next = states.STEP
        elif state == states.STEP:
            state.next = states.LOOK
            if final:
                state.next = states.IDLE
            index.next = index + 1
            base.next = base + ROWS
        if start:
            state.next = states.LOOK
            index.next = 0
            base.next = row
        if rst:
            state.next = states.IDLE

    @always(clk.posedge)
    def hand():
        for n in range(units):
            gos[n].next = state == states.DEAL and may and hot[n] and not rst
        if state == states.DEAL:
            dealt.bank.next = bank
            dealt.first.next = first
            dealt.values.next = VALUES
            if final:
                dealt.values.next = last_size

    return place, look, deal, hand
