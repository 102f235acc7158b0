"""Compares the oldest frame in the store with the one that is wanted, and drops it if it is another."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.ports import FrameCommand
from oscar_hdl.nic.receive.deframer import CHECKSUM, CHUNK, COUNT, PEER, SEQUENCE, STEP, SUB_WIDTH
from oscar_hdl.nic.receive.frame_places import Places
from oscar_hdl.nic.receive.ports import FrameName, HeldFrame, MatchPort, ReaderUse
from oscar_hdl.streams.bundles import bit, word

SETTLED = 3  # clocks until the next frame's name is there; and from there until its reason is


@block
def name_differs(clk, named: FrameName, command: FrameCommand, checksum, discard, reason):
    """Say why a frame is not the command's, or 0 if it is: reason u4, three clocks later.

    The first difference is the reason; of a frame to discard (level) it is PEER.
    """
    step_same, chunk_same, sequence_same, sum_same, count_same = (word(2) for _ in range(5))
    sub_same, width_same, peer_same = bit(), bit(), bit()
    early, late = word(4), word(4)  # the first difference of each half

    @always(clk.posedge)
    def compare():
        step_same.next[0] = named.step[8:] == command.step[8:]
        step_same.next[1] = named.step[16:8] == command.step[16:8]
        chunk_same.next[0] = named.chunk[8:] == command.chunk[8:]
        chunk_same.next[1] = named.chunk[16:8] == command.chunk[16:8]
        sub_same.next = named.sub == command.sub
        width_same.next = named.width == command.width
        peer_same.next = named.peer == command.peer
        sequence_same.next[0] = named.sequence[8:] == command.sequence[8:]
        sequence_same.next[1] = named.sequence[16:8] == command.sequence[16:8]
        sum_same.next[0] = named.checksum[8:] == checksum[8:]
        sum_same.next[1] = named.checksum[16:8] == checksum[16:8]
        count_same.next[0] = named.count[9:] == command.count[9:]
        count_same.next[1] = named.count[19:9] == command.count[19:9] and not named.more

    @always(clk.posedge)
    def tell():
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
        reason.next = late
        if early != 0:
            reason.next = early
        if discard:
            reason.next = PEER

    return compare, tell


@block
def frame_match(
    clk, rst, match: MatchPort, command: FrameCommand, checksum, head, oldest, named: FrameName,
    held: HeldFrame, places: Places, use: ReaderUse, *, word_bits: int,
):  # fmt: skip
    """Wait for a frame at word `oldest`, and compare its name with command and checksum u16.

    A frame is there when it lies, whole, between oldest and head. If it is not the command's, it is refused;
    a frame to discard is, whatever its name is. When it matched, places.start is the payload's place and
    places.end the frame's end; when the next stage has it, `oldest` moves behind it. use.opens: a span begins
    at places.start. A raw block may begin to read (use.raw_reads) up to three clocks after use.reads was last
    low.
    """
    at_bits = len(oldest)
    top_bit = at_bits + word_bits
    states = enum("IDLE", "ASK", "BEGIN", "PUT", "ADD", "END", "JUDGE", "HOLD", "REST")
    state = Signal(states.IDLE)
    part, leave, behind, kept = word(2), bit(), word(at_bits), word(at_bits)
    some, free, asking, reason = bit(), bit(), bit(), word(4)

    differs = name_differs(clk, named, command, checksum, held.discard, reason)

    @always_comb
    def give():
        match.idle.next = state == states.IDLE
        asking.next = state == states.ASK and part == SETTLED
        places.at.next = oldest
        use.reads.next = not (
            state == states.IDLE or state == states.REST or (state == states.HOLD and use.released)
        )

    @always(clk.posedge)
    def look():
        some.next = head != oldest and not held.hold
        free.next = asking and not use.raw_reads
        behind.next = places.end[top_bit:word_bits]
        if places.end[word_bits:] != 0:
            behind.next = places.end[top_bit:word_bits] + 1
        if state == states.ASK:
            match.reason.next = reason

    @always(clk.posedge)
    def run():
        places.begin.next = False
        places.add.next = False
        use.opens.next = False
        part.next = 0
        if state == states.IDLE:
            if (match.seek or held.discard) and some:
                state.next = states.ASK
        elif state == states.ASK:
            if not asking:
                part.next = part + 1
            elif not some:
                state.next = states.REST
            elif free or match.reason != 0:
                places.begin.next = True
                state.next = states.BEGIN
            else:
                part.next = part
        elif state == states.BEGIN:
            state.next = states.PUT
        elif state == states.PUT:
            use.opens.next = match.reason == 0
            places.add.next = True
            state.next = states.ADD
        elif state == states.ADD:
            state.next = states.END
        elif state == states.END:
            state.next = states.JUDGE
        elif state == states.JUDGE:
            state.next = states.HOLD
        elif state == states.HOLD:
            if leave:
                state.next = states.REST
        else:
            part.next = part + 1
            if part == SETTLED:
                state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            use.opens.next = False

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

    return differs, give, look, run, part_with
