"""One of several streams of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block

from oscar_hdl.nic.pair_port import pair_port
from oscar_hdl.streams.bundles import bit, word


@block
def pick_stream(s_axis: Sequence[Any], choice: Any, m_axis: Any) -> Any:
    """Pass on s_axis[choice]; all are Stream(16, keep=2)."""
    count = len(s_axis)
    pairs = [word(19) for _ in range(count)]
    valids, readies = ([bit() for _ in range(count)] for _ in range(2))
    ports = [pair_port(*four) for four in zip(s_axis, pairs, valids, readies, strict=True)]
    pair = word(19)

    @always_comb
    def pick():
        pair.next = pairs[int(choice)]
        m_axis.tvalid.next = valids[int(choice)]

    @always_comb
    def split():
        m_axis.tdata.next = pair[16:]
        m_axis.tkeep.next = pair[18:16]
        m_axis.tlast.next = pair[18]

    @always_comb
    def answer():
        for i in range(count):
            readies[i].next = m_axis.tready and choice == i

    return ports, pick, split, answer
