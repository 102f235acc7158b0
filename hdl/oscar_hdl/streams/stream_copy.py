"""A stream for two takers."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import Stream, bit


@block
def stream_copy(clk: Any, rst: Any, count: Any, s_axis: Stream, m_axis: Stream, m_axis_too: Stream) -> Any:
    """Give each word to both; m_axis shows it in the clock in which m_axis_too takes it, or later.

    s_axis, m_axis: Stream(128); m_axis_too: Stream(128, keep=16), which says of the word with tlast which of
    its values of 16 bits there are. count: values of the packet, its low bits hold until tlast.
    """
    gone = bit()  # m_axis_too has the word

    @always_comb
    def show() -> None:
        m_axis.tdata.next = s_axis.tdata
        m_axis.tlast.next = s_axis.tlast
        m_axis.tvalid.next = s_axis.tvalid and (gone or m_axis_too.tready)
        m_axis_too.tdata.next = s_axis.tdata
        m_axis_too.tlast.next = s_axis.tlast
        m_axis_too.tvalid.next = s_axis.tvalid and not gone
        s_axis.tready.next = m_axis.tready and (gone or m_axis_too.tready)
        m_axis_too.tkeep.next = 0xFFFF
        if s_axis.tlast and count[3:] == 1:
            m_axis_too.tkeep.next = 0x0003
        elif s_axis.tlast and count[3:] == 2:
            m_axis_too.tkeep.next = 0x000F
        elif s_axis.tlast and count[3:] == 3:
            m_axis_too.tkeep.next = 0x003F
        elif s_axis.tlast and count[3:] == 4:
            m_axis_too.tkeep.next = 0x00FF
        elif s_axis.tlast and count[3:] == 5:
            m_axis_too.tkeep.next = 0x03FF
        elif s_axis.tlast and count[3:] == 6:
            m_axis_too.tkeep.next = 0x0FFF
        elif s_axis.tlast and count[3:] == 7:
            m_axis_too.tkeep.next = 0x3FFF

    @always(clk.posedge)
    def follow() -> None:
        if s_axis.tvalid:
            gone.next = (gone or m_axis_too.tready) and not m_axis.tready
        if rst:
            gone.next = False

    return show, follow
