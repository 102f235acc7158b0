"""Pack small integers into fields of 64-bit words, so that any AllReduce of int64 words sums them.

Every worker adds an offset that makes its value non-negative. As long as sums fit their field, no carry
reaches the next field, so adding words adds fields. Addition modulo 2^64 gives the same sum in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.numerics.integers import extremes

WORD_BITS = 64


def field_limit(bits: int, workers: int) -> int:
    """Return the largest magnitude of one worker's value in fields of `bits`: floor((2^bits - 1) / (2 N)).

    Raises ValueError unless 1 <= bits <= 32 and a magnitude of 1 fits.
    """
    if not 1 <= bits <= 32 or workers < 1:
        raise ValueError(f"fields have 1 to 32 bits and at least one worker, got {bits} and {workers}")
    limit = ((1 << bits) - 1) // (2 * workers)
    if limit < 1:
        raise ValueError(f"fields of {bits} bits hold no sum over {workers} workers; use more bits")
    return limit


def field_bits(magnitude: int, workers: int) -> int:
    """Return the bits of the narrowest field for sums of `workers` values up to `magnitude` (1 or more) each.

    The inverse of `field_limit`. The result may exceed 32 bits, the widest field that `field_limit` allows.
    """
    return (2 * workers * magnitude).bit_length()


def fields_per_word(bits: int) -> int:
    """Return the number of fields of `bits` in a word."""
    return WORD_BITS // bits


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of `count` values in fields of `bits`, rounded up to whole words."""
    return 8 * -(-count // fields_per_word(bits))


def pack_fields(values: Array, bits: int, workers: int) -> Array:
    """Return one worker's integers as uint64 words. Raises ValueError if an integer exceeds `field_limit`."""
    limit, per_word = field_limit(bits, workers), fields_per_word(bits)
    low, high = extremes(values)
    worst = max(high, -low)
    if worst > limit:
        raise ValueError(
            f"a value of magnitude {worst} does not fit: fields of {bits} bits hold sums of {workers} "
            f"workers up to {limit} each; clip, or use more bits"
        )
    words = np.empty(-(-values.size // per_word), np.uint64)
    _pack(np.ascontiguousarray(values), bits, per_word, limit, words)
    return words


@njit(cache=True, nogil=True)
def _pack(values: Any, bits: int, per_word: int, limit: int, words: Any) -> None:
    for w in range(words.size):
        word, first = np.uint64(0), w * per_word
        for field in range(min(per_word, values.size - first)):
            word |= np.uint64(np.int64(values[first + field]) + limit) << np.uint64(field * bits)
        words[w] = word


def unpack_fields(words: Array, count: int, bits: int, workers: int) -> Array:
    """Return the `count` sums, int32, in words that were summed over `workers`."""
    limit, per_word = field_limit(bits, workers), fields_per_word(bits)
    out = np.empty(count, np.int32)
    _unpack(np.ascontiguousarray(words, np.uint64), bits, per_word, limit * workers, out)
    return out


@njit(cache=True, nogil=True)
def _unpack(words: Any, bits: int, per_word: int, offset: int, out: Any) -> None:
    mask = np.uint64((1 << bits) - 1)
    for w in range(-(-out.size // per_word)):
        first = w * per_word
        for field in range(min(per_word, out.size - first)):
            out[first + field] = np.int64((words[w] >> np.uint64(field * bits)) & mask) - offset
