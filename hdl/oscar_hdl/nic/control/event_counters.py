"""Sixteen 32-bit counters in one small memory, and what counts rows for them."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, modbv

from oscar_hdl.streams.bundles import bit, word


@block
def row_counter(clk: Any, phase: Any, takes: Any, rows: Any) -> Any:
    """Set a bit of rows u3 for each row, a turn later.

    phase: a turn begins where its two lower bits are 0. takes: a bit for each unit (strobes), 12 at most; a
    unit takes a row a turn, always in the same clock of it.
    """
    UNITS = len(takes)
    if UNITS > 12:
        raise ValueError(f"rows of 12 units can be counted, got {UNITS}")
    taken, left = word(UNITS), word(max(UNITS, 3))

    @always(clk.posedge)
    def count():
        rows.next = left[3:]
        left.next = left >> 3
        if phase[2:] == 0:
            left.next = taken
            taken.next = takes
        else:
            taken.next = taken | takes

    return count


COUNTERS = 16
AHEAD_BITS = 6  # a counter is visited every 16 clocks


@block
def event_counters(
    clk: Any, rst: Any, events: Any, second: Any, third: Any, rd_index: Any, rd_count: Any
) -> Any:
    """Count in how many clocks each bit is set, of `events`, `second` and `third` u16 together.

    rd_index u4 -> rd_count u32 one clock later; it lags up to 18 clocks. Memory is cleared in 19 clocks
    behind a reset; until then all read as 0.
    """
    if any(len(bits) != COUNTERS for bits in (events, second, third)):
        raise ValueError(f"events have {COUNTERS} bits, got {len(events)}, {len(second)}, {len(third)}")
    memory = [word(32) for _ in range(COUNTERS)]
    ahead = [word(AHEAD_BITS) for _ in range(COUNTERS)]  # counted since the last visit
    turn, cleared, shown = word(4), bit(), bit()
    last, add, before, counted = word(4), bit(), word(32), word(AHEAD_BITS)  # the last clock's counter
    ones, twos = word(COUNTERS), word(COUNTERS)
    wr_en, wr_index, wr_count = bit(), word(4), word(32)

    @always(clk.posedge)
    def count():
        rd_count.next = 0
        if shown:
            rd_count.next = memory[rd_index]
        shown.next = add
        turn.next = (turn + 1) & 15
        if turn == COUNTERS - 1:
            cleared.next = True
        last.next = turn
        add.next = cleared
        before.next = memory[turn]
        counted.next = ahead[turn]
        wr_en.next = True
        wr_index.next = last
        wr_count.next = counted
        if add:
            wr_count.next = before + counted
        if wr_en:
            memory[wr_index].next = wr_count
        ones.next = events ^ second ^ third
        twos.next = (events & second) | (events & third) | (second & third)
        for i in range(COUNTERS):
            amount = modbv(0)[2:]
            amount[0] = ones[i]
            amount[1] = twos[i]
            if turn == i:
                ahead[i].next = amount
            else:
                ahead[i].next = ahead[i] + amount
        if rst:
            turn.next = 0
            cleared.next = False
            add.next = False
            shown.next = False
            wr_en.next = False
            ones.next = 0
            twos.next = 0
            for i in range(COUNTERS):
                ahead[i].next = 0

    return count
