"""Lists of commands, but for who finds an entry's frame (frame_finder)."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.control import list_ports as lists
from oscar_hdl.nic.control.command_list import command_list
from oscar_hdl.nic.control.list_ends import list_ends
from oscar_hdl.nic.control.registers import BY_NAME, ERROR_ABORTED, places
from oscar_hdl.nic.control.tracker import tracker
from oscar_hdl.nic.ports import ENTRIES_LOG2, ERROR_BITS, FrameCommand, MadeRows
from oscar_hdl.streams.bundles import Stream, bit, word

SETTLES = 7  # clocks until what was given shows as a command under way


@block
def list_control(
    clk, rst, registers: lists.ListRegisters, run: lists.ListRun, status: lists.TrackerStatus,
    received: lists.EndedEntries, sent: lists.EndedEntries,
):  # fmt: skip
    """Start a list, stop it at the first error, end it when nothing of it is under way any more.

    received, sent: what commands ended with. A list ends when all ends have been told and counted: the
    last one may be an event too many, and the next list must not hear of it.
    """
    (ENTRIES, ENTRIES_END), (RUN, _) = places(BY_NAME["LIST_COMMAND"].fields, "entries", "run")
    states = enum("REST", "ASK", "RUN", "STOP", "END")
    state = Signal(states.REST)
    error, entry, ended, settled = word(ERROR_BITS), word(ENTRIES_LOG2), word(8), word(3)
    fine, over, stops, quiet, spoilt = bit(), bit(), bit(), bit(), bit()

    @always_comb
    def tell():
        run.running.next = state != states.REST
        run.stop.next = state == states.STOP
        stops.next = run.wrong or received.failed or sent.failed or status.wrong or registers.abort or spoilt
        fine.next = registers.order[RUN] and registers.order[RUN:ENTRIES_END] == 0 and not registers.busy

    @always_comb
    def show():
        registers.result.next = concat(run.running, modbv(0)[7:], entry, modbv(0)[5:], error, ended)

    @always(clk.posedge)
    def say():
        run.go.next = state == states.REST and registers.issue and fine
        status.clear.next = state == states.REST and registers.issue and fine
        if state == states.REST:
            run.entries.next = registers.order[ENTRIES_END:ENTRIES]
        registers.ended.next = state == states.END
        registers.refused.next = (registers.issue and (state != states.REST or not fine)) or run.refused
        if state == states.END:
            ended.next = ended + 1
        if rst:
            run.go.next = False
            status.clear.next = False
            registers.ended.next = False
            registers.refused.next = False
            ended.next = 0

    @always(clk.posedge)
    def note():
        """The first error."""
        if run.started:
            error.next = 0
            entry.next = 0
        elif state == states.RUN:
            if run.wrong:
                error.next = run.error
                entry.next = run.entry
            elif received.failed:
                error.next = lists.FAILED
                entry.next = received.entry
            elif sent.failed:
                error.next = lists.FAILED
                entry.next = sent.entry
            elif status.wrong:
                error.next = lists.MISCOUNTED
                entry.next = status.entry
            elif spoilt:
                error.next = lists.BAD_FLOATS
                entry.next = 0
            elif registers.abort:
                error.next = ERROR_ABORTED
                entry.next = 0
        if rst:
            error.next = 0
            entry.next = 0

    @always(clk.posedge)
    def judge():
        """A packet with NaN or Inf ends the list that runs, or the next one."""
        if registers.bad_floats:
            spoilt.next = True
        elif (state == states.END and error == lists.BAD_FLOATS) or registers.abort or rst:
            spoilt.next = False

    @always(clk.posedge)
    def follow():
        quiet.next = status.quiet and received.quiet and sent.quiet
        over.next = run.idle and not registers.busy and not run.looking and quiet
        settled.next = 0
        if state == states.REST:
            if registers.issue and fine:
                state.next = states.ASK
        elif state == states.ASK:
            if run.refused:
                state.next = states.REST
            elif run.started:
                state.next = states.RUN
        elif state == states.RUN:
            if stops or (run.active and status.over and quiet):
                state.next = states.STOP
        elif state == states.STOP:
            if over:
                settled.next = settled + 1
                if settled == SETTLES:
                    state.next = states.END
        else:
            state.next = states.REST
        if rst:
            state.next = states.REST

    return tell, show, say, note, judge, follow


@block
def list_unit(
    clk, rst, s_axis_list: Stream, registers: lists.ListRegisters, run: lists.ListRun,
    command: lists.ListedCommand, finder: lists.FinderLinks, made: MadeRows, receive: FrameCommand,
    send: FrameCommand,
):  # fmt: skip
    """Take lists, and run them (docs/develop/engine.md, "A list").

    s_axis_list: Stream(64), three words an entry. command: to command_ports. made: whoever loads rows.
    receive, send: commands that end.
    """
    status, fire = lists.TrackerStatus(), lists.FiredEntry()
    given, received, sent = lists.TrackerUpdate(arms=True), lists.TrackerUpdate(), lists.TrackerUpdate()
    receives, sends = lists.StartedEntry(receive=True), lists.StartedEntry(receive=False)
    ended, sends_ended = lists.EndedEntries(), lists.EndedEntries()
    ended.returned = finder.found.returned

    return (
        command_list(
            clk, rst, s_axis_list, registers.bad_packet, run, command, given, finder.armed, fire,
            finder.found, receives, sends,
        ),
        tracker(clk, rst, given, received, sent, made, run, fire, registers.show, finder.gate, status),
        list_ends(clk, rst, receives, receive.done, receive.error, received, ended, receive=True),
        list_ends(clk, rst, sends, send.done, send.error, sent, sends_ended, receive=False),
        list_control(clk, rst, registers, run, status, ended, sends_ended),
    )  # fmt: skip
