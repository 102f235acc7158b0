"""Finds the RECEIVE of a list that waits for the oldest frame, and has its command given."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.control import list_ports as lists
from oscar_hdl.nic.ports import ENTRIES_LOG2
from oscar_hdl.nic.receive.ports import HeldFrame, OldestFrame
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word

OPEN = lists.NAME_BITS  # bits of what is kept: name, whether it waits, gate, need
GATE = OPEN + 1
NEED = GATE + ENTRIES_LOG2
KEPT_BITS = NEED + 2
LANDS = 2  # clocks until a word that was just written can be read
LOOKS = 15  # clocks until the gate shows in `gate`


@block
def frame_finder(
    clk, rst, oldest: OldestFrame, held: HeldFrame, armed: lists.ArmedReceive, run: lists.ListRun,
    found: lists.FoundEntry, gate: lists.TrackerLook, *, entries_log2: int = ENTRIES_LOG2,
):  # fmt: skip
    """Look an entry a clock for one that waits for the oldest frame; without one, have the frame dropped.

    While a list runs, no command looks at the oldest frame before it was found for that. If the frame is
    dropped then (it has the name, but not the rest), the command is aborted, and its entry waits again when
    that is told. When no entry waits any more, frames stay.
    """
    BITS = entries_log2
    states = enum("REST", "WAIT", "SCAN", "FOUND", "GATED", "GIVE", "USED", "DROP", "ABORT", "AGAIN")
    state = Signal(states.REST)
    write, write_at, data = bit(), word(BITS), word(KEPT_BITS)
    read_at, read, step, waiting = word(BITS), word(KEPT_BITS), word(4), word(BITS + 1)
    scans, last, at, at_1, at_2 = word(3), word(3), *(word(BITS) for _ in range(3))
    same, final, name, lost = word(5), word(BITS), word(lists.NAME_BITS), bit()
    need, some, kept, scanning, at_end, open = word(2), bit(), word(KEPT_BITS), bit(), bit(), bit()
    keeps, more, less = bit(), bit(), bit()  # level: no command may have the frame; strobes: waiting +1, -1
    memory = block_ram(clk, write, write_at, data, read_at, read)

    @always_comb
    def tell():
        held.hold.next = run.running and keeps
        run.looking.next = state != states.REST and state != states.WAIT
        found.valid.next = state == states.GIVE
        scanning.next = state == states.SCAN
        at_end.next = read_at == final
        found.aborts.next = state == states.ABORT

    @always(clk.posedge)
    def keep():
        """Entries as they are armed, taken, and armed again."""
        write.next = armed.put
        write_at.next = armed.entry[BITS:]
        data.next = concat(armed.need, armed.gate, armed.open, armed.name)
        if found.given:
            write.next = True
            write_at.next = found.entry[BITS:]
            data.next = concat(kept[KEPT_BITS:GATE], modbv(0)[1:], kept[OPEN:])
        elif state == states.AGAIN and found.returned:
            write.next = True
            write_at.next = found.entry[BITS:]
            data.next = concat(kept[KEPT_BITS:GATE], modbv(1)[1:], kept[OPEN:])
        some.next = waiting != 0
        more.next = (armed.put and armed.open) or (state == states.AGAIN and found.returned)
        less.next = found.given
        if more:
            waiting.next = waiting + 1
        elif less:
            waiting.next = waiting - 1
        if run.started:
            waiting.next = 0
        if rst:
            write.next = False
            more.next = False
            less.next = False
            waiting.next = 0

    @always(clk.posedge)
    def compare():
        """The word of the entry that was asked for two clocks before; parts of names, then all of it."""
        at.next = read_at
        at_1.next = at
        at_2.next = at_1
        scans.next = concat(scans[2:], scanning)
        final.next = run.entries[BITS:] - 1
        last.next = concat(last[2:], at_end)
        same.next[0] = read[16:] == name[16:]
        same.next[1] = read[32:16] == name[32:16]
        same.next[2] = read[lists.NAME_BITS : 32] == name[lists.NAME_BITS : 32]
        same.next[3] = read[OPEN] and scans[1]
        same.next[4] = last[1] and scans[1]
        if same[4:] == 15 and state == states.SCAN:
            found.entry.next = at_2
        if state == states.FOUND and step == LANDS + 1:
            kept.next = read

    @always(clk.posedge)
    def follow():
        step.next = 0
        if state == states.REST:
            if run.active:
                state.next = states.WAIT
        elif state == states.WAIT:
            read_at.next = 0
            if not run.active:
                state.next = states.REST
            elif oldest.there and some and not run.stop:
                step.next = step + 1
                if step == LANDS:
                    state.next = states.SCAN
        elif state == states.SCAN:
            read_at.next = read_at + 1
            if same[4:] == 15:
                state.next = states.FOUND
            elif same[4]:
                state.next = states.DROP
        elif state == states.FOUND:
            read_at.next = found.entry[BITS:]
            step.next = step + 1
            if step == LANDS + 2:
                step.next = 0
                state.next = states.GIVE
                if need != lists.COUNTS and need != lists.NO_GATE:
                    state.next = states.GATED
        elif state == states.GATED:
            step.next = step + 1
            if step == LOOKS:
                step.next = step
                if run.stop:
                    state.next = states.WAIT
                elif open:
                    state.next = states.GIVE
        elif state == states.GIVE:
            if found.given:
                state.next = states.USED
            elif run.stop and run.idle:
                state.next = states.WAIT
        elif state == states.USED:
            if held.gone:
                state.next = states.WAIT
                if lost:
                    state.next = states.ABORT
        elif state == states.DROP:
            if held.gone:
                state.next = states.WAIT
        elif state == states.ABORT:
            state.next = states.AGAIN
        elif found.returned:
            state.next = states.WAIT
        if rst:
            state.next = states.REST

    @always(clk.posedge)
    def note():
        keeps.next = state != states.USED and state != states.DROP
        held.discard.next = state == states.DROP
        name.next = concat(oldest.peer, oldest.sub, oldest.chunk, oldest.step)
        gate.at.next = kept[NEED:GATE]
        need.next = read[KEPT_BITS:NEED]
        open.next = gate.state == lists.ENDED or (need == lists.OWN and gate.left == 0)
        lost.next = state == states.USED and (lost or held.refused)
        if rst:
            keeps.next = True
            held.discard.next = False

    return memory, tell, keep, compare, follow, note
