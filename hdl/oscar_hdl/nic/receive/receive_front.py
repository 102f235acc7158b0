"""The first stage of a command to receive: match, prefix, directory, tables."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.nic.ports import FrameCommand
from oscar_hdl.nic.receive.ports import FrontFrame, MatchPort, ReaderUse, StepPort
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied_fields

NO_ERROR, PREFIX_WRONG, DIRECTORY_WRONG, BLOCK_WRONG, ABORTED = 0, 1, 2, 3, 7  # FrameCommand.error
LOOK_UP = 3  # clocks until the checksum of a set is there


@block
def receive_front(
    clk, rst, command: FrameCommand, tables: TablesPort, match: MatchPort, empty, prefix: StepPort,
    listing: StepPort, use: ReaderUse, less, frame: FrontFrame, *, frames: int,
):  # fmt: skip
    """Take a command through its steps.

    empty: the matched frame has no payload. less (level): for frame_places. Of `frames` banks the next
    command has another one. A frame with `failed` or without values has no blocks to deal.
    """
    states = enum("IDLE", "QUERY", "SEEK", "EMPTY", "PREFIX", "LIST", "BUILD", "HAND", "FULL")
    state, LAST_BANK = Signal(states.IDLE), frames - 1
    wait, step, building, nothing, absent = word(2), bit(), bit(), bit(), bit()
    begun, given_up = bit(), bit()

    sets = copied_fields(None, command, tables, "load", "save", "fresh")

    @always_comb
    def share():
        command.idle.next = state == states.IDLE
        tables.bank.next = frame.bank
        tables.query.next = command.load
        tables.query_fresh.next = command.fresh
        match.seek.next = state == states.SEEK and not command.abort

    @always(clk.posedge)
    def measure():
        """What the states decide by, a clock before; all strobes below come in one state only."""
        nothing.next = command.count == 0
        absent.next = empty or nothing
        step.next = match.matched or prefix.done or listing.done
        building.next = (building or tables.build) and not tables.built
        given_up.next = state == states.SEEK and command.abort and match.idle and not step
        less.next = state == states.LIST
        use.released.next = state == states.BUILD or state == states.HAND
        frame.right.next = not frame.failed and (state == states.BUILD or state == states.HAND)
        frame.ready.next = state == states.HAND and not frame.taken
        if rst:
            step.next = False
            building.next = False
            given_up.next = False
            frame.ready.next = False
            frame.right.next = False

    @always(clk.posedge)
    def judge():
        """What is known of the frame, which holds until the next."""
        if begun:
            frame.error.next = NO_ERROR
            frame.failed.next = False
            frame.matched.next = False
            frame.built.next = False
        if match.matched:
            frame.matched.next = True
        if tables.build:
            frame.built.next = True
        if prefix.done and not prefix.right:
            frame.error.next = PREFIX_WRONG
            frame.failed.next = True
        if listing.done and not listing.right:
            frame.error.next = DIRECTORY_WRONG
            frame.failed.next = True
        if match.matched and empty != nothing:
            frame.error.next = PREFIX_WRONG
        if given_up:
            frame.error.next = ABORTED
        if (state == states.EMPTY and absent) or given_up:
            frame.failed.next = True
        if frame.taken:
            frame.bank.next = frame.bank + 1
            if frame.bank == LAST_BANK:
                frame.bank.next = 0
        if rst:
            frame.bank.next = 0

    @always(clk.posedge)
    def run():
        begun.next = False
        prefix.go.next = False
        listing.go.next = False
        wait.next = 0
        if state == states.IDLE:
            if command.start:
                begun.next = True
                state.next = states.QUERY
        elif state == states.QUERY:
            wait.next = wait + 1
            if wait == LOOK_UP:
                wait.next = wait
                if tables.steady:
                    state.next = states.SEEK
        elif state == states.SEEK:
            if step:
                state.next = states.EMPTY
            elif given_up:
                state.next = states.HAND
        elif state == states.EMPTY:
            prefix.go.next = not absent
            state.next = states.PREFIX
            if absent:
                state.next = states.BUILD
        elif state == states.PREFIX:
            if step:
                listing.go.next = not frame.failed
                state.next = states.LIST
                if frame.failed:
                    state.next = states.BUILD
        elif state == states.LIST:
            if step:
                state.next = states.BUILD
        elif state == states.BUILD:
            if not building:
                state.next = states.HAND
        elif state == states.HAND:
            if frame.taken:
                state.next = states.FULL
        elif not frame.crowded:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            prefix.go.next = False
            listing.go.next = False

    return sets, share, measure, judge, run
