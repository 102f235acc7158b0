"""The first stage of a command to send: blocks are planned, tables are built, and dealing begins."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.nic.ports import FrameCommand, TopPort
from oscar_hdl.nic.send.frame_plan import frame_plan
from oscar_hdl.nic.send.ports import PlannedFrame
from oscar_hdl.streams.bundles import bit


@block
def send_front(
    clk: Any, rst: Any, command: FrameCommand, top: TopPort, tables: TablesPort, blocked: Any, dealing: Any,
    begun: Any, frame: PlannedFrame,
) -> Any:  # fmt: skip
    """Take a command; frame and the command's fields hold until it is taken. Banks are used in turn.

    top: asked for the last symbol of a frame with values. begun (strobe): its blocks may be dealt, if it has
    any: counts of its bank are drained (not blocked), and no other frame is dealt (dealing). From then on it
    may be taken.
    """
    states = enum("IDLE", "START", "PLAN", "BUILD", "WAIT", "BEGIN", "HAND")
    state = Signal(states.IDLE)
    planning, planned, found, known, may = bit(), bit(), bit(), bit(), bit()

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
        tables.last.next = top.symbol
        tables.mask.next = 0
        tables.bank.next = frame.bank
        command.idle.next = state == states.IDLE
        known.next = planned and found and tables.steady
        begun.next = state == states.BEGIN

    @always(clk.posedge)
    def strobe():
        planning.next = state == states.IDLE and command.start
        top.ask.next = state == states.START and command.count != 0
        if state == states.START:
            found.next = command.count == 0
        elif top.known:
            found.next = True
        tables.build.next = state == states.PLAN and known and not frame.empty
        may.next = not blocked and not dealing
        frame.ready.next = state == states.HAND and not frame.taken
        if state == states.PLAN:
            frame.empty.next = command.count == 0
            frame.checksum.next = tables.checksum
        if frame.taken:
            frame.bank.next = not frame.bank
        if rst:
            planning.next = False
            top.ask.next = False
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
            if known:
                state.next = states.BUILD
                if frame.empty:
                    state.next = states.WAIT
        elif state == states.BUILD:
            if tables.built:
                state.next = states.WAIT
        elif state == states.WAIT:
            if may:
                state.next = states.BEGIN
        elif state == states.BEGIN:
            state.next = states.HAND
        elif frame.taken:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return plan, tell, strobe, sequence
