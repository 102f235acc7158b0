"""A slice of a switch that adds: a NIC without own values, to which all ports send."""

from myhdl import block

from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.nic.ports import frames_in, frames_out
from oscar_hdl.streams.bundles import PortFrames
from oscar_hdl.streams.port_copy import port_copy
from oscar_hdl.streams.port_merge import port_merge


@block
def switch_slice(
    clk, rst, s_axil, irq, s_axis_rx: PortFrames, m_axis_tx: PortFrames, s_axis_values, s_axis_side,
    s_axis_read, m_axis_values, m_axis_descriptors, s_axis_list, *, bus_bits: int = 64, adds: bool = False,
    **parameters,
):  # fmt: skip
    """Add what ports send of a chunk, code the sum once, and send it to all of them.

    The other arguments are oscar_nic's; its rows are loaded as zeros, with their side rows. A list says what
    is added and sent. It has no own values, so no packet of them needs to be added.
    docs/how-to/nic-on-a-board.md, "A switch that adds", says how to use it.

    Args:
        s_axis_rx: Frames from 2, 4, 8 or 16 ports; a frame's port is the peer that made it.
        m_axis_tx: Frames to the ports.
        ports: Number of ports: 2, 4, 8 or 16.

    Clocks:
        2: From a frame's first word to the NIC, where no other frame is under way.
    """
    rx, tx = frames_in(bus_bits), frames_out(bus_bits)
    return (
        port_merge(clk, rst, s_axis_rx, rx),
        oscar_nic(
            clk, rst, s_axil, irq, rx, tx, s_axis_values, s_axis_side, s_axis_read, m_axis_values,
            m_axis_descriptors, s_axis_list, bus_bits=bus_bits, adds=adds, **parameters,
        ),
        port_copy(clk, rst, tx, m_axis_tx),
    )  # fmt: skip
