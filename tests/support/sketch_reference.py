"""The count sketch in plain integers, one value at a time: what the kernels are, word for word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oscar.numerics.sketch.count_sketch import Combine
from oscar.numerics.sketch.hashing import PRIME, RUN, SketchHashes


def hashed(hashes: SketchHashes, row: int, columns: int, index: int) -> tuple[int, int]:
    """Return the column of an index in a row, and its sign, 1 or -1."""
    start = _polynomial(hashes.places[row].tolist(), index // RUN) * (columns - RUN + 1) >> 31
    return start + index % RUN, 1 - 2 * (_polynomial(hashes.signs[row].tolist(), index) & 1)


def _polynomial(coefficients: Iterable[int], x: int) -> int:
    return sum(c * x**k for k, c in enumerate(coefficients)) % PRIME


def encode(hashes: SketchHashes, columns: int, values: Mapping[int, int]) -> list[list[int]]:
    """Return the cells, [rows][columns], of values by index."""
    cells = [[0] * columns for _ in hashes.signs]
    for row, line in enumerate(cells):
        for index, value in values.items():
            column, sign = hashed(hashes, row, columns, index)
            line[column] += sign * value
    return cells


def estimate(hashes: SketchHashes, cells: list[list[int]], index: int, *, combine: Combine = "median") -> int:
    """Return the estimate of the value at an index."""
    found = []
    for row, line in enumerate(cells):
        column, sign = hashed(hashes, row, len(line), index)
        found.append(sign * line[column])
    found.sort()
    half = len(found) // 2
    if combine == "sum":
        return sum(found)
    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) // 2
