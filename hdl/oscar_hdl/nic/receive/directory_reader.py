"""Reads the directory of a payload and judges all of it before a block is dealt."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar.coding.asc.params import CONSTANT
from oscar_hdl.nic.receive.block_counter import Blocks
from oscar_hdl.nic.receive.chunk_reader import UnitPort
from oscar_hdl.nic.receive.entry_check import entry_check
from oscar_hdl.nic.receive.frame_places import Places
from oscar_hdl.streams.bundles import bit


@block
def directory_reader(
    clk: Any, rst: Any, go: Any, width: Any, units: UnitPort, blocks: Blocks, places: Places, keep: Any,
    entry: Any, done: Any, right: Any,
) -> Any:  # fmt: skip
    """Read the entries of a frame's blocks, each once: the next one while one is judged, in 8 clocks.

    go (strobe): the next unit is the first entry's, places.end is the frame's end; width u5, of its values,
    holds until done. units, blocks, places: see there; bytes of blocks are taken off places.end. keep
    (strobe) with entry u48: a right one. done (strobe) with right: whether all of them are, and their bytes
    are those behind the directory.
    """
    states = enum("IDLE", "READ", "CHECK", "SUM", "COMPARE", "TELL")
    state = Signal(states.IDLE)
    check, checked, fine, got, last = (bit() for _ in range(5))

    checker = entry_check(clk, rst, check, entry, width, blocks.values, blocks.top, checked, fine)

    @always_comb
    def give():
        got.next = units.ready and not units.get
        units.amount.next = 3

    @always(clk.posedge)
    def run():
        units.get.next = False
        blocks.first.next = False
        blocks.forward.next = False
        check.next = False
        keep.next = False
        places.add.next = False
        done.next = False
        if state == states.IDLE:
            if go:
                blocks.first.next = True
                units.get.next = True
                state.next = states.READ
        elif state == states.READ:
            if got:
                check.next = True
                entry.next = units.units[64:16]
                last.next = blocks.final
                blocks.forward.next = not blocks.final
                units.get.next = not blocks.final
                state.next = states.CHECK
        elif state == states.CHECK:
            if checked:
                right.next = fine
                keep.next = fine
                places.add.next = entry[2:] != CONSTANT
                if not fine:
                    state.next = states.TELL
                elif last:
                    state.next = states.SUM
                else:
                    state.next = states.READ
        elif state == states.SUM:  # the last bytes come off
            state.next = states.COMPARE
        elif state == states.COMPARE:
            state.next = states.TELL
        elif state == states.TELL and got:  # nothing is asked of the reader any more
            done.next = True
            right.next = right and places.same
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            units.get.next = False
            check.next = False
            keep.next = False
            done.next = False

    return checker, give, run
