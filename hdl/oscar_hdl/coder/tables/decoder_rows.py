"""Writes of decoders' tables from cumulative frequencies."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.ports import DecoderTables
from oscar_hdl.streams.bundles import bit, word


@block
def decoder_rows(
    clk: Any, clear: Any, phase: Any, live: Any, cumulative: Any, bank: Any, tables: DecoderTables,
    written: Any,
) -> Any:  # fmt: skip
    """Write rows in order, from row 0 after `clear` on: two levels (docs/engine.md, "Tables").

    cumulative u10: c of a symbol in phase 2 + symbol, with `live`. written: strobe, with the last write.
    """
    place, fourth, eighth = word(7), word(10), word(10)
    word0, word1, word2 = word(10), word(10), word(10)
    level1, level2 = bit(), bit()

    # c[s] is here in phase 2 + s and in word2 a clock later; three of them are complete in 6, 10, 14, 2.
    # c[12] comes in 14: with the two kept it takes the place of c[11] and c[10], which are written then.
    @always(clk.posedge)
    def gather():
        word2.next = cumulative
        word1.next = word2
        word0.next = word1
        if phase[2:] == 2:
            eighth.next = cumulative
            fourth.next = eighth
        if phase == 14:
            word1.next = eighth
            word0.next = fourth

    @always(clk.posedge)
    def write():
        level2.next = live and phase[2:] == 1
        level1.next = live and phase == 14
        if level2:
            place.next = place + 1
        if clear:
            place.next = 0

    @always_comb
    def outputs():
        tables.level1.next = level1
        tables.level2.next = level2
        tables.data.next = concat(word2, word1, word0)
        tables.address.next = concat(bank, place)
        if level1:
            tables.address.next = concat(bank, place[7:2])
        written.next = level2 and place == 127

    return gather, write, outputs
