"""The first stage of a command to send: blocks are planned, tables are built, and dealing begins."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.nic.ports import COUNT_BITS, FrameCommand, TopPort
from oscar_hdl.nic.send.ports import PlannedFrame
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied_fields

LOOK_UP = 3  # clocks until the checksum of a set is there


@block
def send_front(
    clk, rst, command: FrameCommand, top: TopPort, tables: TablesPort, crowded, blocked, dealing, begun,
    frame: PlannedFrame, *, frames: int, block_log2: int,
):  # fmt: skip
    """Take a command while the sender is not crowded, and plan its frame. `frames` banks are used in turn.

    top: asked for the last symbol of a frame with values. Meanwhile tables are built for the last symbol of
    the frame before, which is often the same; if it is another, they are built anew. begun (strobe): the
    frame's blocks may be dealt, if it has any: counts of its bank are drained (not blocked), and no other
    frame is dealt (dealing). In that clock frame and the command's fields hold for the last time.
    """
    states = enum("IDLE", "START", "QUERY", "PLAN", "BUILD", "WAIT", "BEGIN")
    state, LAST_BANK = Signal(states.IDLE), frames - 1
    found, may, asks, wrong, owed = (bit() for _ in range(5))
    LOG2, LAST_END = block_log2, min(block_log2 + 8, COUNT_BITS)
    before = word(COUNT_BITS)  # values of the frame before its last one
    last, wait = word(4, 15), word(2)  # last: symbol of this frame; until it is known of the one before

    sets = copied_fields(None, command, tables, "load", "save", "fresh")

    @always_comb
    def tell():
        tables.query.next = command.load
        tables.query_fresh.next = command.fresh
        tables.last.next = last
        tables.bank.next = frame.bank
        command.idle.next = state == states.IDLE and not crowded
        asks.next = (state == states.QUERY and wait == LOOK_UP and tables.steady and not frame.empty) or (
            state == states.PLAN and found and wrong
        )
        begun.next = state == states.BEGIN

    @always(clk.posedge)
    def strobe():
        top.ask.next = state == states.START and command.count != 0
        if state == states.START:
            found.next = command.count == 0
        elif top.known:
            found.next = True
        wrong.next = state == states.PLAN and (wrong or (top.known and top.symbol != last))
        if top.known:
            last.next = top.symbol
        tables.build.next = asks
        if asks:
            owed.next = True
        elif tables.built and not tables.build:  # of the build that is asked for now, nothing is built
            owed.next = False
        may.next = not blocked and not dealing
        if state == states.START:
            frame.empty.next = command.count == 0
        if state == states.QUERY:
            frame.checksum.next = tables.checksum
        if begun:
            frame.bank.next = frame.bank + 1
            if frame.bank == LAST_BANK:
                frame.bank.next = 0
        if rst:
            top.ask.next = False
            tables.build.next = False
            owed.next = False
            frame.bank.next = 0

    @always(clk.posedge)
    def plan():
        before.next = command.count - 1
        frame.last_block.next = before[LAST_END:LOG2]
        frame.last_size.next = before[LOG2:] + 1

    @always(clk.posedge)
    def sequence():
        wait.next = 0
        if state == states.IDLE:
            if command.start:
                state.next = states.START
        elif state == states.START:
            state.next = states.QUERY
        elif state == states.QUERY:
            wait.next = wait + 1
            if wait == LOOK_UP:
                wait.next = wait
                if tables.steady:
                    state.next = states.PLAN
        elif state == states.PLAN:
            if found:
                state.next = states.BUILD
                if frame.empty:
                    state.next = states.WAIT
        elif state == states.BUILD:
            if not owed:
                state.next = states.WAIT
        elif state == states.WAIT:
            if may:
                state.next = states.BEGIN
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return sets, tell, strobe, plan, sequence
