"""One of several streams of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block


@block
def pick_stream(s_axis: Sequence[Any], choice: Any, m_axis: Any) -> Any:
    """Pass on s_axis[choice]; all are Stream(16, keep=2)."""
    count = len(s_axis)
    data = [s.tdata for s in s_axis]
    keep = [s.tkeep for s in s_axis]
    valid = [s.tvalid for s in s_axis]
    last = [s.tlast for s in s_axis]
    ready = [s.tready for s in s_axis]

    @always_comb
    def pick():
        m_axis.tdata.next = data[int(choice)]
        m_axis.tkeep.next = keep[int(choice)]
        m_axis.tvalid.next = valid[int(choice)]
        m_axis.tlast.next = last[int(choice)]

    @always_comb
    def answer():
        for i in range(count):
            ready[i].next = m_axis.tready and choice == i

    return pick, answer
