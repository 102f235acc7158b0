"""Rows that a decoder adds to: none is given again before its sums and their descriptor are written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.barrel_ports import WINDOW
from oscar_hdl.streams.bundles import bit, word


@block
def row_under_way(
    clk: Any,
    rst: Any,
    phase: Any,
    row2: Any,
    row_before: Any,
    valid_before: Any,
    row: Any,
    valid: Any,
    hit: Any,
) -> Any:
    """Keep a row for a turn, and say whether it is row2, a clock later."""

    @always(clk.posedge)
    def move() -> None:
        if phase[2:] == 3:
            row.next = row_before
            valid.next = valid_before
        hit.next = valid and row == row2
        if rst:
            valid.next = False

    return move


@block
def any_hit(hits: Sequence[Any], hit: Any) -> Any:
    """Say whether one of the signals is high."""
    COUNT = len(hits)

    @always_comb
    def look() -> None:
        found = False
        for i in range(COUNT):
            if hits[i]:
                found = True
        hit.next = found

    return look


@block
def rows_under_way(clk: Any, rst: Any, phase: Any, row2: Any, row3: Any, given3: Any, hit: Any) -> Any:
    """Say in phase 3 whether row2, of phase 2, was given in one of the WINDOW turns before.

    row3: the same in phase 3; given3: it is given in this turn. So adds of two frames to a row never
    interleave, in whatever order they come.
    """
    rows, valids = (
        [row3] + [word(len(row3)) for _ in range(WINDOW)],
        [given3] + [bit() for _ in range(WINDOW)],
    )
    hits = [bit() for _ in range(WINDOW)]
    parts = [
        row_under_way(clk, rst, phase, row2, row, valid, later, still, hits[i])
        for i, ((row, later), (valid, still)) in enumerate(zip(pairwise(rows), pairwise(valids), strict=True))
    ]
    return parts, any_hit(hits, hit)
