"""A list's begin and end, and how it ended: LIST_COMMAND and LIST_RESULT."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.control.list_ports import (
    FAILED,
    MISCOUNTED,
    EndedEntries,
    ListRegisters,
    ListRun,
    TrackerStatus,
)
from oscar_hdl.nic.control.registers import BY_NAME, ERROR_ABORTED
from oscar_hdl.nic.ports import ENTRIES_LOG2
from oscar_hdl.streams.bundles import bit, word

SETTLES = 7  # clocks until what was given shows as a command under way


@block
def list_control(
    clk: Any, rst: Any, registers: ListRegisters, run: ListRun, status: TrackerStatus,
    received: EndedEntries, sent: EndedEntries,
) -> Any:  # fmt: skip
    """Start a list, stop it at the first error, end it when nothing of it is under way any more.

    received, sent: what commands ended with. A list ends when all ends have been told and counted: the
    last one may be an event too many, and the next list must not hear of it.
    """
    issue, order, busy = registers.issue, registers.order, registers.busy
    fields = {f.name: (f.low, f.low + f.bits) for f in BY_NAME["LIST_COMMAND"].fields}
    ENTRIES, ENTRIES_END = fields["entries"]
    RUN = fields["run"][0]
    states = enum("REST", "ASK", "RUN", "STOP", "END")
    state = Signal(states.REST)
    error, entry, ended, settled = word(5), word(ENTRIES_LOG2), word(8), word(3)
    fine, over, stops, quiet = bit(), bit(), bit(), bit()

    @always_comb
    def tell():
        run.running.next = state != states.REST
        run.stop.next = state == states.STOP
        stops.next = run.wrong or received.failed or sent.failed or status.wrong or registers.abort
        fine.next = order[RUN] and order[RUN:ENTRIES_END] == 0 and not busy

    @always_comb
    def show():
        registers.result.next = concat(run.running, modbv(0)[7:], entry, modbv(0)[3:], error, ended)

    @always(clk.posedge)
    def say():
        run.go.next = state == states.REST and issue and fine
        status.clear.next = state == states.REST and issue and fine
        if state == states.REST:
            run.entries.next = order[ENTRIES_END:ENTRIES]
        registers.ended.next = state == states.END
        registers.refused.next = (issue and (state != states.REST or not fine)) or run.refused
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
                error.next = FAILED
                entry.next = received.entry
            elif sent.failed:
                error.next = FAILED
                entry.next = sent.entry
            elif status.wrong:
                error.next = MISCOUNTED
                entry.next = status.entry
            elif registers.abort:
                error.next = ERROR_ABORTED
                entry.next = 0
        if rst:
            error.next = 0
            entry.next = 0

    @always(clk.posedge)
    def follow():
        quiet.next = status.quiet and received.quiet and sent.quiet
        over.next = run.idle and not busy and not run.looking and quiet
        settled.next = 0
        if state == states.REST:
            if issue and fine:
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

    return tell, show, say, note, follow
