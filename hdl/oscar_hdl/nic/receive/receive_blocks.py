"""The second and third stage of a command to receive: blocks are dealt, then learnt from."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.coder.tables.learn_turn import learn_turn
from oscar_hdl.nic.ports import COUNT_BITS, FrameCommand
from oscar_hdl.nic.receive.receive_front import BLOCK_WRONG, FrontFrame
from oscar_hdl.streams.bundles import bit, word


@block
def receive_blocks(
    clk: Any, rst: Any, command: FrameCommand, tables: TablesPort, row: Any, frame: FrontFrame,
    deal_go: Any, deal_done: Any, stop: Any, quiet: Any, wrong: Any, held: Any, crowded: Any, forget: Any,
    bank: Any, thinning: Any, count: Any, first_row: Any, clear: Any, cleared: Any, clear_rows: Any,
) -> Any:  # fmt: skip
    """Take frames from the first stage when the counts of their bank are drained, and end them in order.

    deal_go (strobe) .. deal_done (strobe): block_dealer deals the frame with bank, thinning u2, count u19,
    first_row, unless stop (level). The frame before may have blocks under way: quiet u2 (level, of each bank)
    says that there are none, wrong u2 (strobes) that one was bad. held u2: frames of which banks are needed
    in the store. crowded (level): no frame may enter the first stage. forget: frame_match.

    Rows of a frame to adopt are cleared when it is known to be right, and the frame before it is done or has
    other rows: clear (strobe), clear_rows u14 from `row` on, which hold until cleared (strobe). Then it is
    taken.
    """
    states = enum("IDLE", "TAKE", "DEAL", "NEXT")
    state = Signal(states.IDLE)
    may, ask, owed, blocked, asked, clean = (bit() for _ in range(6))
    dealt, built, failed, error_0, error_1 = word(2), word(2), word(2), word(5), word(5)
    oldest, ready, ending, learn_bank, learn_failed = bit(), bit(), bit(), bit(), bit()
    # Rows behind the frame that is in the first stage, and behind the one that was taken last.
    row_end, last_end, apart = word(len(row) + 1), word(len(row) + 1), bit()

    turn = learn_turn(clk, rst, tables, ask, learn_bank, learn_failed, owed, frame.bank, blocked)

    @always_comb
    def look():
        frame.taken.next = state == states.TAKE
        forget.next = state == states.TAKE and frame.matched
        stop.next = (failed[1] and bank) or (failed[0] and not bank)
        ready.next = not owed and (
            (dealt[1] and quiet[1] and oldest) or (dealt[0] and quiet[0] and not oldest)
        )
        ask.next = ending and ((built[1] and oldest) or (built[0] and not oldest))
        # What is learnt of a bank is asked for before its next build.
        crowded.next = held == 3 or owed

    @always(clk.posedge)
    def note():
        """What is known of the frame of each bank."""
        if wrong[0]:
            error_0.next = BLOCK_WRONG
        if wrong[1]:
            error_1.next = BLOCK_WRONG
        if state == states.TAKE:
            bank.next = frame.bank
            thinning.next = frame.thinning
            count.next = command.count
            first_row.next = row
            if frame.bank:
                error_1.next = frame.error
            else:
                error_0.next = frame.error
        for b in range(2):
            if wrong[b]:
                failed.next[b] = True
            if state == states.TAKE and frame.bank == b:
                held.next[b] = True
                dealt.next[b] = frame.failed
                built.next[b] = frame.built
                failed.next[b] = frame.failed
            elif deal_done and bank == b:
                dealt.next[b] = True
            elif ending and oldest == b:
                held.next[b] = False
                dealt.next[b] = False
        if rst:
            held.next = 0
            dealt.next = 0

    @always(clk.posedge)
    def end():
        ending.next = ready and not ending
        command.done.next = ending
        command.error.next = error_0
        if oldest:
            command.error.next = error_1
        if ending:
            oldest.next = not oldest
            learn_bank.next = oldest
            learn_failed.next = (failed[1] and oldest) or (failed[0] and not oldest)
        if rst:
            ending.next = False
            command.done.next = False
            oldest.next = False

    @always(clk.posedge)
    def prepare():
        """While a frame is in the first stage, there is at most one that was taken."""
        row_end.next = row + clear_rows
        apart.next = row >= last_end or first_row >= row_end or held == 0
        clear_rows.next = command.count[COUNT_BITS:5]
        if command.count[5:] != 0:
            clear_rows.next = command.count[COUNT_BITS:5] + 1
        clear.next = False
        if frame.right and command.adopt and apart and not asked:
            clear.next = True
        asked.next = frame.right and command.adopt and (apart or asked)
        if cleared:
            clean.next = True
        if state == states.TAKE:
            clean.next = False
            last_end.next = row_end
        if rst:
            clear.next = False
            clean.next = False

    @always(clk.posedge)
    def run():
        may.next = frame.ready and not blocked and not owed and (clean or frame.failed or not command.adopt)
        deal_go.next = False
        if state == states.IDLE:
            if may:
                state.next = states.TAKE
        elif state == states.TAKE:
            deal_go.next = not frame.failed
            state.next = states.DEAL
            if frame.failed:
                state.next = states.NEXT
        elif state == states.DEAL:
            if deal_done:
                state.next = states.IDLE
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            deal_go.next = False
            may.next = False

    return turn, look, note, end, prepare, run
