"""A slice of a switch that adds: a NIC without own values, to which all ports send."""

from myhdl import block

from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.nic.ports import frames_in, frames_out
from oscar_hdl.streams.bundles import Stream
from oscar_hdl.streams.port_copy import port_copy
from oscar_hdl.streams.port_merge import port_merge


class PortFrames:
    """Frames of a switch's ports, a Stream(bus_bits, keep) each; they are its fields, by their numbers."""

    def __init__(self, ports: int, bus_bits: int = 64) -> None:
        vars(self).update({f"{n}": Stream(bus_bits, keep=bus_bits // 8) for n in range(ports)})

    @property
    def streams(self) -> list[Stream]:
        """All of them, in the order of ports."""
        return list(vars(self).values())


@block
def switch_slice(
    clk, rst, s_axil, irq, s_axis_rx: PortFrames, m_axis_tx: PortFrames, s_axis_values, s_axis_side,
    s_axis_read, m_axis_values, m_axis_descriptors, s_axis_list, *, bus_bits: int = 64, adds: bool = False,
    **parameters,
):  # fmt: skip
    """Add what ports send of a chunk, code the sum once, and send it to all of them (nic-on-a-board.md).

    s_axis_rx, m_axis_tx: of 2, 4, 8 or 16 ports; a frame's port is the peer that made it.
    The other arguments are oscar_nic's; its rows are loaded as zeros, with their side rows. A list says what
    is added and sent. It has no own values, so no packet of them needs to be added.
    """
    rx, tx = frames_in(bus_bits), frames_out(bus_bits)
    return (
        port_merge(clk, rst, s_axis_rx.streams, rx),
        oscar_nic(
            clk, rst, s_axil, irq, rx, tx, s_axis_values, s_axis_side, s_axis_read, m_axis_values,
            m_axis_descriptors, s_axis_list, bus_bits=bus_bits, adds=adds, **parameters,
        ),
        port_copy(clk, rst, tx, m_axis_tx.streams),
    )  # fmt: skip
