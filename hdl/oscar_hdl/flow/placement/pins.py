"""The NIC behind four pins, so that a part is filled and nothing else measured.

Inputs come from one shift register that passes all units; outputs are registered and folded into one bit over
several clocks. So every signal is alive, and no wire is longer than from unit to unit.
"""

from __future__ import annotations

from typing import Any

from myhdl import always, block, modbv

from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.nic.ports import frames_in, frames_out, row_streams
from oscar_hdl.streams.bundles import AxiLite, Stream, bit, word


@block
def fold_word(clk: Any, value: Any, before: Any, after: Any) -> Any:
    """Give the parity of a word and `before`, two clocks later."""
    BITS = len(value)
    odd = bit()

    @always(clk.posedge)
    def fold():
        parity = modbv(0)[1:]
        for i in range(BITS):
            parity[0] = parity[0] ^ value[i]
        odd.next = parity[0]
        after.next = odd ^ before

    return fold


@block
def fold_bit(clk: Any, value: Any, before: Any, after: Any) -> Any:
    """Give `value` xor `before`, two clocks later."""
    kept = bit()

    @always(clk.posedge)
    def fold():
        kept.next = value
        after.next = kept ^ before

    return fold


@block
def whole_behind_pins(
    clk: Any, rst: Any, si: Any, so: Any, *, units: int, bus_bits: int = 64, **parameters: Any
) -> Any:
    """oscar_nic of so many units; `parameters` are its own. si, so: bits without meaning."""
    axil, irq = AxiLite(8), bit()
    rx, tx = frames_in(bus_bits), frames_out(bus_bits)
    values, side, read, out, kinds = row_streams(units).values()
    lists = Stream(64)
    kept = word(bus_bits)

    inputs = [
        (axil, name)
        for name in ["awaddr", "awvalid", "wdata", "wstrb", "wvalid", "bready", "araddr", "arvalid", "rready"]
    ]
    inputs += [(rx, name) for name in ("tdata", "tvalid", "tlast", "tkeep", "tid")]
    inputs += [(each, name) for each in (values, side, read, lists) for name in ("tdata", "tvalid", "tlast")]
    inputs += [(each, "tready") for each in (tx, out, kinds)]
    outputs = [axil.awready, axil.wready, axil.bresp, axil.bvalid, axil.arready, axil.rdata, axil.rresp]
    outputs += [axil.rvalid, rx.tready, kept, tx.tvalid, tx.tlast, tx.tkeep, tx.tdest, irq, values.tready]
    outputs += [
        side.tready,
        read.tready,
        lists.tready,
        kinds.tdata,
        kinds.tvalid,
        kinds.tlast,
        out.tvalid,
        out.tlast,
    ]
    outputs += [out.tdata(low + 32, low) for low in range(0, len(out.tdata), 32)]

    chain = word(sum(len(getattr(bundle, name)) for bundle, name in inputs))
    low = 0
    for bundle, name in inputs:
        bits = len(getattr(bundle, name))
        setattr(bundle, name, chain(low) if bits == 1 else chain(low + bits, low))
        low += bits
    folds = [bit() for _ in range(len(outputs) + 1)]
    first, last = folds[0], folds[-1]
    parts = [
        (fold_bit if len(signal) == 1 else fold_word)(clk, signal, folds[i], folds[i + 1])
        for i, signal in enumerate(outputs)
    ]
    nic = oscar_nic(
        clk, rst, axil, irq, rx, tx, values, side, read, out, kinds, lists, units=units,
        bus_bits=bus_bits, **parameters,
    )  # fmt: skip

    @always(clk.posedge)
    def shift():
        chain.next = (chain << 1) | si
        kept.next = tx.tdata
        first.next = False
        so.next = last

    return nic, parts, shift


def nic_array(
    units: int = 1,
    bus_bits: int = 0,
    sets: int = 16,
    store_log2: int = 10,
    rows_log2: int = 10,
    floats: int = 0,
) -> Any:
    """Return a NIC of so many units behind pins, with blocks of 2,048 values; bus_bits 0: 64 for a unit."""
    return whole_behind_pins(
        bit(), bit(), bit(), bit(), units=units, bus_bits=bus_bits or 64 * units, sets=sets,
        store_log2=store_log2, rows_log2=rows_log2, block_log2=11, floats=bool(floats),
    )  # fmt: skip
