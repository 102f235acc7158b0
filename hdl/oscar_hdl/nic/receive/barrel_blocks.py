"""The second and third stage of a command to receive: blocks are dealt, then learnt from."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.coder.tables.learn_turn import learn_turn
from oscar_hdl.nic.ports import COUNT_BITS, FrameCommand
from oscar_hdl.nic.receive.ports import FRAMES, ClearPort, DealPort, FrontFrame, MatchPort
from oscar_hdl.nic.receive.receive_front import BLOCK_WRONG
from oscar_hdl.streams.bundles import bit, word


@block
def barrel_blocks(
    clk: Any, rst: Any, command: FrameCommand, tables: TablesPort, row: Any, frame: FrontFrame,
    deal: DealPort, match: MatchPort, held: Any, clear: ClearPort,
) -> Any:  # fmt: skip
    """Take frames from the first stage when the counts of their bank are drained, and end them in order.

    barrel_dealer deals a frame while the one before may have blocks under way. row: the first one of the
    command's frame. held u2: frames of which banks are needed in the store.

    Rows of a frame to adopt are cleared when it is known to be right, and the frame before it is done or has
    other rows. Then it is taken, and its blocks add: so those of the frame behind it may, too.
    """
    states = enum("IDLE", "TAKE", "DEAL", "NEXT")
    state = Signal(states.IDLE)
    may, ask, owed, blocked, asked, clean = (bit() for _ in range(6))
    dealt, built, failed, error_0, error_1 = word(FRAMES), word(FRAMES), word(FRAMES), word(5), word(5)
    oldest, ready, ending, learn_bank, learn_failed = bit(), bit(), bit(), bit(), bit()
    # Rows behind the frame that is in the first stage, and behind the one that was taken last.
    row_end, last_end, apart = word(len(row) + 1), word(len(row) + 1), bit()

    turn = learn_turn(
        clk, rst, tables, ask=ask, bank=learn_bank, failed=learn_failed, owed=owed, next_bank=frame.bank,
        blocked=blocked,
    )  # fmt: skip

    @always_comb
    def look():
        frame.taken.next = state == states.TAKE
        match.forget.next = state == states.TAKE and frame.matched
        deal.stop.next = (failed[1] and deal.bank) or (failed[0] and not deal.bank)
        ready.next = not owed and (
            (dealt[1] and deal.quiet[1] and oldest) or (dealt[0] and deal.quiet[0] and not oldest)
        )
        ask.next = ending and ((built[1] and oldest) or (built[0] and not oldest))
        # What is learnt of a bank is asked for before its next build.
        frame.crowded.next = held == 3 or owed

    @always(clk.posedge)
    def note():
        """What is known of the frame of each bank."""
        if deal.wrong[0]:
            error_0.next = BLOCK_WRONG
        if deal.wrong[1]:
            error_1.next = BLOCK_WRONG
        if state == states.TAKE:
            deal.bank.next = frame.bank
            deal.thinning.next = frame.thinning
            deal.count.next = command.count
            deal.row.next = row
            if frame.bank:
                error_1.next = frame.error
            else:
                error_0.next = frame.error
        for b in range(FRAMES):
            if deal.wrong[b]:
                failed.next[b] = True
            if state == states.TAKE and frame.bank == b:
                held.next[b] = True
                dealt.next[b] = frame.failed
                built.next[b] = frame.built
                failed.next[b] = frame.failed
            elif deal.done and deal.bank == b:
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
        row_end.next = row + clear.rows
        apart.next = row >= last_end or deal.row >= row_end or held == 0
        clear.rows.next = command.count[COUNT_BITS:5]
        if command.count[5:] != 0:
            clear.rows.next = command.count[COUNT_BITS:5] + 1
        clear.start.next = False
        if frame.right and command.adopt and apart and not asked:
            clear.start.next = True
        asked.next = frame.right and command.adopt and (apart or asked)
        if clear.done:
            clean.next = True
        if state == states.TAKE:
            clean.next = False
            last_end.next = row_end
        if rst:
            clear.start.next = False
            clean.next = False

    @always(clk.posedge)
    def run():
        may.next = frame.ready and not blocked and not owed and (clean or frame.failed or not command.adopt)
        deal.go.next = False
        if state == states.IDLE:
            if may:
                state.next = states.TAKE
        elif state == states.TAKE:
            deal.go.next = not frame.failed
            state.next = states.DEAL
            if frame.failed:
                state.next = states.NEXT
        elif state == states.DEAL:
            if deal.done:
                state.next = states.IDLE
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            deal.go.next = False
            may.next = False

    return turn, look, note, end, prepare, run
