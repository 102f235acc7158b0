"""A list of commands: taken from a stream, judged whole, then given one by one as they may start."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.control import list_ports as lists
from oscar_hdl.nic.control.registers import BY_NAME, TRIGGER, places
from oscar_hdl.nic.ports import ENTRIES_LOG2
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import Stream, bit, word

PARTS = 3  # words of an entry; in the place of a fourth are numbers that fired
NAMED = ("COMMAND_SHAPE", "sub"), ("RECEIVE_COMMAND", "peer")  # higher halves of the first two
LANDS = 4  # clocks until a number that has fired can be read


@block
def list_memory(
    clk, rst, s_axis_list: Stream, run: lists.ListRun, fire: lists.FiredEntry, loaded, bad, place, read_at,
    read, *, entries_log2: int,
):  # fmt: skip
    """Keep the entries of the last packet and, while a list runs, numbers in the order in which they fired.

    s_axis_list is ready while no list runs (run.idle), but for a clock behind a list's end and behind a
    packet's last word. loaded u9: entries, 0 if the packet was not right (bad, a strobe) or is not whole yet.
    fire: a number to keep. place u9: while a list runs, how many have fired. read u64: the word at read_at
    u10, entry and part, two clocks later; part 3 of entry n is the number that fired as n-th, from 0 on.
    """
    BITS = entries_log2
    write, write_at, data = bit(), word(BITS + 2), word(64)
    part, awake, taken, ended = word(2), bit(), bit(), bit()
    memory = block_ram(clk, write, write_at, data, read_at, read)

    @always_comb
    def take():
        s_axis_list.tready.next = awake and run.idle and not run.go and not ended
        taken.next = s_axis_list.tvalid and awake and run.idle and not run.go and not ended

    @always(clk.posedge)
    def load():
        awake.next = run.idle
        write.next = (taken and not place[BITS]) or (fire.put and not run.idle)
        write_at.next = concat(place[BITS:], part)
        data.next = s_axis_list.tdata
        bad.next = False
        ended.next = taken and s_axis_list.tlast  # so `bad` is never there in two clocks running
        if not run.idle:
            part.next = PARTS
            data.next[ENTRIES_LOG2:] = fire.entry
            if fire.put:
                place.next = place + 1
        elif not awake:
            part.next = 0
            place.next = 0
        if taken:
            loaded.next = 0
            part.next = part + 1
            if part == PARTS - 1:
                part.next = 0
                if not place[BITS]:
                    place.next = place + 1
            if s_axis_list.tlast:
                place.next = 0
                part.next = 0
                if part == PARTS - 1 and not place[BITS]:
                    loaded.next = place + 1
                else:
                    bad.next = True
        if rst:
            awake.next = False
            write.next = False
            place.next = 0
            part.next = 0
            loaded.next = 0
            bad.next = False

    return memory, take, load


@block
def command_list(
    clk, rst, s_axis_list: Stream, bad, run: lists.ListRun, command: lists.ListedCommand,
    update: lists.TrackerUpdate, armed: lists.ArmedReceive, fire: lists.FiredEntry, found: lists.FoundEntry,
    receives: lists.StartedEntry, sends: lists.StartedEntry, *, entries_log2: int = ENTRIES_LOG2,
):  # fmt: skip
    """Judge all entries, arm them, then give the command of each that fires or is found.

    s_axis_list: Stream(64), 1 to 256 entries of three words a packet, taken while no list runs. bad (strobe):
    a packet that has not so many, or ends inside one. fire: a SEND that may start, also while others are
    armed; they are given in this order. receives, sends: told with the command.
    """
    BITS = entries_log2
    (EVENTS, EVENTS_END), (VALUES, VALUES_END) = places(TRIGGER, "events", "values")
    (GATE, GATE_END), (NEXT, NEXT_END) = places(TRIGGER, "gate", "next")
    (NEED, NEED_END), (KIND, _) = places(TRIGGER, "need", "kind")
    SUB, PEER = (32 + BY_NAME[name].field(field).low for name, field in NAMED)
    SUB_END, PEER_END = SUB + 8, PEER + 8

    states = enum(
        "REST", "BEGIN", "FETCH", "TRY", "DECIDE", "ARM", "TAKEN", "ADVANCE", "RUN", "ISSUE", "GIVEN"
    )  # fmt: skip
    state = Signal(states.REST)
    loaded, read_at, read = word(ENTRIES_LOG2 + 1), word(BITS + 2), word(64)
    fired, fires_at, may_send = word(BITS + 1), word(BITS + 1), bit()  # how many have fired, were taken
    entry, behind, final, step = word(ENTRIES_LOG2), word(ENTRIES_LOG2 + 1), bit(), word(3)
    arming, giving, trigger, sending = bit(), bit(), word(64), bit()
    named = word(ENTRIES_LOG2)  # by the trigger: its gate, or the SEND behind it, or itself
    at_named, at_fired = bit(), bit()  # which is read: that one, or a number that fired
    stray, chained, gated, unfit, fits = (bit() for _ in range(5))
    memory = list_memory(
        clk, rst, s_axis_list, run, fire, loaded, bad, fired, read_at, read, entries_log2=BITS
    )  # fmt: skip

    @always_comb
    def tell():
        fits.next = run.entries == loaded and loaded != 0
        behind.next = entry + 1  # a signal: in VHDL a sum has no more bits than its terms
        sending.next = trigger[KIND]
        named.next = trigger[GATE_END:GATE]
        if trigger[KIND]:
            named.next = trigger[NEXT_END:NEXT]
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
        """The trigger; `read` is that of the entry which it names."""
        stray.next = trigger[GATE:] != 0 or trigger[NEED:GATE_END] != 0 or trigger[KIND:NEED_END] != 0
        if sending:
            stray.next = (
                trigger[EVENTS:VALUES_END] != 0
                or trigger[NEXT:EVENTS_END] != 0
                or trigger[KIND:NEXT_END] != 0
            )
        chained.next = named >= entry and named < run.entries and read[KIND]
        gated.next = (trigger[NEED_END:NEED] != lists.NO_GATE and named < run.entries and read[KIND]) or (
            trigger[NEED_END:NEED] == lists.NO_GATE and named == 0
        )
        unfit.next = stray or (sending and not chained) or (not sending and not gated)
        final.next = behind == run.entries

    @always(clk.posedge)
    def fetch():
        """The trigger's word first."""
        if state == states.FETCH:
            if step == 2:
                trigger.next = read
            elif step == 3:
                command.first.next = read
                armed.name.next = concat(modbv(0)[8:], read[SUB_END:SUB], read[32:])
            elif step == 4:
                command.second.next = read
            elif step == 5:
                armed.name.next = concat(command.second[PEER_END:PEER], armed.name[40:])

    @always(clk.posedge)
    def seek():
        """Where to read: few choices in a clock, for memory is far."""
        if state == states.FETCH and step == 4:
            at_named.next = True
        elif state == states.REST or state == states.ADVANCE or state == states.RUN:
            at_named.next = False
        at_fired.next = state == states.RUN and may_send and step != LANDS
        read_at.next = concat(entry[BITS:], modbv(1)[2:])
        if at_named:
            read_at.next = concat(named[BITS:], modbv(2)[2:])
        elif at_fired:
            read_at.next = concat(fires_at[BITS:], modbv(PARTS)[2:])
        elif state == states.BEGIN:
            read_at.next = concat(entry[BITS:], modbv(2)[2:])
        elif step == 0:
            read_at.next = concat(entry[BITS:], modbv(0)[2:])

    @always(clk.posedge)
    def give():
        """What is said to others, in the clock behind a state."""
        command.trial.next = state != states.REST and not giving
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
            update.what.next = lists.ARM_RECEIVE
            if sending:
                update.what.next = lists.ARM_SEND
        elif state == states.ISSUE:
            update.what.next = lists.START
            update.valid.next = True
            if sending:
                update.what.next = lists.COUNT
                update.valid.next = trigger[NEXT_END:NEXT] != entry
        if rst:
            command.trial.next = False
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
        may_send.next = fired != fires_at and command.send_open
        if state == states.REST:
            entry.next = 0
            arming.next = False
            giving.next = False
            fires_at.next = 0
        elif state == states.ADVANCE:
            entry.next = entry + 1
            if final:
                entry.next = 0
                arming.next = True
        elif state == states.RUN:
            giving.next = True
            entry.next = found.entry
            if may_send:
                entry.next = read[ENTRIES_LOG2:]
                if step == LANDS:
                    fires_at.next = fires_at + 1
        run.active.next = giving and state != states.REST
        if rst:
            run.active.next = False

    @always(clk.posedge)
    def answer():
        """What becomes of the list."""
        run.started.next = state == states.REST and run.go and fits
        run.refused.next = state == states.REST and run.go and not fits
        run.wrong.next = state == states.DECIDE and command.judged and (command.bad or unfit)
        run.error.next = lists.BAD_TRIGGER
        if command.bad:
            run.error.next = lists.BAD_COMMAND
        if rst:
            run.started.next = False
            run.refused.next = False
            run.wrong.next = False

    @always(clk.posedge)
    def proceed():
        step.next = 0
        run.idle.next = state == states.REST and not (run.go and fits)
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
            elif may_send:
                step.next = step + 1
                if step == LANDS:
                    step.next = 0
                    state.next = states.BEGIN
            elif found.valid and command.receive_open:
                state.next = states.BEGIN
        elif state == states.ISSUE:
            state.next = states.GIVEN
        else:
            step.next = step + 1
            if step == 3:  # by then a port says that a command waits
                step.next = step
                if not update.valid:
                    step.next = 0
                    state.next = states.RUN
        if rst:
            state.next = states.REST
            run.idle.next = False

    return memory, tell, check, fetch, seek, give, follow, answer, proceed
