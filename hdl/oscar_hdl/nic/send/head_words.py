"""Gathers the frame's head into words of the store, and makes its part of the frame's CRC."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.nic.send.ports import HeadJob, HeadLane
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.linear_map import ONES, linear_map, step

LENGTH_AT, CRC_AT = HEADER_BYTES - 8, HEADER_BYTES - 4  # bytes of the header: its last two fields
LENGTH_BITS = 20  # of a frame


@block
def pair_crc(clk, begin, take, pair, crc):
    """Keep the CRC-32, not inverted, of pairs of bytes, which begins with ones; take: strobe."""
    low, moved = word(16), word(32)
    move = linear_map(low, moved, [step(1 << i, 0, 16) for i in range(16)])

    @always_comb
    def look():
        low.next = crc[16:] ^ pair

    @always(clk.posedge)
    def follow():
        if take:
            crc.next = moved ^ (crc >> 16)
        if begin:
            crc.next = ONES

    return move, look, follow


@block
def head_sums(clk, rst, begin, head: HeadJob, crc, ready, lane: HeadLane):
    """Have the frame's length and then the rest of its head added to the frame's CRC.

    crc: of all but the length; ready (level): it is that of all words up to lane.offset. In the message the
    header lies four bytes further on, since its own CRC is left out.
    """
    SIZE = len(lane.given) // 9
    LENGTH_END = -(-HEADER_BYTES // SIZE)  # in words
    BEHIND = 8 * (-HEADER_BYTES % SIZE)  # bits of the word behind the header
    states = enum("OPEN", "LENGTH", "WAIT", "HEAD", "OVER")
    state = Signal(states.OVER)
    length_crc = word(32)
    far = linear_map(
        head.length, length_crc, [step(step(0, 1 << i, 32), 0, BEHIND) for i in range(LENGTH_BITS)]
    )  # fmt: skip

    @always_comb
    def tell():
        lane.sum.next = state == states.LENGTH or state == states.HEAD
        head.over.next = state == states.OVER

    @always(clk.posedge)
    def run():
        if state == states.OPEN:
            lane.state.next = length_crc
            lane.sum_at.next = LENGTH_END
        elif state == states.WAIT:
            lane.state.next = crc
            lane.sum_at.next = lane.offset
        if state == states.OPEN:
            if head.close:
                state.next = states.LENGTH
        elif state == states.LENGTH:
            if lane.summed:
                state.next = states.WAIT
        elif state == states.WAIT:
            if ready:
                state.next = states.HEAD
        elif state == states.HEAD and lane.summed:
            state.next = states.OVER
        if begin:
            state.next = states.OPEN
        if rst:
            state.next = states.OVER

    return far, tell, run


@block
def head_words(clk, rst, begin, s_axis: Stream, head: HeadJob, limit, nothing_left, crc, lane: HeadLane):
    """Give words of the store as pairs come, and in the end the one with length and CRC.

    begin (strobe): a new frame. s_axis: head_writer's pairs. limit, nothing_left: as of byte_collector; as
    there offset stays where the frame is too long. crc u32 (not inverted) holds with head.seal.
    """
    SIZE, BITS = len(lane.given) // 9, len(lane.offset)
    PAIRS, FULL = SIZE // 2, (1 << (BITS - 2)) - 1
    LAST, CRC_PAIR = PAIRS - 1, CRC_AT // 2
    SEAL_WORD, SEAL = LENGTH_AT // SIZE, LENGTH_AT % SIZE // 2
    states = enum("PAIRS", "PAD", "PADDED", "REST")
    state = Signal(states.REST)
    lanes, kept = [word(16) for _ in range(PAIRS)], word(PAIRS)
    at, number = word(PAIRS.bit_length() - 1), word(4)  # of the next pair: in its word, in the frame
    complete, room, got, stored, ready = (bit() for _ in range(5))
    take, pair, own_crc, data, enable = bit(), word(16), word(32), word(8 * SIZE), word(SIZE)

    parts = [
        joined(lanes, data),
        pair_crc(clk, begin, take, pair, own_crc),
        head_sums(clk, rst, begin, head, own_crc, ready, lane),
    ]

    @always_comb
    def look():
        s_axis.tready.next = not complete or lane.granted
        got.next = s_axis.tvalid and (not complete or lane.granted)
        lane.wants.next = complete and room and not lane.granted
        head.idle.next = not complete

    @always_comb
    def give():
        for i in range(SIZE):
            enable.next[i] = kept[i // 2]
        lane.given.next = concat(enable, data)

    @always(clk.posedge)
    def gather():
        room.next = nothing_left or concat(modbv(0)[1:], lane.offset[BITS:2]) + 1 < limit
        if lane.granted and complete:
            complete.next = False
            kept.next = 0
            if lane.offset[BITS:2] != FULL:
                lane.offset.next = lane.offset + 1
        for i in range(PAIRS):
            if got and at == i:
                lanes[i].next = s_axis.tdata
                kept.next[i] = True
        if got and (at == LAST or s_axis.tlast):
            complete.next = True
        if head.seal:
            lanes[SEAL].next = head.length[16:]
            lanes[SEAL + 1].next = head.length[LENGTH_BITS:16]
            lanes[SEAL + 2].next = ~crc[16:]
            lanes[SEAL + 3].next = ~crc[32:16]
            for i in range(SEAL, SEAL + 4):
                kept.next[i] = True
            lane.offset.next = SEAL_WORD
            complete.next = True
        if begin or rst:
            complete.next = False
            kept.next = 0
            lane.offset.next = 0

    @always(clk.posedge)
    def sum_up():
        """Give the CRC what comes, but for its own place, and zeros up to the end of the last word."""
        pair.next = s_axis.tdata
        take.next = got and not (number == CRC_PAIR or number == CRC_PAIR + 1)
        if state != states.PAIRS:
            pair.next = 0
            take.next = state == states.PAD
        if lane.granted:
            stored.next = state != states.PAIRS
        ready.next = stored and state == states.REST
        if begin:
            take.next = False
            stored.next = False

    @always(clk.posedge)
    def run():
        if got or state == states.PAD:
            at.next = at + 1
        if got and number <= CRC_PAIR + 1:
            number.next = number + 1
        if state == states.PAIRS:
            if got and s_axis.tlast:
                state.next = states.PAD
                if at == LAST:
                    state.next = states.PADDED
        elif state == states.PAD:
            if at == LAST:
                state.next = states.PADDED
        else:
            state.next = states.REST
        if begin:
            at.next = 0
            number.next = 0
            state.next = states.PAIRS
        if rst:
            state.next = states.REST

    return parts, look, give, gather, sum_up, run
