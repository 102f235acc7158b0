"""One of several streams of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block

from oscar_hdl.nic.hot_tree import hot_tree
from oscar_hdl.nic.pair_port import pair_port
from oscar_hdl.streams.bundles import bit, word


@block
def pick_stream(s_axis: Sequence[Any], choice: Any, m_axis: Any) -> Any:
    """Pass on the stream whose bit of `choice` is 1; all are Stream(16, keep=2)."""
    count = len(s_axis)
    pairs = [word(19) for _ in range(count)]
    readies = [bit() for _ in range(count)]
    ports = [pair_port(*three) for three in zip(s_axis, pairs, readies, strict=True)]
    pair = word(19)
    pick = hot_tree(pairs, choice, pair)

    @always_comb
    def split():
        m_axis.tdata.next = pair[16:]
        m_axis.tkeep.next = 1
        if pair[16]:
            m_axis.tkeep.next = 3
        m_axis.tlast.next = pair[17]
        m_axis.tvalid.next = pair[18]

    @always_comb
    def answer():
        for i in range(count):
            readies[i].next = m_axis.tready and choice[i]

    return ports, pick, split, answer
