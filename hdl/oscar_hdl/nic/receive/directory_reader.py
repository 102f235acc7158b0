"""Reads the directory of a payload and judges all of it before a block is dealt."""

from myhdl import Signal, always, block, concat, enum

from oscar.coding.asc.params import CONSTANT
from oscar_hdl.nic.receive.block_counter import Blocks
from oscar_hdl.nic.receive.chunk_reader import UnitPort
from oscar_hdl.nic.receive.entry_check import CLOCKS, entry_check
from oscar_hdl.nic.receive.frame_places import Places
from oscar_hdl.streams.bundles import bit, word

COPY = 3  # clocks from an entry's check until it is kept beside the next one: that comes a clock later


@block
def directory_reader(
    clk, rst, go, width, units: UnitPort, blocks: Blocks, places: Places, keep, entry, done, right
):
    """Read the entries of a frame's blocks, each once, while those before are judged: one in 4 clocks.

    go (strobe): the next unit is the first entry's, places.end is the frame's end; width u5, of its values,
    holds until done. units, blocks, places: see there; bytes of blocks are taken off places.end. keep
    (strobe) with entry u48: a right one. done (strobe) with right: whether all of them are, and their bytes
    are those behind the directory.
    """
    states = enum("IDLE", "READ", "SUM", "COMPARE", "TELL")
    state = Signal(states.IDLE)
    check, checked, fine, got, last = (bit() for _ in range(5))
    fresh, checks, ends = word(48), word(COPY), word(CLOCKS)  # the entry that came; its checks, a clock each

    checker = entry_check(clk, rst, check, fresh, width, blocks.values, blocks.top, checked, fine)

    @always(clk.posedge)
    def read():
        """Ask for an entry as the one before is complete; what is known of its block comes with it."""
        units.amount.next = 3
        units.get.next = False
        blocks.first.next = False
        blocks.forward.next = False
        got.next = False
        check.next = got
        if got:
            fresh.next = units.units[64:16]
        if state == states.IDLE and go:
            blocks.first.next = True
            units.get.next = True
        elif state == states.READ and units.soon:
            got.next = True
            last.next = blocks.final
            blocks.forward.next = not blocks.final
            units.get.next = not blocks.final
        if rst:
            units.get.next = False
            got.next = False
            check.next = False

    @always(clk.posedge)
    def run():
        # An entry is judged while the next one comes; so it is kept until it is known to be right.
        checks.next = concat(checks[COPY - 1 :], check)
        ends.next[CLOCKS:1] = ends[CLOCKS - 1 :]
        ends.next[0] = check and last
        if checks[COPY - 1]:
            entry.next = fresh
        keep.next = False
        places.add.next = False
        done.next = False
        if state == states.IDLE:
            if go:
                state.next = states.READ
        elif state == states.READ:
            if checked:
                right.next = fine
                keep.next = fine
                places.add.next = entry[2:] != CONSTANT
                if not fine:
                    state.next = states.TELL
                elif ends[CLOCKS - 1]:
                    state.next = states.SUM
        elif state == states.SUM:  # the last bytes come off
            state.next = states.COMPARE
        elif state == states.COMPARE:
            state.next = states.TELL
        elif state == states.TELL and units.ready and not units.get:  # nothing is asked of the reader
            done.next = True
            right.next = right and places.same
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            keep.next = False
            done.next = False

    return checker, read, run
