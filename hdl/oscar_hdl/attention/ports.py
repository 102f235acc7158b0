"""Bundles of the attention unit; docs/reference/attention.md says what its packets mean."""

from myhdl import Signal, SignalType, intbv

from oscar_hdl.attention.twin import MANTISSA_BITS, SHIFT_BITS, WEIGHT_BITS
from oscar_hdl.streams.bundles import Bundle, bit, word

AT_BITS, WORDS_BITS, ROWS_BITS = 4, 5, 17  # of a row's word, of how many there are, of rows
SCORE_BITS, STEP_BITS, TOP_BITS, RISE_BITS = 23, 24, 16, 6
TOTAL_BITS, SUM_BITS = 48, 56  # 2^16 rows of weights of 32 bits; the same times -128..127
# Why a head is refused, in its result.
QUERY, TOO_FEW, TOO_MANY = 1, 2, 3


def signed(bits: int) -> SignalType:
    """Return a signal of so many bits, the highest of which is its sign."""
    return Signal(intbv(0, min=-(1 << bits - 1), max=1 << bits - 1))


class Head(Bundle):
    """What a query says, from the clock behind `take` to the next one; ready: there is one to take."""

    ready, take, bad = bit(), bit(), bit()
    mantissa, shift = word(MANTISSA_BITS), word(SHIFT_BITS)
    words, rows = word(WORDS_BITS), word(ROWS_BITS)


class RowWord(Bundle):
    """Word `at` of a row's key or of its value; first, last: row of the head; end: of the key or value."""

    valid, value, data, at = bit(), bit(), word(64), word(AT_BITS)
    first, last, end = bit(), bit(), bit()


class Score(Bundle):
    """A row's score, in the clock of `made`."""

    made, first, score = bit(), bit(), signed(SCORE_BITS)


class Weight(Bundle):
    """A row's weight, by how many octaves the maximum rose with it, and the maximum and total up to it."""

    weight, rise = word(WEIGHT_BITS), word(RISE_BITS)
    top, total = signed(TOP_BITS), word(TOTAL_BITS)


class Give(Bundle):
    """A strobe: a head has ended, good (reason 0) or refused. free: the one before is out."""

    strobe, reason, free = bit(), word(2), bit()
