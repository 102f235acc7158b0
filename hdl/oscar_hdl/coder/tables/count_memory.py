"""A bank of 512 counts in a block RAM, with its adder: counts grow, or are taken and cleared."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.streams.bundles import bit, word

COUNT_BITS = 18


@block
def count_memory(
    clk: Any, place: Any, take: Any, take_place: Any, got: Any, counts: Any, written_place: Any, amount: Any,
    again: Any, over: Any,
) -> Any:  # fmt: skip
    """Read place u9, or with `take` (level) take_place u9, and clear it; got u18 comes three clocks later.

    counts (strobe, with got): got, or with `again` the sum of three clocks before, and amount u5 go to
    written_place u9; a sum of 2^18 and more does not, but gives `over` (strobe, a clock later). While counts
    are taken there are none to write.
    """
    memory = [word(COUNT_BITS) for _ in range(1 << 9)]
    read_at, write_at, fetched = word(9), word(9), word(COUNT_BITS)
    total, total3, total4, total5 = word(COUNT_BITS + 1), *(word(COUNT_BITS) for _ in range(3))
    taking, clears, mine, carry, write = bit(), bit(), bit(), bit(), bit()

    @always_comb
    def add():
        base = modbv(0)[COUNT_BITS:]
        base[:] = got
        if again:
            base[:] = total5
        total.next = base + amount

    @always_comb
    def choose():
        write.next = clears or (mine and not carry)
        over.next = mine and carry

    @always(clk.posedge)
    def use_memory():
        if write:
            memory[write_at].next = total3
        fetched.next = memory[read_at]
        got.next = fetched

    @always(clk.posedge)
    def prepare():
        read_at.next = place
        if take:
            read_at.next = take_place
        taking.next = take
        clears.next = taking
        write_at.next = written_place
        total3.next = total[COUNT_BITS:]
        if taking:
            write_at.next = read_at
            total3.next = 0
        total4.next = total3
        total5.next = total4
        mine.next = counts
        carry.next = total[COUNT_BITS]

    return add, choose, use_memory, prepare
