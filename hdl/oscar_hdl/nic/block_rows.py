"""Where units' blocks are in the NIC's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import bit, word


@block
def block_rows(
    clk: Any, rst: Any, start: Any, row: Any, adopting: Any, banks: Sequence[Any], bases: Sequence[Any],
    rows: Sequence[Any], adopt: Sequence[Any],
) -> Any:  # fmt: skip
    """Add the first row of a frame to that of each unit's block in the frame.

    start: pulse, with row and adopting (a bit) of the frame that begins: the n-th since reset, from 0 on, is
    that of units whose bank is n modulo 2. bases: of the units; rows, as wide as row, and adopt, bits: one
    clock later.
    """
    UNITS, BITS = len(banks), len(row)
    first, second, turn = word(BITS), word(BITS), bit()
    first_adopts, second_adopts = bit(), bit()
    bank_of, base_of, row_of, adopt_of = list(banks), list(bases), list(rows), list(adopt)

    @always(clk.posedge)
    def frames() -> None:
        if start:
            turn.next = not turn
            if turn:
                second.next = row
                second_adopts.next = adopting
            else:
                first.next = row
                first_adopts.next = adopting
        if rst:
            turn.next = False

    @always(clk.posedge)
    def units() -> None:
        for i in range(UNITS):
            if bank_of[i]:
                row_of[i].next = second + base_of[i]
                adopt_of[i].next = second_adopts
            else:
                row_of[i].next = first + base_of[i]
                adopt_of[i].next = first_adopts

    return frames, units
