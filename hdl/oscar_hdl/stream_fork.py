"""One stream to two takers."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block


@block
def stream_fork(s_axis: Any, m_axis: Any, m_axis_more: Any) -> Any:
    """Give every word of s_axis to both outputs, when both take it; combinational.

    All three are Stream(n, keep=k). Each output's tvalid waits for the other's tready: inside a NIC only.
    """

    @always_comb
    def share():
        m_axis.tdata.next = s_axis.tdata
        m_axis.tkeep.next = s_axis.tkeep
        m_axis.tlast.next = s_axis.tlast
        m_axis.tvalid.next = s_axis.tvalid and m_axis_more.tready
        m_axis_more.tdata.next = s_axis.tdata
        m_axis_more.tkeep.next = s_axis.tkeep
        m_axis_more.tlast.next = s_axis.tlast
        m_axis_more.tvalid.next = s_axis.tvalid and m_axis.tready
        s_axis.tready.next = m_axis.tready and m_axis_more.tready

    return share
