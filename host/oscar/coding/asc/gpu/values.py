"""What the Triton kernels of ASC share: bit lengths, row classes, contexts, symbols and counting.

Integers only. Where a float32 occurs, it holds an integer below 2^24 exactly and only its bits are read.
Every kernel has 32 lanes along a row; a tile is the 32 rows of a group by their 32 lanes. Counts of values
stay below 2^30 (TritonCoder refuses more), so that indices are int32; offsets into bytes are int64.
"""

from __future__ import annotations

import triton
import triton.language as tl

from oscar.coding.asc import params

ALL_COUNTED, QUARTER_COUNTED = tl.constexpr(params.ALL_COUNTED), tl.constexpr(params.QUARTER_COUNTED)
BINS = tl.constexpr(params.TABLE_ROWS * params.SYMBOLS)
# Places of `meta`, int32, that kernels of an encoder share.
MAGNITUDE, LOW, HIGH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
SHIFT, LOG2, SENT, LAST = tl.constexpr(3), tl.constexpr(4), tl.constexpr(5), tl.constexpr(6)
META = 8
OPTIONS = {"enable_fp_fusion": False}  # of every launch; nothing here adds or multiplies float32
GROUP_FIELDS = tl.constexpr(3)  # of a group: lowest and highest value, rows whose class is not 0


@triton.jit
def short_length(x):
    """Return the bit length of 0 <= x < 2^24, from the exponent of an exact float32."""
    exponent = x.to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.maximum(exponent - 126, 0)


@triton.jit
def bit_length(x):
    """Return the bit length of 0 <= x < 2^31."""
    upper = x >> 16
    return tl.where(upper > 0, 16 + short_length(upper), short_length(x & 0xFFFF))


@triton.jit
def low_bits(row_class, shift):
    """Return how many low bits of a row's values go round the tables."""
    wide = tl.where(row_class == 13, 1, tl.where(row_class == 14, 3, tl.where(row_class == 15, 8, 0)))
    return shift + wide


@triton.jit
def context_of(row_class, position, mean):
    """Return the table row of a value; it is one of values whatever the arguments are.

    A wide row has the contexts of the class that its mean position class stands for.
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
    """Return the table row of a row's class."""
    return 24 + tl.minimum(mean, 7)


@triton.jit
def symbol_of(high):
    """Return the symbol of |high| < 2^24: two to an octave from 2 to 127, then 128 and 160 and above."""
    m = tl.abs(high)
    half_octaves = (m.to(tl.float32).to(tl.int32, bitcast=True) >> 22) - 254
    s = tl.maximum(half_octaves, tl.minimum(m, 1)) + (m >= 160).to(tl.int32)
    return tl.minimum(s, 15)


@triton.jit
def raw_bits(s):
    """Return the raw bits of a symbol: its sign and its low bits."""
    return tl.minimum(s, 1) + tl.minimum(tl.maximum((s >> 1) - 1, 0), 5)


@triton.jit
def base_of(s):
    """Return the least magnitude of a symbol."""
    octave = (2 | (s & 1)) << tl.maximum((s >> 1) - 1, 0)
    return tl.where(s < 4, s, octave - 32 * (s == 15).to(tl.int32))


@triton.jit
def raw_of(high, s):
    """Return the raw bits of a value that has symbol `s`: low bits, then the sign."""
    extra = tl.maximum(raw_bits(s) - 1, 0)
    return (tl.abs(high) & ((1 << extra) - 1)) | ((high < 0).to(tl.int32) << extra)


@triton.jit
def value_of(s, raw):
    """Undo `symbol_of` and `raw_of`."""
    extra = tl.maximum(raw_bits(s) - 1, 0)
    magnitude = base_of(s) + (raw & ((1 << extra) - 1))
    return tl.where(((raw >> extra) & 1) > 0, -magnitude, magnitude)


@triton.jit
def count_step(count, live):
    """Return the distance of the rows of a group that tables learn from."""
    few = (count <= ALL_COUNTED) | (live <= 8)
    many = tl.where(count <= QUARTER_COUNTED, 4, 8)
    return tl.where(few, 1, tl.where(live <= 16, 2, many))


@triton.jit
def row_classes(high):
    """Return the class of each row of a tile: the size of its sum of magnitudes, or how wide it is."""
    high = tl.minimum(tl.maximum(high, -65535), 65535)  # of what is forged, too, the magnitude is an int32
    sums = tl.sum(tl.abs(high), 1)
    narrow = tl.max(tl.abs(high), 1) < 192
    by_1 = tl.max(tl.abs(high >> 1), 1) < 192
    by_3 = tl.max(tl.abs(high >> 3), 1) < 192
    size = tl.minimum(short_length(tl.minimum(sums, 0xFFFF)), 12)
    return tl.where(narrow, size, tl.where(by_1, 13, tl.where(by_3, 14, 15)))


@triton.jit
def count_tile(v, p, c, mean, used, exists, step, shift):
    """Return what tables learn from a group, int32 [BINS].

    v, p: values and position classes; c, mean: of its rows; used: values that count, each `step` times;
    exists: rows whose classes count.
    """
    high = tl.minimum(tl.maximum(v >> low_bits(c, shift)[:, None], -65535), 65535)
    bins = context_of(c[:, None], p, mean[:, None]) * 16 + symbol_of(high)
    found = tl.histogram(tl.reshape(bins, (1024,)), BINS, mask=tl.reshape(used, (1024,))) * step
    return found + tl.histogram(class_context(mean) * 16 + c, BINS, mask=exists)


@triton.jit
def frequencies(hist, possible, last):
    """Return the frequencies of all table rows, int32 [32][16].

    hist: int64 [32][16]; possible: int32 [32], how many symbols from 0 on a table row has, beside 15; last:
    symbol of the frame's largest magnitude.
    """
    s = tl.arange(0, 16)[None, :]
    places = tl.where(tl.arange(0, 32) < 24, tl.minimum(possible, last + 1), possible)
    may = (s < places[:, None]) | (s == 15)
    kept = tl.where(may, hist, 0)
    places = tl.sum(may.to(tl.int64), 1)
    ratio = ((1024 - places) << 16) // (tl.sum(kept, 1) + 1)
    freq = tl.where(may, 1 + (kept * ratio[:, None] >> 16), 0)
    largest = 15 - (tl.max(kept * 16 + (15 - s), 1) & 15)  # the first of the largest
    rest = 1024 - tl.sum(freq, 1)
    return (freq + tl.where(s == largest[:, None], rest[:, None], 0)).to(tl.int32)
