"""A top that converts: an oscar_nic with strobes of what it does inside."""

from __future__ import annotations

from typing import Any

from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.nic.ports import STREAM_BITS, NicProbe, frames_in, frames_out
from oscar_hdl.streams.bundles import AxiLite, Stream, bit


def nic_probe(
    engines: int = 2, bus_bits: int = 64, sets: int = 16, store_log2: int = 13, rows_log2: int = 12,
    block_log2: int = 12,
) -> Any:  # fmt: skip
    """The top: see oscar_nic, and NicProbe."""
    return oscar_nic(
        bit(), bit(), AxiLite(8), bit(), frames_in(bus_bits), frames_out(bus_bits), Stream(STREAM_BITS),
        Stream(STREAM_BITS), Stream(64), Stream(STREAM_BITS), Stream(16), Stream(64), engines=engines,
        bus_bits=bus_bits, sets=sets, store_log2=store_log2, rows_log2=rows_log2, block_log2=block_log2,
        probe=NicProbe(),
    )  # fmt: skip
