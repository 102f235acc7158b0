"""Compares the oldest frame in the store with the one that is wanted, and drops it if it is another."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.ports import FrameCommand
from oscar_hdl.nic.receive.chunk_reader import UnitPort
from oscar_hdl.nic.receive.deframer import CHECKSUM, CHUNK, COUNT, PEER, SEQUENCE, STEP, SUB_WIDTH
from oscar_hdl.nic.receive.frame_places import Places
from oscar_hdl.nic.receive.ports import HeldFrame, MatchPort, ReaderUse
from oscar_hdl.streams.bundles import bit, word


@block
def frame_match(
    clk: Any, rst: Any, match: MatchPort, command: FrameCommand, checksum: Any, head: Any, oldest: Any,
    held: HeldFrame, places: Places, put: Any, units: UnitPort, use: ReaderUse, *, word_bits: int,
) -> Any:  # fmt: skip
    """Wait for a frame between oldest and head, read its header, and compare with command and checksum u16.

    held.peer holds from ten clocks on behind it came, or the one before left. Of a frame to discard the
    header is read, then it is dropped.
    When it matched, places.start is the payload's place and places.end the frame's end; when the next stage
    has it, `oldest` moves behind it. put (strobe): a span for the unit reader begins at oldest. use.raw_reads
    began up to three clocks after use.reads was low.
    """
    at_bits = len(oldest)
    top_bit = at_bits + word_bits
    states = enum("IDLE", "ASK", "BEGIN", "PUT", "READ", "LOOK", "NOTE", "ADD", "END", "JUDGE", "HOLD")
    state = Signal(states.IDLE)
    part, got, leave, behind, kept = word(2), bit(), bit(), word(at_bits), word(at_bits)
    some, free, first, second = (bit() for _ in range(4))
    step_same, chunk_same, sequence_same, sum_same, count_same = (word(2) for _ in range(5))
    sub_same, width_same, peer_same = bit(), bit(), bit()
    early, late = word(4), word(4)  # the first difference of each half

    @always_comb
    def give():
        got.next = units.ready and not units.get
        match.idle.next = state == states.IDLE
        use.reads.next = state != states.IDLE and not (state == states.HOLD and use.released)
        units.amount.next = 4
        places.at.next = oldest

    @always(clk.posedge)
    def compare():
        """Bytes 0..7, and 8..15, as they lie in `units` from a clock before LOOK on."""
        step_same.next[0] = units.units[24:16] == command.step[8:]
        step_same.next[1] = units.units[32:24] == command.step[16:8]
        chunk_same.next[0] = units.units[40:32] == command.chunk[8:]
        chunk_same.next[1] = units.units[48:40] == command.chunk[16:8]
        sub_same.next = units.units[56:48] == command.sub
        width_same.next = units.units[64:56] == command.width
        peer_same.next = held.peer == command.peer
        sequence_same.next[0] = units.units[8:] == command.sequence[8:]
        sequence_same.next[1] = units.units[16:8] == command.sequence[16:8]
        sum_same.next[0] = units.units[24:16] == checksum[8:]
        sum_same.next[1] = units.units[32:24] == checksum[16:8]
        count_same.next[0] = units.units[41:32] == command.count[9:]
        count_same.next[1] = units.units[51:41] == command.count[19:9] and units.units[64:51] == 0
        some.next = head != oldest and not held.hold
        free.next = state == states.ASK and part == 3 and not use.raw_reads
        behind.next = places.end[top_bit:word_bits]
        if places.end[word_bits:] != 0:
            behind.next = places.end[top_bit:word_bits] + 1

    @always(clk.posedge)
    def tell():
        """Differences as reasons, from LOOK on."""
        early.next = 0
        if step_same != 3:
            early.next = STEP
        elif chunk_same != 3:
            early.next = CHUNK
        elif not (sub_same and width_same):
            early.next = SUB_WIDTH
        elif not peer_same:
            early.next = PEER
        late.next = 0
        if sequence_same != 3:
            late.next = SEQUENCE
        elif sum_same != 3:
            late.next = CHECKSUM
        elif count_same != 3:
            late.next = COUNT

    @always(clk.posedge)
    def note():
        """The first difference is the reason."""
        first.next = state == states.LOOK and part == 0
        second.next = state == states.LOOK and part == 1 and match.reason == 0
        if state == states.IDLE:
            match.reason.next = 0
        elif first:
            match.reason.next = early
            if held.discard:
                match.reason.next = PEER
        elif second:
            match.reason.next = late

    @always(clk.posedge)
    def run():
        places.begin.next = False
        places.add.next = False
        units.get.next = False
        if state == states.IDLE:
            part.next = 0
            if (match.seek or held.discard) and some:
                state.next = states.ASK
        elif state == states.ASK:  # `some` was late if a frame was just handed on
            part.next = part + 1
            if part == 3:
                part.next = 3
            if not some:
                state.next = states.IDLE
            elif free:
                places.begin.next = True
                state.next = states.BEGIN
        elif state == states.BEGIN:
            part.next = 0
            state.next = states.PUT
        elif state == states.PUT:
            put.next = True
            if put:
                put.next = False
                units.get.next = True
                state.next = states.READ
        elif state == states.READ:
            if got:
                state.next = states.LOOK
        elif state == states.LOOK:
            state.next = states.NOTE
        elif state == states.NOTE:
            part.next = part + 1
            units.get.next = True
            state.next = states.READ
            if part == 2:
                units.get.next = False
                places.add.next = True
                state.next = states.ADD
        elif state == states.ADD:
            state.next = states.END
        elif state == states.END:
            state.next = states.JUDGE
        elif state == states.JUDGE:
            state.next = states.HOLD
        elif state == states.HOLD and leave:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            put.next = False
            units.get.next = False

    @always(clk.posedge)
    def part_with():
        """The frame is the next stage's, or dropped."""
        leave.next = match.forget or match.heard
        match.matched.next = state == states.JUDGE and match.reason == 0
        match.gone.next = state == states.HOLD and leave
        held.gone.next = state == states.HOLD and leave
        held.refused.next = state == states.JUDGE and match.reason != 0
        if state == states.JUDGE:
            match.refuse.next = match.reason != 0
            kept.next = behind
        elif state == states.HOLD and leave:
            oldest.next = kept
        if match.heard:
            match.refuse.next = False
        if rst:
            match.refuse.next = False
            leave.next = False
            match.gone.next = False
            held.gone.next = False
            held.refused.next = False
            match.matched.next = False
            oldest.next = 0

    return give, compare, tell, note, run, part_with
