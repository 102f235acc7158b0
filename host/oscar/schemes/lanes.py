"""Small integers in lanes of 64-bit words, so that any AllReduce of int64 words sums them.

Every worker adds an offset that makes its value non-negative. While sums fit their lane nothing is carried
into the next one, so adding words adds lanes, and modulo 2^64 the order of additions does not matter.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array

WORD_BITS = 64


def lane_limit(bits: int, workers: int) -> int:
    """Return the largest magnitude of one worker's value in lanes of `bits`: floor((2^bits - 1) / (2 N)).

    Raises ValueError unless 1 <= bits <= 32, or where not even 1 fits.
    """
    if not 1 <= bits <= 32 or workers < 1:
        raise ValueError(f"lanes have 1 to 32 bits and at least one worker, got {bits} and {workers}")
    limit = ((1 << bits) - 1) // (2 * workers)
    if limit < 1:
        raise ValueError(f"lanes of {bits} bits hold no sum over {workers} workers; use more bits")
    return limit


def lane_bits(magnitude: int, workers: int) -> int:
    """Return the bits of the narrowest lane that holds sums of magnitudes, 1 or more, of each worker.

    The inverse of `lane_limit`; what it returns may be beyond the 32 bits that lanes have at most.
    """
    return (2 * workers * magnitude).bit_length()


def lanes_per_word(bits: int) -> int:
    """Return how many lanes a word has."""
    return WORD_BITS // bits


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of `count` values in lanes of `bits`: whole words."""
    return 8 * -(-count // lanes_per_word(bits))


def pack_lanes(values: Array, bits: int, workers: int) -> Array:
    """Return one worker's integers as uint64 words; raises ValueError where one is beyond the limit."""
    limit, per_word = lane_limit(bits, workers), lanes_per_word(bits)
    worst = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    if worst > limit:
        raise ValueError(
            f"a value of magnitude {worst} does not fit: lanes of {bits} bits hold sums of {workers} workers "
            f"up to {limit} each; clip, or use more bits"
        )
    words = np.zeros(-(-values.size // per_word), np.uint64)
    offset = values.astype(np.int64) + limit
    for lane in range(min(per_word, values.size)):
        part = offset[lane::per_word].astype(np.uint64)
        words[: part.size] |= part << np.uint64(lane * bits)
    return words


def unpack_lanes(words: Array, count: int, bits: int, workers: int) -> Array:
    """Return the `count` sums, int32, that summed words hold."""
    limit, per_word = lane_limit(bits, workers), lanes_per_word(bits)
    mask = np.uint64((1 << bits) - 1)
    out = np.empty(count, np.int32)
    for lane in range(min(per_word, count)):
        part = out[lane::per_word]
        fields = (words[: part.size] >> np.uint64(lane * bits)) & mask
        part[...] = fields.astype(np.int64) - limit * workers
    return out
