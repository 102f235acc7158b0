"""rows: what the driver gives a NIC's memory equals the plain-integer model."""

from __future__ import annotations

import numpy as np
import pytest

from oscar.coding.asc.model import Row, class_of, symbol_of
from oscar.coding.asc.params import LIMIT, context_of
from oscar_hdl.coder.rows import frame_rows
from oscar_sim.seeds import numbers


def size_of(values: list[int]) -> int:
    """Return a row's size, one case after the other."""
    if not any(values):
        return 0
    fits = [all(-(1 << b - 1) <= v < 1 << b - 1 for v in values) for b in (3, 4, 5, 8)]
    return fits.index(True) + 1 if any(fits) else 5


@pytest.mark.parametrize("top", [1, 3, 4, 8, 15, 128, 191, 192, 384, 1536, 32767])
@pytest.mark.usefixtures("seed")
def test_rows_equal_the_model(top: int):
    rng = numbers(1)
    count = int(rng.integers(1, 40 * 32))
    values = rng.integers(-top - 1, top + 1, count) * (rng.random(count) < rng.choice([0.02, 0.5, 1]))
    positions = rng.integers(0, 16, count) * (rng.random() < 0.8)
    made = frame_rows(values, positions)
    largest = 0
    for t in range(-(-count // 32)):
        part = slice(32 * t, 32 * t + 32)
        row = Row(values[part].tolist(), positions[part].tolist(), class_of(values[part].tolist(), 0, 0))
        largest = max(largest, *map(abs, row.values))
        assert (made.means[t], made.classes[t]) == (row.mean, row.row_class)
        assert made.sizes[t] == size_of(row.values)
        own = symbol_of(min(max(map(abs, row.values)), LIMIT - 1), 0)[0]
        assert made.headers[t] == row.row_class | int(made.sizes[t]) << 4 | row.mean << 7 | own << 11
        assert made.values[t].tolist() == row.values + [0] * (32 - len(row.values))
        if row.row_class:
            d = made.distances[t].astype(int) - 3
            ours = [context_of(row.row_class, row.mean + d[i], row.mean) for i in range(len(row.values))]
            assert ours == [row.context(i) for i in range(len(row.values))]
    assert made.tops.max() == symbol_of(min(largest, LIMIT - 1), 0)[0]
    block = made.part(1, count - 32) if count > 32 else made
    assert block.values.shape[0] == -(-block.count // 32) == block.headers.size


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="16 bits"):
        frame_rows(np.array([1 << 15]))
    with pytest.raises(ValueError, match="2 position classes"):
        frame_rows(np.zeros(2), np.zeros(3))
