"""Runs a command to receive: match, tables, directory, blocks, learning."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.ports import FrameCommand, TablesPort
from oscar_hdl.streams.bundles import bit, word

NO_ERROR, PREFIX_WRONG, DIRECTORY_WRONG, BLOCK_WRONG, ABORTED = 0, 1, 2, 3, 16  # FrameCommand.error
NOWHERE = 255  # TablesPort.save: counts are drained and dropped, as of a frame with a bad block
LOOK_UP = 3  # clocks until the checksum of a set is there


@block
def receive_control(
    clk: Any, rst: Any, command: FrameCommand, tables: TablesPort, seek: Any, matched: Any, match_idle: Any,
    empty: Any, prefix_go: Any, prefix_done: Any, prefix_right: Any, list_go: Any, list_done: Any,
    list_right: Any, deal_go: Any, deal_done: Any, deal_bad: Any, forget: Any, less: Any, deal: Any,
    bank: Any, thinning: Any,
) -> Any:  # fmt: skip
    """Take a command through its steps, each begun with a strobe `.._go` and ended with `.._done`.

    seek (level), matched, match_idle, forget: frame_match; empty: the matched frame has no payload. less,
    deal (levels): for frame_places. bank: of tables and counts,
    another for each command; thinning u2: of the command's count.
    """
    states = enum(
        "IDLE", "QUERY", "SEEK", "EMPTY", "PREFIX", "LIST", "BUILD", "DEAL", "LEARN", "FORGET", "DONE"
    )  # fmt: skip
    state = Signal(states.IDLE)
    wait, step, building, nothing, absent = word(2), bit(), bit(), bit(), bit()
    begun, given_up, failed = bit(), bit(), bit()

    @always_comb
    def share():
        command.idle.next = state == states.IDLE
        tables.bank.next = bank
        tables.count_bank.next = bank
        tables.load.next = command.load
        tables.save.next = command.save
        if failed:
            tables.save.next = NOWHERE
        tables.fresh.next = command.fresh
        tables.query.next = command.load
        tables.query_fresh.next = command.fresh
        seek.next = state == states.SEEK and not command.abort

    @always(clk.posedge)
    def measure():
        """What the states decide by, a clock before; all strobes below come in one state only."""
        thinning.next = 2
        if command.count <= 32768:
            thinning.next = 0
        elif command.count <= 262144:
            thinning.next = 1
        nothing.next = command.count == 0
        absent.next = empty or nothing
        step.next = matched or prefix_done or list_done or deal_done or tables.learnt
        building.next = (building or tables.build) and not tables.built
        given_up.next = state == states.SEEK and command.abort and match_idle and not step
        less.next = state == states.LIST
        deal.next = state == states.DEAL
        if rst:
            step.next = False
            building.next = False
            given_up.next = False

    @always(clk.posedge)
    def judge():
        """The error of the command, which holds until the next."""
        if begun:
            command.error.next = NO_ERROR
            failed.next = False
        if prefix_done and not prefix_right:
            command.error.next = PREFIX_WRONG
            failed.next = True
        if list_done and not list_right:
            command.error.next = DIRECTORY_WRONG
            failed.next = True
        if deal_done and deal_bad:
            command.error.next = BLOCK_WRONG
            failed.next = True
        if matched and empty != nothing:
            command.error.next = PREFIX_WRONG
        if given_up:
            command.error.next = ABORTED

    @always(clk.posedge)
    def run():
        begun.next = False
        prefix_go.next = False
        list_go.next = False
        deal_go.next = False
        tables.learn.next = False
        forget.next = False
        if state == states.IDLE:
            if command.start:
                begun.next = True
                state.next = states.QUERY
        elif state == states.QUERY:
            if wait == LOOK_UP:
                state.next = states.SEEK
        elif state == states.SEEK:
            if step:
                state.next = states.EMPTY
            elif given_up:
                state.next = states.DONE
        elif state == states.EMPTY:
            prefix_go.next = not absent
            state.next = states.PREFIX
            if absent:
                state.next = states.FORGET
        elif state == states.PREFIX:
            if step:
                list_go.next = not failed
                state.next = states.LIST
                if failed:
                    state.next = states.BUILD
        elif state == states.LIST:
            if step:
                state.next = states.BUILD
        elif state == states.BUILD:
            if not building:
                deal_go.next = not failed
                state.next = states.DEAL
                if failed:
                    state.next = states.FORGET
        elif state == states.DEAL:
            if step:
                tables.learn.next = True
                state.next = states.LEARN
        elif state == states.LEARN:
            if step:
                state.next = states.FORGET
        elif state == states.FORGET:
            forget.next = True
            state.next = states.DONE
        elif state == states.DONE:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            prefix_go.next = False
            list_go.next = False
            deal_go.next = False
            tables.learn.next = False
            forget.next = False

    @always(clk.posedge)
    def end():
        wait.next = 0
        if state == states.QUERY:
            wait.next = wait + 1
        command.done.next = state == states.DONE
        if state == states.DONE:
            bank.next = not bank
        if rst:
            command.done.next = False
            bank.next = False

    return share, measure, judge, run, end
