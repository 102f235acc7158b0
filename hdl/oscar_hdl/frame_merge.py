"""Two streams of frames to one."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import bit


@block
def frame_merge(clk: Any, rst: Any, s_axis: Any, s_axis_more: Any, m_axis: Any) -> Any:
    """Send whole frames of both inputs, in turn when both have one.

    All three are Stream(n, keep=k); between frames one clock is lost.
    """
    chosen, more = bit(), bit()  # a frame is on its way; it is one of s_axis_more

    @always_comb
    def route():
        m_axis.tdata.next = s_axis.tdata
        m_axis.tkeep.next = s_axis.tkeep
        m_axis.tlast.next = s_axis.tlast
        m_axis.tvalid.next = chosen and s_axis.tvalid
        if more:
            m_axis.tdata.next = s_axis_more.tdata
            m_axis.tkeep.next = s_axis_more.tkeep
            m_axis.tlast.next = s_axis_more.tlast
            m_axis.tvalid.next = chosen and s_axis_more.tvalid
        s_axis.tready.next = chosen and not more and m_axis.tready
        s_axis_more.tready.next = chosen and more and m_axis.tready

    @always(clk.posedge)
    def choose():
        if not chosen:
            chosen.next = s_axis.tvalid or s_axis_more.tvalid
            more.next = s_axis_more.tvalid and not (s_axis.tvalid and more)
        elif m_axis.tready and (
            (more and s_axis_more.tvalid and s_axis_more.tlast)
            or (not more and s_axis.tvalid and s_axis.tlast)
        ):
            chosen.next = False
        if rst:
            chosen.next = False

    return route, choose
