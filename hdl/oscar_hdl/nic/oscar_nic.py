"""The NIC: engines and frames (nic_core) with their rows in block RAM."""

from __future__ import annotations

from typing import Any

from myhdl import block

from oscar_hdl.coder.ports import PositionPort, SourcePort, SumPort
from oscar_hdl.nic.bank_ports import RowCommand
from oscar_hdl.nic.nic_core import nic_core
from oscar_hdl.nic.registers import ROW_BITS
from oscar_hdl.nic.row_memory import row_memory
from oscar_hdl.nic.row_port import row_port
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def oscar_nic(
    clk: Any, rst: Any, s_axil: Any, irq: Any, s_axis_rx: Any, m_axis_tx: Any, s_axis_values: Any,
    s_axis_side: Any, s_axis_read: Any, m_axis_values: Any, m_axis_descriptors: Any, *, engines: int = 2,
    bus_bits: int = 64, sets: int = 16, store_log2: int = 12, rows_log2: int = 10, block_log2: int = 12,
) -> Any:  # fmt: skip
    """Reduce gradients with other NICs as a driver asks (docs/registers.md).

    s_axil, irq, s_axis_rx, m_axis_tx: see nic_core. Values come and go in packets, whose first word has the
    first row in bits 0 to 31 and the number of values from bit 32 on (row_port).
    s_axis_values: Stream(64), behind that word four values a word, two's complement, the first lowest.
    s_axis_side: Stream(64), behind it what belongs to the values: for each row class, size << 4 and
    mean << 7, then 32 distances of four bits in two words. s_axis_read: Stream(64), packets of that word
    alone: m_axis_values, Stream(64), gives values, m_axis_descriptors, Stream(8), class and size << 4 of each
    row, both with tlast.

    rows_log2: memory has 2^rows_log2 rows of 32 values; frames begin at multiples of `engines` blocks, which
    have 2^block_log2 values. For the others see nic_core.
    """
    units = engines + 1
    memory_ports = {
        "phase": word(5),
        "positions": [PositionPort() for _ in range(units)],
        "sums": [SumPort() for _ in range(units)],
        "decode_rows": [word(ROW_BITS) for _ in range(units)],
        "adopt": [bit() for _ in range(units)],
        "sources": [SourcePort() for _ in range(units)],
        "encode_rows": [word(ROW_BITS) for _ in range(units)],
    }
    clear, cleared, clear_row, clear_rows = bit(), bit(), word(ROW_BITS), word(14)
    never, no_row, no_rows, values_cleared, read_cleared = bit(), word(ROW_BITS), word(14), bit(), bit()
    load_values, load_side, unload = (RowCommand(rows_log2) for _ in range(3))
    values, side, nothing = Stream(64), Stream(64), Stream(64)

    core = nic_core(
        clk, rst, s_axil, irq, s_axis_rx, m_axis_tx, **memory_ports, clear=clear, cleared=cleared,
        clear_row=clear_row, clear_rows=clear_rows, engines=engines, bus_bits=bus_bits, sets=sets,
        store_log2=store_log2, rows_log2=rows_log2,
    )  # fmt: skip
    memory = row_memory(
        clk, rst, **memory_ports, load_values=load_values, load_side=load_side, unload=unload,
        s_axis_values=values, s_axis_side=side, m_axis_values=m_axis_values,
        m_axis_descriptors=m_axis_descriptors, row_bits=rows_log2, block_log2=block_log2,
    )  # fmt: skip
    ports = [
        row_port(
            clk, rst, s_axis_values, values, never, no_row, no_rows, values_cleared, load_values
        ),
        row_port(clk, rst, s_axis_side, side, clear, clear_row, clear_rows, cleared, load_side),
        row_port(clk, rst, s_axis_read, nothing, never, no_row, no_rows, read_cleared, unload),
    ]  # fmt: skip
    return core, memory, ports
