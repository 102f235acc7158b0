"""A lane of the store of frames: two bytes of each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.or_tree import or_tree


@block
def store_lane(
    clk: Any, words: Sequence[Any], enables: Sequence[Any], write_address: Any, written: Any, advance: Any,
    read_address: Any, data: Any,
) -> Any:  # fmt: skip
    """Write what one of the collectors gives, and read words that leave.

    words u16, enables u2 of each collector: 0 but in its turn. written u16: one clock later, beside
    write_address. data u16: what is at read_address, two clocks of `advance` later; it holds without.
    """
    depth = 1 << len(write_address)
    low, high = ([word(8) for _ in range(depth)] for _ in range(2))
    low_write, high_write = bit(), bit()
    any_word, any_enable = word(16), word(2)
    low_read, high_read, low_data, high_data = (word(8) for _ in range(4))
    gather_words, gather_enables = or_tree(words, any_word), or_tree(enables, any_enable)

    @always(clk.posedge)
    def write():
        written.next = any_word
        low_write.next = any_enable[0]
        high_write.next = any_enable[1]
        if low_write:
            low[write_address].next = written[8:]
        if high_write:
            high[write_address].next = written[16:8]

    @always(clk.posedge)
    def read():
        if advance:
            low_read.next = low[read_address]
            high_read.next = high[read_address]
            low_data.next = low_read
            high_data.next = high_read

    @always_comb
    def join():
        data.next[8:] = low_data
        data.next[16:8] = high_data

    return gather_words, gather_enables, write, read, join
