"""Writes of encoders' tables from frequencies."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.ports import EncoderTables
from oscar_hdl.coder.tables.reciprocal import reciprocal
from oscar_hdl.streams.bundles import bit, word

RECIPROCALS = tuple(reciprocal(f) for f in range(1 << 10))


@block
def encoder_rows(
    clk: Any, clear: Any, live: Any, frequency: Any, cumulative: Any, bank: Any, tables: EncoderTables,
    written: Any,
) -> Any:  # fmt: skip
    """Write rows in order, from row 0 after `clear` on: f, c and the reciprocal of f.

    frequency and cumulative u10: of a symbol after the other, with `live`. written: strobe, with the last
    write. Writes come two clocks behind.
    """
    live1, live2, place = bit(), bit(), word(9)
    found, factor = word(16), word(16)
    f1, f2, c1, c2 = word(10), word(10), word(10), word(10)

    @always(clk.posedge)
    def look_up():
        found.next = RECIPROCALS[int(frequency)]

    @always(clk.posedge)
    def move():
        factor.next = found
        f1.next = frequency
        f2.next = f1
        c1.next = cumulative
        c2.next = c1
        live1.next = live
        live2.next = live1
        if live2:
            place.next = place + 1
        if clear:
            place.next = 0

    @always_comb
    def outputs():
        tables.enable.next = live2
        tables.address.next = concat(bank, place)
        tables.data.next = concat(factor, c2, f2)
        written.next = live2 and place == 511

    return look_up, move, outputs
