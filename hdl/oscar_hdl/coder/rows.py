"""What a NIC's memory holds of a frame beside its values: distances, means, descriptors (engine.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscar.coding.asc.params import BASE, LANES, LIMIT, NARROW_CLASS, WIDE_SHIFT

LEAST_DISTANCE, MOST_DISTANCE = -3, 4
SIZE_BITS = (3, 4, 5, 8)  # of sizes 1 to 4, two's complement; size 0 is all zeros, 5 more
SIZE_AT, MEAN_AT, TOP_AT = 4, 7, 11  # in a header word, above the class
DESCRIBED_TOP_AT = 7  # in a descriptor
DESCRIBED = 0x7F | 0xF << TOP_AT  # what a header word has of the descriptor


@dataclass(frozen=True)
class FrameRows:
    """Rows of 32 lanes; lanes behind the last value hold 0.

    values: (rows, 32) int32; distances: (rows, 32) uint8, d + 3; means, classes, sizes: (rows,) uint8;
    count: of values.
    """

    values: np.ndarray
    distances: np.ndarray
    means: np.ndarray
    classes: np.ndarray
    sizes: np.ndarray
    count: int

    @property
    def headers(self) -> np.ndarray:
        """Return the header word of each row, uint16: class, size << 4, mean << 7, top << 11."""
        wide = [part.astype(np.uint16) for part in (self.classes, self.sizes, self.means, self.tops)]
        return wide[0] | wide[1] << SIZE_AT | wide[2] << MEAN_AT | wide[3] << TOP_AT

    @property
    def tops(self) -> np.ndarray:
        """Return the largest symbol of each row, uint8; the largest of a frame's is its last symbol L."""
        return top_symbols(self.values)

    def part(self, first: int, count: int) -> FrameRows:
        """Return a block of `count` values from row `first` on."""
        rows = slice(first, first - (-count // LANES))
        arrays = (self.values, self.distances, self.means, self.classes, self.sizes)
        return FrameRows(*(array[rows] for array in arrays), count)


def in_rows(flat: np.ndarray, kind: type) -> np.ndarray:
    """Return an array in rows of 32, the last one filled with zeros."""
    rows = np.zeros((-(-flat.size // LANES), LANES), kind)
    rows.reshape(-1)[: flat.size] = flat
    return rows


def describe(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return class and size of each row of (rows, 32) values that fit 16 bits."""
    values = values.astype(np.int32)
    magnitudes = np.abs(values)
    sums, largest = magnitudes.sum(axis=1), magnitudes.max(axis=1, initial=0)
    lengths = np.frexp(sums.astype(np.float64))[1]
    classes = np.minimum(lengths, NARROW_CLASS)
    wide = largest >= LIMIT
    for row_class, bits in reversed([*enumerate(WIDE_SHIFT, NARROW_CLASS + 1)]):
        fits = np.abs(values >> bits).max(axis=1, initial=0) < LIMIT
        classes[wide & fits] = row_class
    needed = (values ^ values >> 15).max(axis=1, initial=0)  # below 2^(bits - 1) where bits hold all
    sizes = np.searchsorted([1 << (bits - 1) for bits in SIZE_BITS], needed, "right") + 1
    sizes[sums == 0] = 0
    return classes.astype(np.uint8), sizes.astype(np.uint8)


def top_symbols(values: np.ndarray) -> np.ndarray:
    """Return the symbol of the largest magnitude of each row of (rows, 32) values, uint8."""
    largest = np.abs(values.astype(np.int32)).max(axis=1, initial=0)
    return (np.searchsorted(BASE, largest, "right") - 1).astype(np.uint8)


def descriptors(values: np.ndarray) -> np.ndarray:
    """Return the descriptor of each row of (rows, 32) values, uint16: class, size << 4, top << 7."""
    wide = [part.astype(np.uint16) for part in (*describe(values), top_symbols(values))]
    return wide[0] | wide[1] << SIZE_AT | wide[2] << DESCRIBED_TOP_AT


def frame_rows(values: np.ndarray, positions: np.ndarray | None = None) -> FrameRows:
    """Return the rows of a frame.

    values: of up to 16 bits; positions: position class 0..15 of each value, None for all 0.
    Raises ValueError when values do not fit 16 bits, or positions do not belong to them.
    """
    flat = np.asarray(values, np.int64).reshape(-1)
    if flat.size and not -(1 << 15) <= flat.min() <= flat.max() < 1 << 15:
        raise ValueError(f"expected values of 16 bits, got {flat.min()}..{flat.max()}")
    places = np.zeros(flat.size, np.int64) if positions is None else np.asarray(positions).reshape(-1)
    if places.size != flat.size or (flat.size and not 0 <= places.min() <= places.max() <= 15):
        raise ValueError(f"expected {flat.size} position classes of 0..15, got {places.size}")
    rows, classes_at = in_rows(flat, np.int32), in_rows(places, np.int32)
    means = (classes_at.sum(axis=1) + LANES // 2) // LANES
    apart = np.clip(classes_at - means[:, None], LEAST_DISTANCE, MOST_DISTANCE) - LEAST_DISTANCE
    classes, sizes = describe(rows)
    return FrameRows(rows, apart.astype(np.uint8), means.astype(np.uint8), classes, sizes, flat.size)
