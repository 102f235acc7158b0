"""A randomised Hadamard transform of a gradient: each value spreads over its block, whose norm stays.

Rotated values are nearly normal, whatever the gradient (Suresh et al., arXiv 1611.00429). All workers rotate
by the same signs, so sums may be taken before the way back. Sums are butterflies in a fixed order: every
machine gets the same bits.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.numerics.tensors import cut, offsets_of

LEAST = 64  # values of the smallest block
TAG = 0x7C0D  # separates these draws from those of other users of the seed


class Rotation:
    """Blocks of powers of two, as large as they fit: 900 values are blocks of 512, 256, 128 and 64.

    values: of a gradient. largest: of a block, a power of two.
    """

    def __init__(self, values: int, largest: int) -> None:
        rest, sizes = -(-values // LEAST) * LEAST, []
        while rest:
            sizes.append(min(largest, 1 << (rest.bit_length() - 1)))
            rest -= sizes[-1]
        self.values, self.sizes, self.offsets = values, np.array(sizes, np.int64), offsets_of(sizes)
        self.padded = int(self.offsets[-1])

    def signs(self, seed: int, iteration: int) -> Array:
        """Return -1 or 1 for every place, float32, from a counter."""
        random = np.random.Generator(np.random.Philox(key=[seed, TAG], counter=[0, 0, 0, iteration]))
        drawn = np.unpackbits(np.frombuffer(random.bytes(self.padded // 8), np.uint8))
        return drawn.astype(np.float32) * 2 - 1

    def forward(self, values: Array, signs: Array) -> Array:
        """Return `values`, float32, rotated and padded with what zeros become."""
        out = np.zeros(self.padded, np.float32)
        out[: self.values] = values
        out *= signs
        for block in cut(out, self.offsets):
            block[:] = hadamard(block)
        return out

    def back(self, rotated: Array, signs: Array) -> Array:
        """Return the values whose rotation is `rotated`."""
        out = np.concatenate([hadamard(block) for block in cut(rotated, self.offsets)] or [rotated])
        out *= signs
        return out[: self.values]


def hadamard(block: Array) -> Array:
    """Return the orthonormal Walsh-Hadamard transform of 2^k values, float32; it is its own inverse."""
    rows = 1 << ((block.size.bit_length() - 1) // 2)
    half = _butterflies((block * np.float32(block.size**-0.5)).reshape(rows, -1))
    return np.ascontiguousarray(_butterflies(np.ascontiguousarray(half.T)).T).ravel()


def _butterflies(matrix: Array) -> Array:
    """Transform each column in place. Rows are added whole, so that memory is read in order."""
    height = 1
    while height < len(matrix):
        pairs = matrix.reshape(-1, 2, height, matrix.shape[1])
        difference = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = difference
        height *= 2
    return matrix
