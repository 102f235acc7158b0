"""Device functions that all Triton kernels of ASC share: bit lengths, classes, contexts, symbols, counters.

Integers only. A float32 occurs only as a way to read a bit length: it holds an integer below 2^24 exactly.
Layout: the last axis has the 32 lanes of a row; a *tile* is [32][32], the rows of a group by their lanes.
Numbers of values stay below 2^30 (TritonCoder refuses more), so value indices are int32. Byte offsets are
int64.
"""

from __future__ import annotations

import triton
import triton.language as tl

from oscar.coding.asc import params

HALF_COUNTED, CROWD = tl.constexpr(params.HALF_COUNTED), tl.constexpr(params.CROWD)
BINS = tl.constexpr(params.TABLE_ROWS * params.SYMBOLS)
# Places of `meta`, int32 [8], which the encoder's kernels share: written by find_magnitude (MAGNITUDE),
# classify (LOW, HIGH) and tables (SHIFT, LOG2, SENT, LAST), read by those that run later on the same stream.
MAGNITUDE, LOW, HIGH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
SHIFT, LOG2, SENT, LAST = tl.constexpr(3), tl.constexpr(4), tl.constexpr(5), tl.constexpr(6)
META = 8  # int32 in `meta`; the last is unused
OPTIONS = {"enable_fp_fusion": False}  # for every launch; nothing here multiplies and adds float32
COPIES = tl.constexpr(256)  # of the counters [32][16]: programs that run at the same time rarely share one
GROUP_FIELDS = tl.constexpr(3)  # int32 for each group: lowest value, highest value, rows whose class is not 0


@triton.jit
def short_length(x):
    """Return the bit length of 0 <= x < 2^24, read from the exponent of an exact float32."""
    exponent = x.to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.maximum(exponent - 126, 0)


@triton.jit
def bit_length(x):
    """Return the bit length of 0 <= x < 2^31."""
    upper = x >> 16
    return tl.where(upper > 0, 16 + short_length(upper), short_length(x & 0xFFFF))


@triton.jit
def low_bits(row_class, shift):
    """Return how many low bits of a row's values go round the tables (1, 3 or 8 for classes 13 to 15)."""
    wide = tl.where(row_class == 13, 1, tl.where(row_class == 14, 3, tl.where(row_class == 15, 8, 0)))
    return shift + wide


@triton.jit
def context_of(row_class, position, mean):
    """Return the table row of a value, 0 to 23 whatever the arguments are; see params.context_of.

    A wide row (class above 12) uses the contexts of a class that its mean position class stands for.
    """
    scale = tl.minimum(12, tl.maximum(8, mean + 2 - low_bits(row_class, 0)))
    row_class = tl.where(row_class > 12, tl.where(mean > 0, scale, 12), row_class)
    above = position - mean
    near = 2 * row_class - 4 + tl.minimum(tl.maximum(above, -2), 4)
    near = tl.minimum(tl.maximum(near, 0), 20)
    far = 21 + tl.minimum(tl.maximum((row_class - 1) >> 2, 0), 2)
    return tl.where(above <= -3, far, near)


@triton.jit
def class_context(mean):
    """Return the table row of a row's class; mean: the row's mean position class."""
    return 24 + tl.minimum(mean, 7)


@triton.jit
def symbol_of(high):
    """Return the symbol of |high| < 2^24.

    Symbols 2 to 13 come two to an octave, from 2 to 127; 14 is 128 to 159, and 15 is 160 and above.
    """
    m = tl.abs(high)
    half_octaves = (m.to(tl.float32).to(tl.int32, bitcast=True) >> 22) - 254
    s = tl.maximum(half_octaves, tl.minimum(m, 1)) + (m >= 160).to(tl.int32)
    return tl.minimum(s, 15)


@triton.jit
def raw_bits(s):
    """Return the number of raw bits of a symbol, sign included."""
    return tl.minimum(s, 1) + tl.minimum(tl.maximum((s >> 1) - 1, 0), 5)


@triton.jit
def base_of(s):
    """Return the least magnitude of a symbol."""
    octave = (2 | (s & 1)) << tl.maximum((s >> 1) - 1, 0)
    return tl.where(s < 4, s, octave - 32 * (s == 15).to(tl.int32))


@triton.jit
def raw_of(high, s):
    """Return the raw bits of a value that has symbol `s`: low bits of the magnitude, the sign above them."""
    extra = tl.maximum(raw_bits(s) - 1, 0)
    return (tl.abs(high) & ((1 << extra) - 1)) | ((high < 0).to(tl.int32) << extra)


@triton.jit
def value_of(s, raw):
    """Return the high part with symbol `s` and raw bits `raw`; undoes `symbol_of` and `raw_of`."""
    extra = tl.maximum(raw_bits(s) - 1, 0)
    magnitude = base_of(s) + (raw & ((1 << extra) - 1))
    return tl.where(((raw >> extra) & 1) > 0, -magnitude, magnitude)


@triton.jit
def count_step(count, live):
    """Return 2 if every other four rows of a group are counted, else 1; see params.count_step."""
    return tl.where((count > HALF_COUNTED) & (live > CROWD), 2, 1)


@triton.jit
def counted(row, lane, number, step):
    """Return whether the value in a lane of a row is counted (docs/reference/asc.md, "Counts").

    number: of the group in its block; step: its count step.
    """
    turn = row + (row >> 2) + (row >> 4) + number
    return ((lane - turn) & 3 == 0) & (((row >> 2) + number) & (step - 1) == 0)


@triton.jit
def row_classes(high):
    """Return the class of each row of a tile, int32 [32]."""
    high = tl.minimum(tl.maximum(high, -65535), 65535)  # keeps sums in int32, for forged values too
    sums = tl.sum(tl.abs(high), 1)
    narrow = tl.max(tl.abs(high), 1) < 192
    by_1 = tl.max(tl.abs(high >> 1), 1) < 192
    by_3 = tl.max(tl.abs(high >> 3), 1) < 192
    size = tl.minimum(short_length(tl.minimum(sums, 0xFFFF)), 12)
    return tl.where(narrow, size, tl.where(by_1, 13, tl.where(by_3, 14, 15)))


@triton.jit
def count_tile(counters, v, p, c, mean, used, exists, step, shift):
    """Add what the tables learn from one group to `counters`, int32 [32][16].

    v, p: int32 [32][32], values and position classes; c, mean: int32 [32], classes and mean position classes
    of the rows; used: mask of the values that count, each 4 * step times; exists: mask of the rows whose
    class counts, 4 times. No histogram of Triton's: on a GPU, version 3.6 counts some of the values that a
    mask leaves out.
    """
    high = tl.minimum(tl.maximum(v >> low_bits(c, shift)[:, None], -65535), 65535)
    bins = context_of(c[:, None], p, mean[:, None]) * 16 + symbol_of(high)
    tl.atomic_add(counters + bins, 4 * step, mask=used, sem="relaxed")
    tl.atomic_add(counters + class_context(mean) * 16 + c, 4, mask=exists, sem="relaxed")


@triton.jit
def frequencies(hist, possible, last):
    """Return the frequencies of all table rows, int32 [32][16]; each row sums to 1024.

    hist: int64 [32][16]; possible: int32 [32], params.POSSIBLE; last: last symbol of the frame.
    """
    s = tl.arange(0, 16)[None, :]
    places = tl.where(tl.arange(0, 32) < 24, tl.minimum(possible, last + 1), possible)
    may = (s < places[:, None]) | (s == 15)
    kept = tl.where(may, hist, 0)
    places = tl.sum(may.to(tl.int64), 1)
    ratio = ((1024 - places) << 16) // (tl.sum(kept, 1) + 1)
    freq = tl.where(may, 1 + (kept * ratio[:, None] >> 16), 0)
    largest = 15 - (tl.max(kept * 16 + (15 - s), 1) & 15)  # lowest index among the largest counts
    rest = 1024 - tl.sum(freq, 1)
    return (freq + tl.where(s == largest[:, None], rest[:, None], 0)).to(tl.int32)
