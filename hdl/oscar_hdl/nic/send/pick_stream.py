"""Pairs of bytes of one of several streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree
from oscar_hdl.streams.pair_port import pair_port


@block
def pick_stream(clk: Any, s_axis: Sequence[Any], choice: Any, ready: Any, mark: Any, pair: Any) -> Any:
    """Take from the stream whose bit of `choice` is 1; all are Stream(16, keep=2).

    ready: its tready; mark u2: its tvalid and tlast; pair u17: its tdata and tkeep[1] (above), a clock later.
    """
    count = len(s_axis)
    pairs = [word(17) for _ in range(count)]
    marks = [word(2) for _ in range(count)]
    readies = [bit() for _ in range(count)]
    ports = [pair_port(*four) for four in zip(s_axis, pairs, marks, readies, strict=True)]
    pick_pair = hot_tree(clk, pairs, choice, pair)
    pick_mark = hot_tree(None, marks, choice, mark)

    @always_comb
    def answer():
        for i in range(count):
            readies[i].next = ready and choice[i]

    return ports, pick_pair, pick_mark, answer
