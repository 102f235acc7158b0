"""A top that converts: an oscar_nic with strobes of what it does inside."""

from __future__ import annotations

from typing import Any

from myhdl import block

from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.nic.ports import NicProbe, frames_in, frames_out, row_streams
from oscar_hdl.streams.bundles import AxiLite, Stream, bit


@block
def _nic_probe(
    clk: Any, rst: Any, s_axil: Any, irq: Any, s_axis_rx: Any, m_axis_tx: Any, s_axis_values: Any,
    s_axis_side: Any, s_axis_read: Any, m_axis_values: Any, m_axis_descriptors: Any, s_axis_list: Any,
    probe: NicProbe, sizes: dict[str, int],
) -> Any:  # fmt: skip
    """See oscar_nic, whose keywords `sizes` are: they are no ports, nor would a probe among them be one."""
    return oscar_nic(
        clk, rst, s_axil, irq, s_axis_rx, m_axis_tx, s_axis_values, s_axis_side, s_axis_read, m_axis_values,
        m_axis_descriptors, s_axis_list, probe=probe, **sizes,
    )  # fmt: skip


def nic_probe(
    units: int = 1, bus_bits: int = 64, sets: int = 16, store_log2: int = 13, rows_log2: int = 12,
    block_log2: int = 12, granule_log2: int = 8, floats: bool = False,
) -> Any:  # fmt: skip
    """The top: see oscar_nic, and NicProbe."""
    return _nic_probe(
        bit(), bit(), AxiLite(8), bit(), frames_in(bus_bits), frames_out(bus_bits),
        *row_streams(units).values(), Stream(64), NicProbe(),
        {
            "units": units, "bus_bits": bus_bits, "sets": sets, "store_log2": store_log2,
            "rows_log2": rows_log2, "block_log2": block_log2, "granule_log2": granule_log2,
            "floats": floats,
        },
    )  # fmt: skip
