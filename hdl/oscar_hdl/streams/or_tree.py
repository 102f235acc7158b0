"""Signals of which one at most is not 0, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block

from oscar_hdl.streams.bundles import word


@block
def or_tree(parts: Sequence[Any], whole: Any) -> Any:
    """Give the or of all parts, which are as wide as `whole`; combinational."""
    if len(parts) == 1:
        only = parts[0]

        @always_comb
        def take():
            whole.next = only

        return take
    half = len(parts) // 2
    low, high = (word(len(whole)) for _ in range(2))
    low_tree, high_tree = or_tree(parts[:half], low), or_tree(parts[half:], high)

    @always_comb
    def join():
        whole.next = low | high

    return low_tree, high_tree, join
