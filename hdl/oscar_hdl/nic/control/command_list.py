"""A list of commands: taken from a stream, judged whole, then given one by one as they may start."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.control.list_ports import (
    ARM_RECEIVE,
    ARM_SEND,
    BAD_COMMAND,
    BAD_TRIGGER,
    COUNT,
    NO_GATE,
    START,
    ArmedReceive,
    FiredEntry,
    FoundEntry,
    ListedCommand,
    ListRun,
    StartedEntry,
    TrackerUpdate,
)
from oscar_hdl.nic.control.registers import BY_NAME, TRIGGER
from oscar_hdl.nic.ports import ENTRIES_LOG2
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import Stream, bit, word

PARTS = 3  # words of an entry
FIELDS = {field.name: field for field in TRIGGER}


@block
def list_memory(
    clk: Any, rst: Any, s_axis_list: Stream, open: Any, loaded: Any, bad: Any, read_at: Any, read: Any
) -> Any:
    """Keep the entries of the last packet. s_axis_list is ready while `open`, but for the clock behind
    a packet's last word.

    loaded u9: entries, 0 if the packet was not right (bad, a strobe) or is not whole yet. read u64: the word
    at read_at u10, entry and part, two clocks later.
    """
    write, write_at, data = bit(), word(ENTRIES_LOG2 + 2), word(64)
    place, part, taken, ended = word(ENTRIES_LOG2 + 1), word(2), bit(), bit()
    memory = block_ram(clk, write, write_at, data, read_at, read)

    @always_comb
    def take():
        s_axis_list.tready.next = open and not ended
        taken.next = s_axis_list.tvalid and open and not ended

    @always(clk.posedge)
    def load():
        write.next = taken and not place[ENTRIES_LOG2]
        write_at.next = concat(place[ENTRIES_LOG2:], part)
        data.next = s_axis_list.tdata
        bad.next = False
        ended.next = taken and s_axis_list.tlast  # so `bad` is never there in two clocks running
        if taken:
            loaded.next = 0
            part.next = part + 1
            if part == PARTS - 1:
                part.next = 0
                if not place[ENTRIES_LOG2]:
                    place.next = place + 1
            if s_axis_list.tlast:
                place.next = 0
                part.next = 0
                if part == PARTS - 1 and not place[ENTRIES_LOG2]:
                    loaded.next = place + 1
                else:
                    bad.next = True
        if rst:
            write.next = False
            place.next = 0
            part.next = 0
            loaded.next = 0
            bad.next = False

    return memory, take, load


@block
def command_list(
    clk: Any, rst: Any, s_axis_list: Stream, bad: Any, run: ListRun, command: ListedCommand,
    update: TrackerUpdate, armed: ArmedReceive, s_axis_fire: FiredEntry, found: FoundEntry,
    receives: StartedEntry, sends: StartedEntry,
) -> Any:  # fmt: skip
    """Judge all entries, arm them, then give the command of each that fires or is found.

    s_axis_list: Stream(64), 1 to 256 entries of three words a packet, taken while no list runs. bad (strobe):
    a packet that has not so many, or ends inside one. receives, sends: told with the command.
    """
    places = {name: (field.low, field.low + field.bits) for name, field in FIELDS.items()}
    EVENTS, EVENTS_END = places["events"]
    VALUES, VALUES_END = places["values"]
    GATE, GATE_END = places["gate"]
    NEXT, NEXT_END = places["next"]
    NEED, NEED_END = places["need"]
    KIND = FIELDS["kind"].low
    SUB, PEER = 32 + BY_NAME["RECEIVE_SHAPE"].field("sub").low, BY_NAME["RECEIVE_COMMAND"].field("peer").low
    SUB_END, PEER_END = SUB + 8, PEER + 8

    states = enum(
        "REST", "BEGIN", "FETCH", "TRY", "DECIDE", "ARM", "TAKEN", "ADVANCE", "RUN", "ISSUE", "GIVEN"
    )  # fmt: skip
    state = Signal(states.REST)
    awake, open, read_at, read = bit(), bit(), word(ENTRIES_LOG2 + 2), word(64)
    loaded = word(ENTRIES_LOG2 + 1)
    entry, number, final, step = word(ENTRIES_LOG2), word(ENTRIES_LOG2 + 1), bit(), word(3)
    arming, giving, trigger, sending = bit(), bit(), word(64), bit()
    stray, chained, gated, unfit, fits = (bit() for _ in range(5))
    memory = list_memory(clk, rst, s_axis_list, open, loaded, bad, read_at, read)

    @always_comb
    def tell():
        open.next = awake and state == states.REST and not run.go
        fits.next = run.entries == loaded and loaded != 0
        run.idle.next = state == states.REST
        sending.next = trigger[KIND]
        command.trial.next = state != states.REST and not giving
        update.entry.next = entry
        if giving and trigger[KIND]:
            update.entry.next = trigger[NEXT_END:NEXT]
        update.events.next = trigger[EVENTS_END:EVENTS]
        update.values.next = trigger[VALUES_END:VALUES]
        armed.entry.next = entry
        armed.gate.next = trigger[GATE_END:GATE]
        armed.need.next = trigger[NEED_END:NEED]
        receives.entry.next = entry
        receives.gate.next = trigger[GATE_END:GATE]
        receives.counts.next = not trigger[NEED + 1]  # COUNTS, OWN
        sends.entry.next = entry
        run.entry.next = entry

    @always(clk.posedge)
    def check():
        """The trigger; `read` is that of its gate, or of the SEND behind it."""
        stray.next = trigger[GATE:] != 0 or trigger[NEED:GATE_END] != 0 or trigger[KIND:NEED_END] != 0
        if sending:
            stray.next = (
                trigger[EVENTS:VALUES_END] != 0
                or trigger[NEXT:EVENTS_END] != 0
                or trigger[KIND:NEXT_END] != 0
            )
        chained.next = trigger[NEXT_END:NEXT] == entry or (
            trigger[NEXT_END:NEXT] > entry and trigger[NEXT_END:NEXT] < run.entries and read[KIND]
        )  # fmt: skip
        gated.next = (
            trigger[NEED_END:NEED] != NO_GATE and trigger[GATE_END:GATE] < run.entries and read[KIND]
        ) or (trigger[NEED_END:NEED] == NO_GATE and trigger[GATE_END:GATE] == 0)
        unfit.next = stray or (sending and not chained) or (not sending and not gated)
        final.next = number + 1 == run.entries

    @always(clk.posedge)
    def fetch():
        """The trigger's word first, which says whose registers the others are for."""
        command.fill_receive.next = 0
        command.fill_send.next = 0
        if state == states.BEGIN:
            read_at.next = concat(entry, modbv(2)[2:])
        elif state == states.FETCH:
            if step == 0:
                read_at.next = concat(entry, modbv(0)[2:])
            elif step == 1:
                read_at.next = concat(entry, modbv(1)[2:])
            elif step == 2:
                trigger.next = read
            elif step == 3:
                command.data.next = read
                command.fill_receive.next[0] = not sending
                command.fill_send.next[0] = sending
                armed.name.next = concat(modbv(0)[8:], read[SUB_END:SUB], read[32:])
            elif step == 4:
                command.data.next = read
                command.fill_receive.next[1] = not sending
                command.fill_send.next[1] = sending
                command.order.next = read[64:32]
            else:
                armed.name.next = concat(command.order[PEER_END:PEER], armed.name[40:])
                read_at.next = concat(trigger[GATE_END:GATE], modbv(2)[2:])
                if sending:
                    read_at.next = concat(trigger[NEXT_END:NEXT], modbv(2)[2:])
        if rst:
            command.fill_receive.next = 0
            command.fill_send.next = 0

    @always(clk.posedge)
    def give():
        """What is said to others, in the clock behind a state."""
        command.issue_receive.next = (state == states.TRY or state == states.ISSUE) and not sending
        command.issue_send.next = (state == states.TRY or state == states.ISSUE) and sending
        receives.put.next = state == states.ISSUE and not sending
        sends.put.next = state == states.ISSUE and sending
        found.given.next = state == states.ISSUE and not sending
        armed.put.next = state == states.ARM
        armed.open.next = not sending
        if update.taken:
            update.valid.next = False
        elif state == states.ARM:
            update.valid.next = True
            update.what.next = ARM_RECEIVE
            if sending:
                update.what.next = ARM_SEND
        elif state == states.ISSUE:
            update.what.next = START
            update.valid.next = True
            if sending:
                update.what.next = COUNT
                update.valid.next = trigger[NEXT_END:NEXT] != entry
        if rst:
            command.issue_receive.next = False
            command.issue_send.next = False
            receives.put.next = False
            sends.put.next = False
            found.given.next = False
            armed.put.next = False
            update.valid.next = False

    @always(clk.posedge)
    def follow():
        """Which entry it is, and what is done with it."""
        if state == states.REST:
            number.next = 0
            entry.next = 0
            arming.next = False
            giving.next = False
        elif state == states.ADVANCE:
            number.next = number + 1
            entry.next = entry + 1
            if final:
                number.next = 0
                entry.next = 0
                arming.next = True
        elif state == states.RUN:
            giving.next = True
            entry.next = found.entry
            if s_axis_fire.tvalid and command.send_open:
                entry.next = s_axis_fire.tdata
        s_axis_fire.tready.next = (
            state == states.RUN and s_axis_fire.tvalid and command.send_open and not run.stop
        )
        run.active.next = giving and state != states.REST
        if rst:
            s_axis_fire.tready.next = False
            run.active.next = False

    @always(clk.posedge)
    def answer():
        """What becomes of the list."""
        awake.next = not rst
        run.started.next = state == states.REST and run.go and fits
        run.refused.next = state == states.REST and run.go and not fits
        run.wrong.next = state == states.DECIDE and command.judged and (command.bad or unfit)
        run.error.next = BAD_TRIGGER
        if command.bad:
            run.error.next = BAD_COMMAND
        if rst:
            run.started.next = False
            run.refused.next = False
            run.wrong.next = False

    @always(clk.posedge)
    def proceed():
        step.next = 0
        if state == states.REST:
            if run.go and fits:
                state.next = states.BEGIN
        elif state == states.BEGIN:
            state.next = states.FETCH
        elif state == states.FETCH:
            step.next = step + 1
            if step == 5:
                state.next = states.TRY
                if giving and run.stop:
                    state.next = states.REST
                elif giving:
                    state.next = states.ISSUE
                elif arming:
                    state.next = states.ARM
        elif state == states.TRY:
            state.next = states.DECIDE
        elif state == states.DECIDE:
            if command.judged:
                state.next = states.ADVANCE
                if command.bad or unfit:
                    state.next = states.REST
        elif state == states.ARM:
            state.next = states.TAKEN
        elif state == states.TAKEN:
            if update.taken:
                state.next = states.ADVANCE
        elif state == states.ADVANCE:
            state.next = states.BEGIN
            if run.stop:
                state.next = states.REST
            elif final and arming:
                state.next = states.RUN
        elif state == states.RUN:
            if run.stop:
                state.next = states.REST
            elif (s_axis_fire.tvalid and command.send_open) or (found.valid and command.receive_open):
                state.next = states.BEGIN
        elif state == states.ISSUE:
            state.next = states.GIVEN
        else:
            step.next = step + 1
            if step == 3:  # by then a port says that a command waits
                step.next = step
                if not update.valid:
                    state.next = states.RUN
        if rst:
            state.next = states.REST

    return memory, tell, check, fetch, give, follow, answer, proceed
