"""Which entries of a list the commands under way are of, and what their ends are to others."""

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.control import list_ports as lists
from oscar_hdl.nic.control.registers import ERROR_ABORTED
from oscar_hdl.nic.ports import ENTRIES_LOG2, ERROR_BITS
from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.copied import copied

MOST_LOG2 = 3  # commands of a direction: four under way, one that waits, and those whose ends are told
KEPT_BITS = 2 * ENTRIES_LOG2 + 1


@block
def list_ends(
    clk, rst, started: lists.StartedEntry, done, error, update: lists.TrackerUpdate,
    ended: lists.EndedEntries, *, receive: bool,
):  # fmt: skip
    """Turn ends of commands of a direction into updates, in their order.

    done (strobe) with error u3; those of commands that no list gave do nothing. One that ended well ends its
    entry, and a RECEIVE counts for its gate behind that. One that was aborted waits again. Another error is
    told.
    """
    states = enum("WAIT", "READ", "DECIDE", "FIRST", "COUNT", "SECOND", "NEXT")
    state = Signal(states.WAIT)
    entries = [word(KEPT_BITS) for _ in range(1 << MOST_LOG2)]
    errors = [word(ERROR_BITS) for _ in range(1 << MOST_LOG2)]
    put_at, done_at, read_at = (word(MOST_LOG2) for _ in range(3))
    kept, outcome, fresh = word(KEPT_BITS), word(ERROR_BITS), word(KEPT_BITS)

    if receive:

        @always_comb
        def join():
            fresh.next = concat(started.counts, started.gate, started.entry)

    else:
        join = copied(None, started.entry, fresh)

    @always(clk.posedge)
    def keep():
        if started.put:
            entries[put_at].next = fresh
            put_at.next = put_at + 1
        if done and put_at != done_at:
            errors[done_at].next = error
            done_at.next = done_at + 1
        kept.next = entries[read_at]
        outcome.next = errors[read_at]
        if state == states.NEXT:
            read_at.next = read_at + 1
        if rst:
            put_at.next = 0
            done_at.next = 0
            read_at.next = 0

    @always_comb
    def rest():
        ended.quiet.next = state == states.WAIT and done_at == read_at

    @always(clk.posedge)
    def tell():
        ended.failed.next = state == states.DECIDE and outcome != 0 and outcome != ERROR_ABORTED
        ended.entry.next = kept[ENTRIES_LOG2:]
        ended.returned.next = state == states.NEXT and outcome == ERROR_ABORTED
        if state == states.DECIDE:
            update.entry.next = kept[ENTRIES_LOG2:]
            update.what.next = lists.END
            if outcome == ERROR_ABORTED:
                update.what.next = lists.BACK
        elif state == states.COUNT:
            update.entry.next = kept[2 * ENTRIES_LOG2 : ENTRIES_LOG2]
            update.what.next = lists.COUNT
        if update.taken:
            update.valid.next = False
        elif (state == states.DECIDE and (outcome == 0 or outcome == ERROR_ABORTED)) or (
            state == states.COUNT
        ):  # fmt: skip
            update.valid.next = True
        if rst:
            ended.failed.next = False
            ended.returned.next = False
            update.valid.next = False

    @always(clk.posedge)
    def run():
        if state == states.WAIT:
            if done_at != read_at:
                state.next = states.READ
        elif state == states.READ:
            state.next = states.DECIDE
        elif state == states.DECIDE:
            state.next = states.FIRST
            if outcome != 0 and outcome != ERROR_ABORTED:
                state.next = states.NEXT
        elif state == states.FIRST:
            if update.taken:
                state.next = states.NEXT
                if kept[2 * ENTRIES_LOG2] and outcome == 0:
                    state.next = states.COUNT
        elif state == states.COUNT:
            state.next = states.SECOND
        elif state == states.SECOND:
            if update.taken:
                state.next = states.NEXT
        else:
            state.next = states.WAIT
        if rst:
            state.next = states.WAIT

    return join, keep, rest, tell, run
