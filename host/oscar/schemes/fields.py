"""Pack small integers into fields of 64-bit words, so that any AllReduce of int64 words sums them.

Every worker adds an offset that makes its value non-negative. As long as sums fit their field, no carry
reaches the next field, so adding words adds fields. Addition modulo 2^64 gives the same sum in any order.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array

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
    worst = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    if worst > limit:
        raise ValueError(
            f"a value of magnitude {worst} does not fit: fields of {bits} bits hold sums of {workers} "
            f"workers up to {limit} each; clip, or use more bits"
        )
    words = np.zeros(-(-values.size // per_word), np.uint64)
    offset = values.astype(np.int64) + limit
    for field in range(min(per_word, values.size)):
        part = offset[field::per_word].astype(np.uint64)
        words[: part.size] |= part << np.uint64(field * bits)
    return words


def unpack_fields(words: Array, count: int, bits: int, workers: int) -> Array:
    """Return the `count` sums, int32, in words that were summed over `workers`."""
    limit, per_word = field_limit(bits, workers), fields_per_word(bits)
    mask = np.uint64((1 << bits) - 1)
    out = np.empty(count, np.int32)
    for field in range(min(per_word, count)):
        part = out[field::per_word]
        held = (words[: part.size] >> np.uint64(field * bits)) & mask
        part[...] = held.astype(np.int64) - limit * workers
    return out
