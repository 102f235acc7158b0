"""nic_core with its reset held and its lists of ports as wide ones, unit 0 lowest: a top that converts."""

from __future__ import annotations

from typing import Any

from myhdl import ConcatSignal, always_comb, block

from oscar_hdl.coder.ports import ROW_BITS, PositionPort, SourcePort, SumPort
from oscar_hdl.nic.control.registers import ROW_BITS as MEMORY_BITS
from oscar_hdl.nic.nic_core import nic_core
from oscar_hdl.nic.ports import STREAM_BITS, TopPort, frames_in, frames_out
from oscar_hdl.streams.bundles import AxiLite, Stream, bit, word
from oscar_hdl.streams.reset_hold import reset_hold
from oscar_hdl.streams.zero import zero

# Ports of units: name, bits, whether the NIC takes them, and where they are.
WIDE = (
    ("position_ok", 1, True), ("position_data", 4, True), ("position_mean", 4, True),
    ("position_take", 1, False), ("position_header", 1, False), ("position_row", ROW_BITS, False),
    ("sum_local", 16, True), ("sum_take", 1, False), ("sum_row", ROW_BITS, False), ("sum_valid", 1, False),
    ("sum_total", 16, False), ("sum_described", 1, False), ("sum_described_row", ROW_BITS, False),
    ("sum_row_class", 4, False), ("sum_row_size", 3, False), ("sum_row_top", 4, False),
    ("source_ok", 1, True), ("source_data", 19, True), ("source_mean", 4, True),
    ("source_take", 1, False), ("source_header", 1, False), ("source_row", ROW_BITS, False),
)  # fmt: skip


@block
def _spread(wide: Any, parts: Any, bits: int) -> Any:
    """Give every part its bits of a wide signal."""
    cut = [wide(i) if bits == 1 else wide((i + 1) * bits, i * bits) for i in range(len(parts))]
    return [_wire(piece, part) for piece, part in zip(cut, parts, strict=True)]


@block
def _wire(given: Any, to: Any) -> Any:
    @always_comb
    def give() -> None:
        to.next = given

    return give


@block
def _nic_flat(
    clk: Any, rst: Any, s_axil: Any, irq: Any, s_axis_rx: Any, m_axis_tx: Any, phase: Any, position_ok: Any,
    position_data: Any, position_mean: Any, position_take: Any, position_header: Any, position_row: Any,
    sum_local: Any, sum_take: Any, sum_row: Any, sum_valid: Any, sum_total: Any, sum_described: Any,
    sum_described_row: Any, sum_row_class: Any, sum_row_size: Any, sum_row_top: Any, source_ok: Any,
    source_data: Any, source_mean: Any, source_take: Any, source_header: Any, source_row: Any,
    decode_rows: Any, encode_rows: Any, adopt: Any, clear: Any, cleared: Any, clear_row: Any,
    clear_rows: Any, top: Any, *, engines: int, bus_bits: int, sets: int, store_log2: int, rows_log2: int,
) -> Any:  # fmt: skip
    """See nic_core; ports of a unit have its place in wide ones."""
    units = engines + 1
    given = dict(locals())
    ports: dict[str, list[Any]] = {
        "position": [PositionPort() for _ in range(units)],
        "sum": [SumPort() for _ in range(units)],
        "source": [SourcePort() for _ in range(units)],
    }
    decode, encode = ([word(MEMORY_BITS) for _ in range(units)] for _ in range(2))
    adopts, held, bad_packets = [bit() for _ in range(units)], bit(), word(3)
    totals, lists = Stream(STREAM_BITS, keep=STREAM_BITS // 8), Stream(64)
    parts: list[Any] = [
        reset_hold(clk, rst, held),
        nic_core(
            clk, held, s_axil, irq, s_axis_rx, m_axis_tx, phase, ports["position"], ports["sum"], decode,
            adopts, ports["source"], encode, clear, cleared, clear_row, clear_rows, top, bad_packets, totals,
            lists, engines=engines, bus_bits=bus_bits, sets=sets, store_log2=store_log2, rows_log2=rows_log2,
        ),
        zero(clk, bad_packets),
        *[zero(clk, signal) for signal in (totals.tdata, totals.tvalid, totals.tlast, totals.tkeep)],
        *[zero(clk, signal) for signal in (lists.tdata, lists.tvalid, lists.tlast)],
    ]  # fmt: skip
    for name, bits, comes in WIDE:
        kind, _, part = name.partition("_")
        signals = [getattr(port, part) for port in ports[kind]]
        if comes:
            parts.append(_spread(given[name], signals, bits))
        else:
            parts.append(_wire(ConcatSignal(*reversed(signals)), given[name]))
    for signals, wide in ((decode, decode_rows), (encode, encode_rows), (adopts, adopt)):
        parts.append(_wire(ConcatSignal(*reversed(signals)), wide))
    return parts


def nic_flat(
    engines: int = 4, bus_bits: int = 64, sets: int = 16, store_log2: int = 13, rows_log2: int = 14
) -> Any:
    """The top: a NIC of so many engines."""
    units = engines + 1
    wide = {name: word(bits * units) for name, bits, _ in WIDE}
    return _nic_flat(
        bit(), bit(), AxiLite(8), bit(), frames_in(bus_bits), frames_out(bus_bits), word(5), **wide,
        decode_rows=word(MEMORY_BITS * units), encode_rows=word(MEMORY_BITS * units), adopt=word(units),
        clear=bit(), cleared=bit(), clear_row=word(MEMORY_BITS), clear_rows=word(14), top=TopPort(),
        engines=engines, bus_bits=bus_bits, sets=sets, store_log2=store_log2, rows_log2=rows_log2,
    )  # fmt: skip
