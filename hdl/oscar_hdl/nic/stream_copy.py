"""A stream for two takers."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import Stream, bit


@block
def stream_copy(clk: Any, rst: Any, count: Any, s_axis: Stream, m_axis: Stream, m_axis_too: Stream) -> Any:
    """Give each word to both; the next one comes when both have it.

    s_axis, m_axis: Stream(64); m_axis_too: Stream(64, keep=8), which says of the word with tlast which of its
    values of 16 bits there are. count: values of the packet, its low bits hold until tlast.
    """
    gone, gone_too = bit(), bit()

    @always_comb
    def show() -> None:
        m_axis.tdata.next = s_axis.tdata
        m_axis.tlast.next = s_axis.tlast
        m_axis.tvalid.next = s_axis.tvalid and not gone
        m_axis_too.tdata.next = s_axis.tdata
        m_axis_too.tlast.next = s_axis.tlast
        m_axis_too.tvalid.next = s_axis.tvalid and not gone_too
        s_axis.tready.next = (gone or m_axis.tready) and (gone_too or m_axis_too.tready)
        m_axis_too.tkeep.next = 0xFF
        if s_axis.tlast and count[2:] == 1:
            m_axis_too.tkeep.next = 0x03
        elif s_axis.tlast and count[2:] == 2:
            m_axis_too.tkeep.next = 0x0F
        elif s_axis.tlast and count[2:] == 3:
            m_axis_too.tkeep.next = 0x3F

    @always(clk.posedge)
    def follow() -> None:
        if s_axis.tvalid:
            gone.next = (gone or m_axis.tready) and not (gone_too or m_axis_too.tready)
            gone_too.next = (gone_too or m_axis_too.tready) and not (gone or m_axis.tready)
        if rst:
            gone.next = False
            gone_too.next = False

    return show, follow
