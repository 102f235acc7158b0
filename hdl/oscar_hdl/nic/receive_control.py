"""Runs a command to receive: match, tables, directory, blocks, learning."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.ports import FrameCommand, TablesPort
from oscar_hdl.streams.bundles import bit, word

NO_ERROR, PREFIX_WRONG, DIRECTORY_WRONG, BLOCK_WRONG, ABORTED = 0, 1, 2, 3, 16  # FrameCommand.error
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
    states = enum("IDLE", "QUERY", "SEEK", "EMPTY", "PREFIX", "LIST", "BUILD", "DEAL", "LEARN", "DONE")
    state = Signal(states.IDLE)
    wait, building, nothing = word(2), bit(), bit()

    @always_comb
    def share():
        command.idle.next = state == states.IDLE
        tables.bank.next = bank
        tables.count_bank.next = bank
        tables.load.next = command.load
        tables.save.next = command.save
        tables.fresh.next = command.fresh
        tables.query.next = command.load
        tables.query_fresh.next = command.fresh
        seek.next = state == states.SEEK and not command.abort

    @always(clk.posedge)
    def measure():
        thinning.next = 2
        if command.count <= 1 << 15:
            thinning.next = 0
        elif command.count <= 1 << 18:
            thinning.next = 1

    @always(clk.posedge)
    def judge():
        """The error of the command, which holds until the next."""
        nothing.next = command.count == 0
        if state == states.IDLE and command.start:
            command.error.next = NO_ERROR
        elif state == states.SEEK and command.abort and not matched:
            command.error.next = ABORTED
        elif state == states.EMPTY:
            command.error.next = NO_ERROR  # a frame that came just before an abort is taken
            if empty != nothing:
                command.error.next = PREFIX_WRONG
        elif state == states.PREFIX and prefix_done and not prefix_right:
            command.error.next = PREFIX_WRONG
        elif state == states.LIST and list_done and not list_right:
            command.error.next = DIRECTORY_WRONG
        elif state == states.DEAL and deal_done and deal_bad:
            command.error.next = BLOCK_WRONG
        if rst:
            command.error.next = NO_ERROR

    @always(clk.posedge)
    def run():
        less.next = state == states.LIST
        deal.next = state == states.DEAL
        prefix_go.next = False
        list_go.next = False
        deal_go.next = False
        tables.learn.next = False
        forget.next = False
        command.done.next = False
        wait.next = wait + 1
        building.next = (building or tables.build) and not tables.built
        if state == states.IDLE:
            wait.next = 0
            if command.start:
                state.next = states.QUERY
        elif state == states.QUERY:
            if wait == LOOK_UP:
                state.next = states.SEEK
        elif state == states.SEEK:
            if matched:
                state.next = states.EMPTY
            elif command.abort and match_idle:
                state.next = states.DONE
        elif state == states.EMPTY:
            prefix_go.next = not (empty or nothing)
            state.next = states.PREFIX
            if empty or nothing:
                forget.next = True
                state.next = states.DONE
        elif state == states.PREFIX:
            if prefix_done:
                list_go.next = prefix_right
                state.next = states.LIST
                if not prefix_right:
                    state.next = states.BUILD
        elif state == states.LIST:
            if list_done:
                state.next = states.BUILD
        elif state == states.BUILD:
            if not (building or tables.build):
                deal_go.next = command.error == NO_ERROR
                state.next = states.DEAL
                if command.error != NO_ERROR:
                    forget.next = True
                    state.next = states.DONE
        elif state == states.DEAL:
            if deal_done:
                forget.next = True
                tables.learn.next = not deal_bad
                state.next = states.LEARN
                if deal_bad:
                    state.next = states.DONE
        elif state == states.LEARN:
            if tables.learnt:
                state.next = states.DONE
        elif state == states.DONE:
            command.done.next = True
            bank.next = not bank
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            building.next = False
            bank.next = False

    return share, measure, judge, run
