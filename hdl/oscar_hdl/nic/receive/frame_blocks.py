"""The second and third stage of a command to receive: blocks are dealt, then learnt from."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.coder.ports import BANK_BITS, TablesPort
from oscar_hdl.coder.tables.learn_turn import learn_turn
from oscar_hdl.nic.ports import COUNT_BITS, ERROR_BITS, FrameCommand
from oscar_hdl.nic.receive.ports import FRAMES, ClearPort, DealPort, FrontFrame, MatchPort
from oscar_hdl.nic.receive.receive_front import BLOCK_WRONG
from oscar_hdl.streams.bundles import bit, word


@block
def frame_blocks(
    clk, rst, command: FrameCommand, tables: TablesPort, row, frame: FrontFrame, deal: DealPort,
    match: MatchPort, held, oldest, clear: ClearPort, *, frames: int,
):  # fmt: skip
    """Take frames from the first stage when the counts of their bank are drained, and end them in order.

    row: the first one of the command's frame. held: a bit for each bank, its frame is needed in the store;
    oldest: of which bank the frame is that ends next. frames: as many may be under way. Rows of a frame to
    adopt are cleared when it is known to be right, and the frames before it are done or have other rows.
    Then its blocks add: so those of the frame behind it may, too.
    """
    states = enum("IDLE", "TAKE", "DEAL", "NEXT")
    state = Signal(states.IDLE)
    may, ask, owed, blocked, asked, clean = (bit() for _ in range(6))
    EVERY, LAST_BANK = (1 << frames) - 1, frames - 1
    dealt, built, failed = word(FRAMES), word(FRAMES), word(FRAMES)
    errors = [word(ERROR_BITS) for _ in range(FRAMES)]
    ready, ending, learn_bank, learn_failed = bit(), bit(), word(BANK_BITS), bit()
    # Rows of frames that were taken, and behind that in the first stage; which of them it meets.
    begins, ends = ([word(len(row) + 1) for _ in range(FRAMES)] for _ in range(2))
    row_end, meets, apart = word(len(row) + 1), word(FRAMES), bit()

    turn = learn_turn(
        clk, rst, tables, ask=ask, bank=learn_bank, failed=learn_failed, owed=owed, next_bank=frame.bank,
        blocked=blocked,
    )  # fmt: skip

    @always_comb
    def look():
        frame.taken.next = state == states.TAKE
        match.forget.next = state == states.TAKE and frame.matched
        deal.stop.next = failed[deal.bank]
        ready.next = not owed and dealt[oldest] and deal.quiet[oldest]
        ask.next = ending and built[oldest]
        # What is learnt of a bank is asked for before its next build.
        frame.crowded.next = held == EVERY or (owed and learn_bank == frame.bank)

    @always(clk.posedge)
    def note():
        """What is known of the frame of each bank."""
        if state == states.TAKE:
            deal.bank.next = frame.bank
            deal.count.next = command.count
            deal.row.next = row
        for b in range(FRAMES):
            if deal.wrong[b]:
                failed.next[b] = True
                errors[b].next = BLOCK_WRONG
            if state == states.TAKE and frame.bank == b:
                held.next[b] = True
                dealt.next[b] = frame.failed
                built.next[b] = frame.built
                failed.next[b] = frame.failed
                errors[b].next = frame.error
                begins[b].next = row
                ends[b].next = row_end
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
        command.error.next = errors[oldest]
        if ending:
            oldest.next = oldest + 1
            if oldest == LAST_BANK:
                oldest.next = 0
            learn_bank.next = oldest
            learn_failed.next = failed[oldest]
        if rst:
            ending.next = False
            command.done.next = False
            oldest.next = 0

    @always(clk.posedge)
    def prepare():
        row_end.next = row + clear.rows
        for b in range(FRAMES):
            meets.next[b] = held[b] and row < ends[b] and begins[b] < row_end
        apart.next = meets == 0
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
        if rst:
            clear.start.next = False
            clean.next = False

    @always(clk.posedge)
    def run():
        may.next = frame.ready and not blocked and (clean or frame.failed or not command.adopt)
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
