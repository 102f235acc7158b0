"""One of many signals, chosen by a word with one bit for each; smaller than a multiplexer of as many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block

from oscar_hdl.streams.bundles import word


@block
def hot_tree(parts: Sequence[Any], hot: Any, chosen: Any, *, at: int = 0) -> Any:
    """Give the part whose bit of `hot` (from bit `at` on) is 1, of which there is one at most; combinational.

    chosen: as wide as the parts; 0 if no bit is 1.
    """
    SECOND = at + 1
    if len(parts) == 1:
        first = parts[0]

        @always_comb
        def take():
            chosen.next = 0
            if hot[at]:
                chosen.next = first

        return take
    if len(parts) == 2:
        low, high = parts

        @always_comb
        def pick():
            chosen.next = 0
            if hot[at]:
                chosen.next = low
            elif hot[SECOND]:
                chosen.next = high

        return pick
    half = (len(parts) + 3) // 4 * 2
    below, above = (word(len(chosen)) for _ in range(2))
    low_tree = hot_tree(parts[:half], hot, below, at=at)
    high_tree = hot_tree(parts[half:], hot, above, at=at + half)

    @always_comb
    def join():
        chosen.next = below | above

    return low_tree, high_tree, join
