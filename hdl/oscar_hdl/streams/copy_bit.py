"""A bit under another name."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block


@block
def copy_bit(source: Any, target: Any) -> Any:
    """Let `target` be `source`: a signal may be in one list only, where lists are converted."""

    @always_comb
    def copy():
        target.next = source

    return copy
