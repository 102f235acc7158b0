"""What each entry of a list still waits for: a SEND fires when its last event or value has come, once."""

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.control import list_ports as lists
from oscar_hdl.nic.ports import COUNT_BITS, ENTRIES_LOG2, MadeRows
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied

LEFT = 2 + lists.EVENT_BITS  # bits of what is kept: state, events, values
KEPT_BITS = LEFT + COUNT_BITS
ARMS, OF_VALUES = 0, 3  # an update but its lowest bit: ARM_RECEIVE, ARM_SEND; MADE, MAY


@block
def tracker(
    clk, rst, given: lists.TrackerUpdate, received: lists.TrackerUpdate, sent: lists.TrackerUpdate,
    made: MadeRows, run: lists.ListRun, fire: lists.FiredEntry, show: lists.TrackerLook,
    gate: lists.TrackerLook, status: lists.TrackerStatus, *, entries_log2: int = ENTRIES_LOG2,
):  # fmt: skip
    """Keep a state, events and values to come for each entry, and change them update by update.

    given, received, sent, made: the first one first where several wait. An entry that is armed as a SEND
    fires when it waits for nothing, and is under way then. An update that its entry is not in the state for
    changes nothing, and is an error in `status`. Between lists entries stay as they are, and what comes from
    `made` is refused; so is at any time what asks for an entry that the list has not, or that waits for less.
    """
    BITS = entries_log2
    states = enum("PICK", "FETCH", "GET", "WEIGH", "JUDGE")
    state = Signal(states.PICK)
    write, at, data, found = bit(), word(BITS), word(KEPT_BITS), word(KEPT_BITS)
    look_at, looked, turn, spoilt, spoils = word(BITS), word(KEPT_BITS), bit(), bit(), bit()
    what, entry, events, values = word(3), word(ENTRIES_LOG2), word(lists.EVENT_BITS), word(COUNT_BITS)
    right, fires, opened, closed, wrong = bit(), bit(), bit(), bit(), bit()
    changed, waits, left, asks, within = word(2), word(lists.EVENT_BITS), word(COUNT_BITS), bit(), bit()
    open_entries = word(BITS + 1)
    rest, enough, exact, none = word(COUNT_BITS), bit(), bit(), bit()  # of the entry's values
    known, early = word(8), bit()  # all were armed some clocks ago; they are not, and a list runs
    memory, tell = block_ram(clk, write, at, data, look_at, looked, found), copied(None, entry, fire.entry)

    @always(clk.posedge)
    def weigh():
        """Values that are left, against those of the update."""
        rest.next = found[KEPT_BITS:LEFT] - values
        enough.next = found[KEPT_BITS:LEFT] >= values
        exact.next = found[KEPT_BITS:LEFT] == values
        none.next = found[KEPT_BITS:LEFT] == 0

    @always_comb
    def judge():
        """What an update makes of its entry."""
        changed.next = lists.ARMED
        waits.next = events
        left.next = 0
        right.next = True
        fires.next = False
        if what == lists.ARM_SEND:
            left.next = values
            fires.next = events == 0 and values == 0
        elif what == lists.ARM_RECEIVE:
            waits.next = 0
        elif what == lists.COUNT:
            right.next = found[2:] == lists.ARMED and found[LEFT:2] != 0
            waits.next = found[LEFT:2] - 1
            left.next = found[KEPT_BITS:LEFT]
            fires.next = found[LEFT:2] == 1 and none
        elif what[3:1] == OF_VALUES:
            right.next = found[2:] == lists.ARMED and enough
            waits.next = found[LEFT:2]
            left.next = rest
            fires.next = found[LEFT:2] == 0 and exact
        elif what == lists.START:
            right.next = found[2:] == lists.ARMED and found[LEFT:2] == 0 and none
            waits.next = 0
            changed.next = lists.UNDER_WAY
        elif what == lists.END:
            right.next = found[2:] == lists.UNDER_WAY
            waits.next = 0
            changed.next = lists.ENDED
        else:
            right.next = found[2:] == lists.UNDER_WAY and what == lists.BACK
            waits.next = 0

    @always(clk.posedge)
    def pick():
        """Take the next update; its word is there in JUDGE."""
        given.taken.next = False
        received.taken.next = False
        sent.taken.next = False
        if state == states.PICK:
            if given.valid:
                given.taken.next = True
                what.next = given.what
                entry.next = given.entry
                at.next = given.entry[BITS:]
                events.next = given.events
                values.next = given.values
                state.next = states.FETCH
            elif received.valid:
                received.taken.next = True
                what.next = received.what
                entry.next = received.entry
                at.next = received.entry[BITS:]
                state.next = states.FETCH
            elif sent.valid:
                sent.taken.next = True
                what.next = sent.what
                entry.next = sent.entry
                at.next = sent.entry[BITS:]
                state.next = states.FETCH
            elif asks and within and not made.taken:
                what.next = lists.MAY
                if made.ends:
                    what.next = lists.MADE
                entry.next = made.entry
                at.next = made.entry[BITS:]
                values.next = made.values
                state.next = states.FETCH
        elif state == states.FETCH:
            state.next = states.GET
        elif state == states.GET:
            state.next = states.WEIGH
        elif state == states.WEIGH:
            state.next = states.JUDGE
        else:
            state.next = states.PICK
        if rst:
            state.next = states.PICK
            given.taken.next = False
            received.taken.next = False
            sent.taken.next = False

    @always(clk.posedge)
    def change():
        """Write what the update made of its entry; who made values hears whether it was right."""
        data.next = concat(left, waits, changed)
        if fires:
            data.next = lists.UNDER_WAY
        write.next = state == states.JUDGE and right and what != lists.MAY
        fire.put.next = state == states.JUDGE and right and fires and what != lists.MAY
        opened.next = state == states.JUDGE and what[3:1] == ARMS
        closed.next = state == states.JUDGE and right and what == lists.END
        wrong.next = state == states.JUDGE and not right and what != lists.MAY
        made.refused.next = state != states.JUDGE or not right
        made.taken.next = (state == states.JUDGE and what[3:1] == OF_VALUES) or (
            state == states.PICK and asks and not within and not made.taken
        )
        if rst:
            write.next = False
            fire.put.next = False
            made.taken.next = False

    @always(clk.posedge)
    def account():
        made.open.next = run.active
        asks.next = made.valid and not made.taken and not rst
        within.next = run.active and made.entry < run.entries
        if opened:
            open_entries.next = open_entries + 1
        elif closed:
            open_entries.next = open_entries - 1
        status.over.next = open_entries == 0 and not opened
        status.quiet.next = state == states.PICK and not (
            given.valid or received.valid or sent.valid or opened or closed or wrong
        )
        if wrong and not status.wrong:
            status.wrong.next = True
            status.entry.next = entry
        if rst or status.clear:
            open_entries.next = 0
            status.over.next = False
            status.wrong.next = False
            status.quiet.next = False

    @always(clk.posedge)
    def look():
        """Two take turns; what was read while a word was written counts for nothing.

        Until all are armed `show` has the state of none: an entry might still show that of the list before.
        """
        turn.next = not turn
        known.next = concat(known[7:], run.active)
        early.next = run.running and not known[7]
        look_at.next = gate.at[BITS:]
        if turn:
            look_at.next = show.at[BITS:]
        spoilt.next = write
        spoils.next = spoilt
        if not spoils:
            if turn:
                gate.state.next = looked[2:]
                gate.events.next = looked[LEFT:2]
                gate.left.next = looked[KEPT_BITS:LEFT]
            else:
                show.state.next = looked[2:]
                show.events.next = looked[LEFT:2]
                show.left.next = looked[KEPT_BITS:LEFT]
        if early:
            show.state.next = 0

    return memory, tell, weigh, judge, pick, change, account, look
