"""What each entry of a list still waits for: a SEND fires when its last event or value has come, once."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.control.list_ports import (
    ARM_RECEIVE,
    ARM_SEND,
    ARMED,
    BACK,
    COUNT,
    END,
    ENDED,
    EVENT_BITS,
    MADE,
    MAY,
    START,
    UNDER_WAY,
    FiredEntry,
    ListRun,
    TrackerLook,
    TrackerStatus,
    TrackerUpdate,
)
from oscar_hdl.nic.ports import COUNT_BITS, ENTRIES_LOG2, MadeRows
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word

LANDS = 3  # clocks until a word that was just written can be read
LEFT = 2 + EVENT_BITS  # bits of what is kept: state, events, values
KEPT_BITS = LEFT + COUNT_BITS
ARMS, OF_VALUES = 0, 3  # an update but its lowest bit: ARM_RECEIVE, ARM_SEND; MADE, MAY


@block
def fired_queue(
    clk: Any, rst: Any, clear: Any, push: Any, entry: Any, m_axis: FiredEntry, *, entries_log2: int
) -> Any:
    """Keep entries in the order in which they fired. push (strobe); no more than 2^entries_log2 a list."""
    BITS = entries_log2
    write_at, read_at, write_place, read_place = word(BITS + 1), word(BITS + 1), word(BITS), word(BITS)
    found, more, wait = word(ENTRIES_LOG2), bit(), word(2)
    memory = block_ram(clk, push, write_place, entry, read_place, found)

    @always_comb
    def place():
        write_place.next = write_at[BITS:]
        read_place.next = read_at[BITS:]
        more.next = write_at != read_at

    @always(clk.posedge)
    def run():
        wait.next = 0
        if push:
            write_at.next = write_at + 1
        if m_axis.tvalid:
            if m_axis.tready:
                m_axis.tvalid.next = False
                read_at.next = read_at + 1
        elif more:
            wait.next = wait + 1
            if wait == LANDS:
                m_axis.tvalid.next = True
                m_axis.tdata.next = found
        if rst or clear:
            write_at.next = 0
            read_at.next = 0
            m_axis.tvalid.next = False

    return memory, place, run


@block
def tracker(
    clk: Any, rst: Any, given: TrackerUpdate, received: TrackerUpdate, sent: TrackerUpdate, made: MadeRows,
    run: ListRun, m_axis_fire: FiredEntry, show: TrackerLook, gate: TrackerLook, status: TrackerStatus, *,
    entries_log2: int = ENTRIES_LOG2,
) -> Any:  # fmt: skip
    """Keep a state, events and values to come for each entry, and change them update by update.

    given, received, sent, made: the first one first where several wait. An entry that is armed as a SEND
    fires when it waits for nothing, and is under way then. An update that its entry is not in the state for
    changes nothing, and is an error in `status`. Between lists entries stay as they are, and what comes from
    `made` is refused; so is at any time what asks for an entry that the list has not, or that waits for less.
    """
    BITS = entries_log2
    states = enum("PICK", "FETCH", "GET", "JUDGE")
    state = Signal(states.PICK)
    write, at, data, found = bit(), word(BITS), word(KEPT_BITS), word(KEPT_BITS)
    look_at, looked, turn, spoilt, spoils = word(BITS), word(KEPT_BITS), bit(), bit(), bit()
    what, entry, events, values = word(3), word(ENTRIES_LOG2), word(EVENT_BITS), word(COUNT_BITS)
    right, fires, opened, closed, push, wrong = bit(), bit(), bit(), bit(), bit(), bit()
    changed, waits, left, asks, within = word(2), word(EVENT_BITS), word(COUNT_BITS), bit(), bit()
    open_entries = word(BITS + 1)
    memory = block_ram(clk, write, at, data, look_at, looked, found)
    queue = fired_queue(clk, rst, status.clear, push, entry, m_axis_fire, entries_log2=entries_log2)

    @always_comb
    def judge():
        """What an update makes of its entry."""
        changed.next = ARMED
        waits.next = events
        left.next = 0
        right.next = True
        fires.next = False
        if what == ARM_SEND:
            left.next = values
            fires.next = events == 0 and values == 0
        elif what == ARM_RECEIVE:
            waits.next = 0
        elif what == COUNT:
            right.next = found[2:] == ARMED and found[LEFT:2] != 0
            waits.next = found[LEFT:2] - 1
            left.next = found[KEPT_BITS:LEFT]
            fires.next = found[LEFT:2] == 1 and found[KEPT_BITS:LEFT] == 0
        elif what[3:1] == OF_VALUES:
            right.next = found[2:] == ARMED and found[KEPT_BITS:LEFT] >= values
            waits.next = found[LEFT:2]
            left.next = found[KEPT_BITS:LEFT] - values
            fires.next = found[LEFT:2] == 0 and found[KEPT_BITS:LEFT] == values
        elif what == START:
            right.next = found[2:] == ARMED and found[KEPT_BITS:2] == 0
            waits.next = 0
            changed.next = UNDER_WAY
        elif what == END:
            right.next = found[2:] == UNDER_WAY
            waits.next = 0
            changed.next = ENDED
        else:
            right.next = found[2:] == UNDER_WAY and what == BACK
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
                what.next = MAY
                if made.ends:
                    what.next = MADE
                entry.next = made.entry
                at.next = made.entry[BITS:]
                values.next = made.values
                state.next = states.FETCH
        elif state == states.FETCH:
            state.next = states.GET
        elif state == states.GET:
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
            data.next = UNDER_WAY
        write.next = state == states.JUDGE and right and what != MAY
        push.next = state == states.JUDGE and right and fires and what != MAY
        opened.next = state == states.JUDGE and what[3:1] == ARMS
        closed.next = state == states.JUDGE and right and what == END
        wrong.next = state == states.JUDGE and not right and what != MAY
        made.refused.next = state != states.JUDGE or not right
        made.taken.next = (state == states.JUDGE and what[3:1] == OF_VALUES) or (
            state == states.PICK and asks and not within and not made.taken
        )
        if rst:
            write.next = False
            push.next = False
            made.taken.next = False

    @always(clk.posedge)
    def ask():
        made.open.next = run.active
        asks.next = made.valid and not made.taken and not rst
        within.next = run.active and made.entry < run.entries

    @always(clk.posedge)
    def account():
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
        """Two take turns; what was read while a word was written counts for nothing."""
        turn.next = not turn
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

    return memory, queue, judge, pick, change, ask, account, look
