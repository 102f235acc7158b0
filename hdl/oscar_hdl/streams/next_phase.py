"""A phase for those that are next to each other, or whose turn comes earlier."""

from __future__ import annotations

from typing import Any

from myhdl import always, block


@block
def next_phase(clk: Any, before: Any, after: Any, *, ahead: int = 0) -> Any:
    """Give the phase u5 again, or `ahead` more, from a register of its own.

    Each register counts on from the one before it, not all from one: equal registers with equal inputs would
    be made one again by synthesis, with readers all over the part.
    """
    STEP = 1 + ahead

    @always(clk.posedge)
    def count():
        after.next = before + STEP

    return count
