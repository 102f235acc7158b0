"""Rows that move along the eight memories of a bank, and what these give, turned back to whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from myhdl import always, block

from oscar_hdl.nic.memory.bank_ports import TURNS
from oscar_hdl.streams.bundles import word


@block
def stage(clk: Any, step: Any, before: Any, after: Any) -> Any:
    """Let `after` become `before` with step."""

    @always(clk.posedge)
    def move() -> None:
        if step:
            after.next = before

    return move


@block
def turn_chain(clk: Any, memories: Sequence[Any], rows: Sequence[Any]) -> Any:
    """Move rows on in phase 0 modulo 4: what was rows[j] is rows[j + 1] then; rows[0] is given.

    memories: MemoryClocks of all, which say when.
    """
    return [
        stage(clk, memories[j % TURNS].is_0, before, after)
        for j, (before, after) in enumerate(pairwise(rows))
    ]


@block
def either(clk: Any, here: Any, other: Any, turned: Any, step: int, after: Any) -> Any:
    """Give `other` a clock later if bit `step` of `turned` is set, else `here`."""
    STEP = step

    @always(clk.posedge)
    def pick() -> None:
        after.next = here
        if turned[STEP]:
            after.next = other

    return pick


@block
def turn_back(clk: Any, parts: Sequence[Any], turned: Sequence[Any], given: Sequence[Any]) -> Any:
    """Let given[n] be parts[(amount - n) mod 8], three clocks later, in three steps that all share.

    parts, given: eight; None in given: nobody is there. So who comes n turns later has what is n memories
    before. turned: eight words; each has all bits of the amount, so that each drives what is near by: bit 0
    in the clock of the parts, bit 1 a clock later, bit 2 two clocks later.
    """
    if not len(parts) == len(turned) == len(given) == TURNS:
        raise ValueError(f"a bank has {TURNS} turns, got {len(parts)} parts for {len(given)} places")

    # From the last step back: which of its places are asked for.
    needed = [[n for n in range(TURNS) if given[n] is not None]]
    for step in (2, 1):
        needed.insert(0, sorted({m % TURNS for n in needed[0] for m in (n, n - (1 << step))}))
    steps = []
    now = {n: parts[-n % TURNS] for n in range(TURNS)}
    for step, places in enumerate(needed):
        after = {n: given[n] if step == 2 else word(len(parts[0])) for n in places}
        steps += [
            either(clk, now[n], now[(n - (1 << step)) % TURNS], turned[n], step, after[n]) for n in places
        ]
        now = after
    return steps
