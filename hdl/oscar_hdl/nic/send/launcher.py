"""Starts collectors and tells them what becomes of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.streams.bundles import bit, word


@block
def launcher(
    clk: Any, rst: Any, launch: Any, target: Any, choice: Any, keep: Any, drop: Any, cancel: Any,
    launched: Any, busy: Any, turn: Any, busies: Sequence[Any], starts: Sequence[Any], choices: Sequence[Any],
    keeps: Sequence[Any], drops: Sequence[Any], cancels: Sequence[Any],
) -> Any:  # fmt: skip
    """Start collector `target` on its stream `choice` when it is free, and in its turn.

    launch (level, until launched); launched (strobe): one clock after the start. keep, drop, cancel
    (strobes): passed to the target. busy: the target is.
    """
    count = len(busies)
    started, next_turn = bit(), word(len(turn))

    @always_comb
    def look():
        any_start = modbv(0)[1:]
        for i in range(count):
            if starts[i]:
                any_start[:] = 1
        started.next = any_start == 1
        next_turn.next = turn + 1
        busy.next = busies[int(target)]

    @always(clk.posedge)
    def run():
        launched.next = started and not rst
        for i in range(count):
            starts[i].next = (
                launch and not started and not launched and target == i and next_turn == i
                and not busies[i]
            )  # fmt: skip
            keeps[i].next = keep and target == i
            drops[i].next = drop and target == i
            cancels[i].next = cancel and target == i
            if rst:
                starts[i].next = False
            if starts[i]:
                choices[i].next = choice

    return look, run
