"""The second and third stage of a command to receive: blocks are dealt, then learnt from."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.learn_turn import learn_turn
from oscar_hdl.nic.ports import FrameCommand, TablesPort
from oscar_hdl.nic.receive_front import BLOCK_WRONG, FrontFrame
from oscar_hdl.streams.bundles import bit, word


@block
def receive_blocks(
    clk: Any, rst: Any, command: FrameCommand, tables: TablesPort, row: Any, frame: FrontFrame,
    deal_go: Any, deal_done: Any, deal_bad: Any, holds: Any, forget: Any, bank: Any, thinning: Any,
    count: Any, first_row: Any,
) -> Any:  # fmt: skip
    """Take frames from the first stage when the counts of their bank are drained.

    deal_go (strobe) .. deal_done (strobe, with deal_bad): block_dealer, of the frame with bank, thinning u2,
    count u19, first_row. holds (level): the frame is needed in the store. forget: frame_match.
    """
    states = enum("IDLE", "TAKE", "DEAL", "DONE")
    state = Signal(states.IDLE)
    ask, owed, blocked, may, built, failed, error = bit(), bit(), bit(), bit(), bit(), bit(), word(5)

    turn = learn_turn(clk, rst, tables, ask, bank, failed, owed, frame.bank, blocked)

    @always_comb
    def look():
        frame.taken.next = state == states.TAKE
        holds.next = state == states.TAKE or state == states.DEAL
        forget.next = state == states.TAKE and frame.matched
        may.next = frame.ready and not blocked and not owed
        ask.next = state == states.DONE and built

    @always(clk.posedge)
    def note():
        if state == states.TAKE:
            bank.next = frame.bank
            thinning.next = frame.thinning
            count.next = command.count
            first_row.next = row
            built.next = frame.built
            error.next = frame.error
            failed.next = frame.failed
        elif deal_done and deal_bad:
            error.next = BLOCK_WRONG
            failed.next = True

    @always(clk.posedge)
    def run():
        deal_go.next = False
        command.done.next = state == states.DONE
        command.error.next = error
        if state == states.IDLE:
            if may:
                state.next = states.TAKE
        elif state == states.TAKE:
            deal_go.next = not frame.failed
            state.next = states.DEAL
            if frame.failed:
                state.next = states.DONE
        elif state == states.DEAL:
            if deal_done:
                state.next = states.DONE
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            deal_go.next = False
            command.done.next = False

    return turn, look, note, run
