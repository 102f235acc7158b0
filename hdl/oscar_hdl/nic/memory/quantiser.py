"""Floats to integers in steps of a power of two (docs/reference/float-packets.md)."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.ports import NOT_FINITE, STREAM_LANES, FloatFormat
from oscar_hdl.nic.ports import BFLOAT16, FLOAT32, STREAM_BITS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain

LATENCY = 5  # clocks from a float to its result
FRACTION, FLOAT_BITS = 23, 32  # of a float32
COARSE = 17  # bits that a shift by bytes leaves of a mantissa; the lowest one is below the point
GONE = 32  # a right shift from which on nothing is left of a mantissa


@block
def quantiser_lane(clk, value, base, least, limit, result, mark):
    """Quantise a float a clock, LATENCY clocks later.

    value: the upper bits of a float32; the others are 0. mark: it has saturated, or is NaN or Inf. base,
    least, limit: see FloatFormat; they hold meanwhile.
    """
    REST, END, LOW, WIDE = FLOAT_BITS - len(value), FLOAT_BITS - 1, FRACTION, FRACTION + 1
    whole, exponent, mantissa, shift, fine = word(FLOAT_BITS), word(8), word(WIDE), word(10), word(3)
    coarse, moved, lost, normal = word(COARSE), word(COARSE), bit(), bit()
    # A number says after how many clocks: the sign; NaN or Inf; it saturates; bits below `half` are set.
    minus1, minus2, minus3, minus4 = (bit() for _ in range(4))
    special1, special2, special3, special4 = (bit() for _ in range(4))
    over2, over3, over4, below2, below3 = (bit() for _ in range(5))
    size, half, up, flipped, carry, total = word(16), bit(), bit(), word(16), word(1), word(16)
    above = word(16)  # bits that a result has not, but for its sign
    delays = chain(clk, minus1, minus2, minus3, minus4), chain(clk, special1, special2, special3, special4)

    if REST:

        @always_comb
        def extend():
            whole.next = concat(value, modbv(0)[REST:])

    else:

        @always_comb
        def extend():
            whole.next = value

    @always_comb
    def cut():
        exponent.next = whole[END:LOW]
        normal.next = True
        if whole[END:LOW] == 0:
            exponent.next = 1
            normal.next = False

    @always(clk.posedge)
    def unpack():
        minus1.next = whole[END]
        special1.next = whole[END:LOW] == 255
        mantissa.next = concat(normal, whole[LOW:])
        shift.next = base - exponent

    @always(clk.posedge)
    def shift_bytes():
        fine.next = shift[3:]
        over2.next = shift[9] or shift < least
        coarse.next = 0
        below2.next = False
        if shift < GONE:
            if shift[5:3] == 1:
                coarse.next = mantissa[WIDE:7]
                below2.next = mantissa[7:] != 0
            elif shift[5:3] == 2:
                coarse.next = mantissa[WIDE:15]
                below2.next = mantissa[15:] != 0
            elif shift[5:3] == 3:
                coarse.next = mantissa[LOW]
                below2.next = mantissa[LOW:] != 0

    @always_comb
    def shift_bits():
        moved.next = coarse >> fine
        lost.next = below2
        for i in range(7):
            if fine > i and coarse[i]:
                lost.next = True

    @always(clk.posedge)
    def keep():
        size.next = moved[COARSE:1]
        half.next = moved[0]
        below3.next = lost
        over3.next = over2

    @always_comb
    def choose():
        above.next = ~limit
        up.next = half and (below3 or size[0])
        carry.next = (half and (below3 or size[0])) != minus3
        flipped.next = size
        if minus3:
            flipped.next = ~size

    @always(clk.posedge)
    def add():
        """Round and give the sign in one sum."""
        total.next = flipped + carry
        over4.next = over3 or (up and size == limit)

    @always(clk.posedge)
    def bound():
        result.next = total
        mark.next = over4 or special4
        if special4:
            result.next = NOT_FINITE
        elif over4:
            result.next = limit
            if minus4:
                result.next = above | 1

    return delays, extend, cut, unpack, shift_bytes, shift_bits, keep, choose, add, bound


@block
def float_choice(data, packet: FloatFormat, value, *, bank: int, number: int):
    """Take a float of a bank's word: as a float32 where `value` has room for one, or as a bfloat16."""
    HALF, SHORT = FLOAT_BITS // 2, STREAM_BITS * bank + FLOAT_BITS // 2 * number
    LOW, SHORT_END = STREAM_BITS * bank + FLOAT_BITS * number, SHORT + HALF
    END = LOW + FLOAT_BITS

    if len(value) == HALF:

        @always_comb
        def choose():
            value.next = data[SHORT_END:SHORT]

    else:

        @always_comb
        def choose():
            value.next = data[END:LOW]
            if packet.format == BFLOAT16:
                value.next = concat(data[SHORT_END:SHORT], modbv(0)[HALF:])

    return choose


@block
def quantiser(clk, data, early, packet: FloatFormat, integers, marks, *, bank: int):
    """Quantise eight bfloat16 of a bank a clock, or four float32, LATENCY clocks later.

    data: a word of all banks. integers u128, marks u8: of eight values, the first one lowest; of float32 with
    the last four. early: level, of float32 what is there are the first four.
    """
    LANES, FOUR = range(STREAM_LANES), STREAM_LANES // 2
    values = [word(FLOAT_BITS if n < FOUR else FLOAT_BITS // 2) for n in LANES]
    found, told = [word(16) for n in LANES], [bit() for n in LANES]
    first, second, third, fourth, fifth, sixth, seventh, eighth = found
    m1, m2, m3, m4, m5, m6, m7, m8 = told
    kept, kept_marks = word(STREAM_BITS // 2), word(FOUR)

    @always(clk.posedge)
    def keep():
        if early:
            kept.next = concat(fourth, third, second, first)
            kept_marks.next = concat(m4, m3, m2, m1)

    @always_comb
    def join():
        integers.next = concat(eighth, seventh, sixth, fifth, fourth, third, second, first)
        marks.next = concat(m8, m7, m6, m5, m4, m3, m2, m1)
        if packet.format == FLOAT32:
            integers.next = concat(fourth, third, second, first, kept)
            marks.next = concat(m4, m3, m2, m1, kept_marks)

    lanes = [
        (
            float_choice(data, packet, value, bank=bank, number=n),
            quantiser_lane(clk, value, packet.base, packet.least, packet.limit, result, mark),
        )
        for n, (value, result, mark) in enumerate(zip(values, found, told, strict=True))
    ]
    return lanes, keep, join
