"""The bytes of all threads: 512 each in a ring, of which eight lanes take up to two each a clock."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.ports import PLACE_BITS, REST, RING_BITS
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS, WIDTH
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, lane, word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.lane_delay import lane_delay

EIGHTS_BITS = THREAD_BITS + RING_BITS - 3  # of the number of eight bytes


@block
def pair_bytes(clk, phase, put, thread27, place27, offset27, first, second):
    """Give two lanes their bytes.

    put: Put. thread27 u3, place27: of the first byte of all lanes, offset27 u4: and how many are before
    these lanes'. first, second: LaneBytes, the bytes of the first come first.
    """
    low_at28, high_at28 = word(EIGHTS_BITS), word(EIGHTS_BITS)
    ahead27, own27 = word(RING_BITS), word(RING_BITS)
    low30, high30, by28, by29, by30, by31 = word(32), word(32), word(3), word(3), word(3), word(2)
    window31, bytes32, needs24, needs32 = word(56), word(32), word(4), word(4)
    one_a32, two_a32, one_b32, two_b32 = bit(), bit(), bit(), bit()
    low = block_ram(clk, put.write, put.at, put.low, low_at28, low30)
    high = block_ram(clk, put.write, put.at, put.high, high_at28, high30)
    late = lane_delay(clk, phase, needs24, needs32, 8)

    # The eight bytes behind a place: four of one memory, then four of the other.
    @always_comb
    def find():
        own27.next = place27 + offset27
        ahead27.next = place27 + offset27 + 4
        needs24.next = concat(second.two24, second.one24, first.two24, first.one24)
        one_a32.next = needs32[0]
        two_a32.next = needs32[1]
        one_b32.next = needs32[2]
        two_b32.next = needs32[3]

    @always(clk.posedge)
    def read():
        high_at28.next = concat(thread27, own27[RING_BITS:3])
        low_at28.next = concat(thread27, ahead27[RING_BITS:3])
        by28.next = own27[3:]
        by31.next = by30[2:]
        if by30[2]:
            window31.next = concat(low30[24:], high30)
        else:
            window31.next = concat(high30[24:], low30)
        if by31 == 0:
            bytes32.next = window31[32:]
        elif by31 == 1:
            bytes32.next = window31[40:8]
        elif by31 == 2:
            bytes32.next = window31[48:16]
        else:
            bytes32.next = window31[56:24]

    @always(clk.posedge)
    def deal():
        first.one33.next = one_a32
        first.two33.next = two_a32
        second.one33.next = one_b32
        second.two33.next = two_b32
        first.middle33.next = 0
        first.low33.next = bytes32[8:]
        if two_a32:
            first.middle33.next = bytes32[8:]
            first.low33.next = bytes32[16:8]
        second.middle33.next = 0
        if two_a32:
            second.low33.next = bytes32[24:16]
            if two_b32:
                second.middle33.next = bytes32[24:16]
                second.low33.next = bytes32[32:24]
        elif one_a32:
            second.low33.next = bytes32[16:8]
            if two_b32:
                second.middle33.next = bytes32[16:8]
                second.low33.next = bytes32[24:16]
        else:
            second.low33.next = bytes32[8:]
            if two_b32:
                second.middle33.next = bytes32[8:]
                second.low33.next = bytes32[16:8]

    return low, high, late, chain(clk, by28, by29, by30), find, read, deal


@block
def byte_counts(clk, ones24, twos24, offsets27, total27):
    """Count bytes of lanes, the last lane's first.

    ones24, twos24: u8, one byte and two. offsets27 u16: bytes before lanes 7, 5, 3, 1, u4 each. total27 u5.
    """
    a25, b25, c25, d25 = word(3), word(3), word(3), word(3)
    a26, ab26, c26, cd26 = word(4), word(4), word(4), word(4)
    ab27, abc27, a27 = word(4), word(4), word(4)

    @always(clk.posedge)
    def pairs():
        a25.next = concat(twos24[7], ones24[7]) + concat(twos24[6], ones24[6])
        b25.next = concat(twos24[5], ones24[5]) + concat(twos24[4], ones24[4])
        c25.next = concat(twos24[3], ones24[3]) + concat(twos24[2], ones24[2])
        d25.next = concat(twos24[1], ones24[1]) + concat(twos24[0], ones24[0])
        a26.next = a25
        ab26.next = concat(False, a25) + b25
        c26.next = c25
        cd26.next = concat(False, c25) + d25
        a27.next = a26
        ab27.next = ab26
        abc27.next = ab26 + c26
        total27.next = concat(False, ab26) + cd26

    @always_comb
    def join():
        offsets27.next = concat(abc27, ab27, a27, False, False, False, False)

    return pairs, join


@block
def byte_places(clk, phase, plan25, plan29, begin, total27, place27, thread27, looked, place):
    """Follow the places of threads in their blocks, which count up to 0.

    plan25, plan29: DecodePlan. begin: Begin, in phases other than 2. total27 u5: bytes of a clock. place27
    u20, thread27 u3: of the clock's first byte. place u20: that of thread `looked` u3, a clock later.
    """
    places = [word(PLACE_BITS) for _ in range(THREADS)]
    after27 = word(PLACE_BITS)

    @always_comb
    def add():
        after27.next = place27 + total27

    # A turn's last bytes are known in clock 30, the one before the next turn's first.
    @always(clk.posedge)
    def count():
        place27.next = after27
        if phase[2:] == 2:
            place27.next = places[plan25.thread]
            thread27.next = plan25.thread
        if phase[2:] == 2 and plan29.op != REST:
            places[plan29.thread].next = after27
        elif begin.write:
            places[begin.thread].next = begin.place
        place.next = places[looked]

    return add, count


@block
def byte_rings(clk, phase, plan25, plan29, begin, put, taken, looked, place):
    """Give lanes the bytes that they take; the last lane's come first.

    plan25, plan29: DecodePlan. begin: Begin. put: Put. taken: LaneBytes of each lane. looked u3, place u20:
    of byte_places.
    """
    ones24, twos24, offsets27, total27 = word(WIDTH), word(WIDTH), word(16), word(5)
    place27, thread27 = word(PLACE_BITS), word(THREAD_BITS)
    ring27, offsets = place27(RING_BITS, 0), [lane(offsets27, n, 4) for n in range(4)]
    one_of, two_of = [lane.one24 for lane in taken], [lane.two24 for lane in taken]
    ones, twos = joined(one_of, ones24), joined(two_of, twos24)
    counts = byte_counts(clk, ones24, twos24, offsets27, total27)
    places = byte_places(clk, phase, plan25, plan29, begin, total27, place27, thread27, looked, place)
    pairs = [
        pair_bytes(clk, phase, put, thread27, ring27, offsets[n], taken[7 - 2 * n], taken[6 - 2 * n])
        for n in range(4)
    ]

    return ones, twos, counts, places, pairs
