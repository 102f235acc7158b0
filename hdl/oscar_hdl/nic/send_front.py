"""The first stage of a command to send: blocks are planned, tables are built."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.frame_plan import frame_plan
from oscar_hdl.nic.ports import FrameCommand, TablesPort
from oscar_hdl.streams.bundles import bit, word


class PlannedFrame:
    """A frame that leaves the first stage: `ready` (level) until `taken` (strobe)."""

    def __init__(self) -> None:
        self.ready, self.taken, self.bank, self.empty = bit(), bit(), bit(), bit()
        self.last_block, self.size, self.last_size, self.thinning = word(8), word(18), word(18), word(2)
        self.checksum = word(16)


@block
def send_front(clk: Any, rst: Any, command: FrameCommand, tables: TablesPort, frame: PlannedFrame) -> Any:
    """Take a command; frame and the command's fields hold until it is taken. Banks are used in turn."""
    states = enum("IDLE", "START", "PLAN", "BUILD", "HAND")
    state = Signal(states.IDLE)
    planning, planned = bit(), bit()

    plan = frame_plan(
        clk, rst, planning, command.count, command.block_log2, planned, frame.last_block, frame.size,
        frame.last_size, frame.thinning,
    )  # fmt: skip

    @always_comb
    def tell():
        tables.load.next = command.load
        tables.save.next = command.save
        tables.fresh.next = command.fresh
        tables.query.next = command.load
        tables.query_fresh.next = command.fresh
        tables.last.next = command.last
        tables.mask.next = 0
        tables.bank.next = frame.bank
        command.idle.next = state == states.IDLE

    @always(clk.posedge)
    def strobe():
        planning.next = state == states.IDLE and command.start
        tables.build.next = state == states.PLAN and planned and tables.steady and not frame.empty
        frame.ready.next = state == states.HAND and not frame.taken
        if state == states.PLAN:
            frame.empty.next = command.count == 0
            frame.checksum.next = tables.checksum
        if frame.taken:
            frame.bank.next = not frame.bank
        if rst:
            planning.next = False
            tables.build.next = False
            frame.ready.next = False
            frame.bank.next = False

    @always(clk.posedge)
    def sequence():
        if state == states.IDLE:
            if command.start:
                state.next = states.START
        elif state == states.START:
            state.next = states.PLAN
        elif state == states.PLAN:
            if planned and tables.steady:
                state.next = states.BUILD
                if frame.empty:
                    state.next = states.HAND
        elif state == states.BUILD:
            if tables.built:
                state.next = states.HAND
        elif frame.taken:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return plan, tell, strobe, sequence
