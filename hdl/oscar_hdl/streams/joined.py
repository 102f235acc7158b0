"""Eight words as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block, concat


@block
def joined(parts: Sequence[Any], whole: Any) -> Any:
    """Hold in `whole` eight words of equal width, the first one lowest."""
    if len(parts) != 8 or any(len(whole) != 8 * len(part) for part in parts):
        raise ValueError("eight words of equal width make a word of eight times that")
    one, two, three, four, five, six, seven, eight = parts

    @always_comb
    def join() -> None:
        whole.next = concat(eight, seven, six, five, four, three, two, one)

    return join
