"""A bank of 512 counts in a block RAM: counts are read and written, or taken and cleared."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import bit, word

COUNT_BITS = 18


@block
def count_memory(
    clk: Any, place: Any, take: Any, take_place: Any, got: Any, counts: Any, written_place: Any, total: Any
) -> Any:
    """Read place u9, or with `take` (level) take_place u9, and clear it; got u18 comes three clocks later.

    counts (strobe): total u19 is for written_place u9; one of 2^18 and more is not written. While counts are
    taken there are none to write.
    """
    memory = [word(COUNT_BITS) for _ in range(1 << 9)]
    read_at, write_at, fetched, data = word(9), word(9), word(COUNT_BITS), word(COUNT_BITS)
    taking, clears, mine, over, write = bit(), bit(), bit(), bit(), bit()

    @always_comb
    def choose():
        write.next = clears or (mine and not over)

    @always(clk.posedge)
    def use_memory():
        if write:
            memory[write_at].next = data
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
        data.next = total[COUNT_BITS:]
        if taking:
            write_at.next = read_at
            data.next = 0
        mine.next = counts
        over.next = total[COUNT_BITS]

    return choose, use_memory, prepare
