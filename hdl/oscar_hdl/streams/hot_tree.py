"""One of many signals, chosen by a word with one bit for each; smaller than a multiplexer of as many."""

from collections.abc import Sequence

from myhdl import always_comb, block, modbv

from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.copied import copied


@block
def hot_tree(clk, parts: Sequence, hot, chosen, *, at: int = 0):
    """Give the part whose bit of `hot` (from bit `at` on) is 1, of which there is one at most, a clock later.

    chosen: as wide as the parts; 0 if no bit is 1. A register stands behind each two parts, or with clk None
    nowhere: then `chosen` is combinational.
    """
    if len(parts) > 2:
        half = (len(parts) + 3) // 4 * 2
        below, above = (word(len(chosen)) for _ in range(2))
        low_tree = hot_tree(clk, parts[:half], hot, below, at=at)
        high_tree = hot_tree(clk, parts[half:], hot, above, at=at + half)

        @always_comb
        def join():
            chosen.next = below | above

        return low_tree, high_tree, join

    low, high = parts[0], parts[-1]
    picked, BITS, LAST = word(len(chosen)), len(chosen), at + len(parts) - 1

    # A sum of products: with one bit before the other, synthesis would make terms of bits that others read.
    @always_comb
    def pick():
        both = modbv(0)[BITS:]
        if hot[at]:
            both[:] = low
        if hot[LAST]:
            both[:] = both | high
        picked.next = both

    return pick, copied(clk, picked, chosen)
