"""Entries of rows that a frame brings, or of the initial state."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.streams.bundles import word

ENTRY = tuple(1 << level >> 1 for level in range(16))  # what a level stands for


@block
def sent_entries(
    clk: Any, phase: Any, sent: Any, sent_late: Any, levels: Any, fresh: Any, prior: Any,
    possible: Any, entry: Any,
) -> Any:  # fmt: skip
    """Give entry u15 of the symbol that was `phase` two clocks before: sent, initial, or 0.

    levels u64 hold for the 16 clocks in which `sent` is high; sent_late is the same a clock later, with which
    prior u6 and `possible` come.
    """
    level = word(4)

    @always(clk.posedge)
    def look_up():
        at = modbv(0)[6:]
        at[:] = concat(phase, modbv(0)[2:])
        level.next[0] = levels[at]
        at[:] = concat(phase, modbv(1)[2:])
        level.next[1] = levels[at]
        at[:] = concat(phase, modbv(2)[2:])
        level.next[2] = levels[at]
        at[:] = concat(phase, modbv(3)[2:])
        level.next[3] = levels[at]
        sent_late.next = sent

    @always(clk.posedge)
    def choose():
        shown = modbv(0)[15:]
        shown[:] = ENTRY[int(level)]
        entry.next = 0
        if possible:
            if sent_late:
                entry.next = shown
            elif fresh:
                entry.next = prior

    return look_up, choose
