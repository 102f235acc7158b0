"""Where things are in the store: how far a frame was read, and where it ends."""

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.streams.bundles import bit, word

SUM_BITS = 20  # bytes of a frame's blocks: at most 2^19


class Places:
    """What is asked of frame_places.

    start, end: addresses of bytes in the store; from the frame's begin on, so they may lie a turn too far.
    begin (strobe): start becomes the begin of the payload, of a frame at word `at`. get (strobe): start moves
    on by `amount` units of 16 bits. add (strobe): end becomes start + a length, or end - bytes if `less`;
    what is added and less hold for a clock before. same: start and end were equal a clock ago.
    """

    def __init__(self, at_bits: int, word_bits: int) -> None:
        self.begin, self.at = bit(), word(at_bits)
        self.get, self.amount = bit(), word(3)
        self.add, self.less = bit(), bit()
        bits = max(SUM_BITS, at_bits + word_bits) + 1
        self.start, self.end, self.same = word(bits), word(bits), bit()


@block
def frame_places(clk, places: Places, length, entry_bytes, *, word_bits: int):
    """Hold places.start and places.end; length, entry_bytes (less) u20: what is added.

    word_bits: log2 of the bytes of a word of the store.
    """
    bits, at_bits, PAYLOAD = len(places.start), len(places.at), HEADER_BYTES
    ABOVE, BEYOND = bits - at_bits - word_bits, bits - SUM_BITS
    NEGATIVE = (1 << BEYOND) - 1
    inverted = word(SUM_BITS)
    extra, carry, base, total = word(bits), bit(), word(bits), word(bits + 1)

    @always_comb
    def add():
        inverted.next = ~entry_bytes
        base.next = places.start
        if places.less:
            base.next = places.end

    @always_comb
    def sums():
        total.next = concat(base, True) + concat(extra, carry)

    @always(clk.posedge)
    def run():
        carry.next = places.less
        places.same.next = places.start == places.end
        extra.next = concat(modbv(0)[BEYOND:], length)
        if places.less:
            extra.next = concat(modbv(NEGATIVE)[BEYOND:], inverted)
        if places.add:
            places.end.next = total[bits + 1 : 1]
        if places.get:
            places.start.next = places.start + concat(places.amount, False)
        if places.begin:
            places.start.next = concat(modbv(0)[ABOVE:], places.at, modbv(0)[word_bits:]) + PAYLOAD

    return add, sums, run
