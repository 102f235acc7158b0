"""Units of 16 bits from the store, in order, on demand."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word


class UnitPort:
    """Demand for units: `get` (strobe) with `amount`; `ready` when the last of them is in `units`."""

    def __init__(self) -> None:
        self.get, self.amount, self.ready = bit(), word(3), bit()
        self.units = word(64)  # the last four, the newest at the top


@block
def unit_reader(
    clk: Any, rst: Any, open_at: Any, first: Any, land: Any, rd_data: Any, avail: Any, port: UnitPort
) -> Any:
    """Give the units of the words that land, from number `first` of the first word.

    open_at (strobe): forget all, a span begins. land: a word is in rd_data; only while `avail`.
    """
    bits = len(rd_data)
    words, held, index, left = word(bits), bit(), word(len(first)), word(3)
    unit, shift = word(16), bit()
    LAST = (1 << len(first)) - 1

    @always_comb
    def choose():
        moved = modbv(0)[bits:]
        moved[:] = words >> concat(index, modbv(0)[4:])
        unit.next = moved[16:]

    @always_comb
    def flow():
        avail.next = not held
        shift.next = held and left != 0
        port.ready.next = left == 0

    @always(clk.posedge)
    def run():
        if not held:
            words.next = rd_data
        if shift:
            port.units.next = concat(unit, port.units[64:16])
            index.next = index + 1
            left.next = left - 1
            if index == LAST:
                held.next = False
        if land:
            held.next = True
        if port.get:
            left.next = port.amount
        if open_at:
            held.next = False
            index.next = first
        if rst:
            held.next = False
            left.next = 0

    return choose, flow, run
