"""The count sketch: kernels equal to plain integers, linear to the bit, hashes as good as the theory asks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscar.numerics.sketch import RUN, CountSketch, SketchHashes
from oscar.numerics.sketch.count_sketch import columns_for
from oscar.numerics.sketch.hashing import PRIME
from support import sketch_reference as reference


def integers(seed: int, size: int, most: int = 127) -> np.ndarray:
    return np.random.default_rng(seed).integers(-most, most + 1, size).astype(np.int32)


@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 60),
    size=st.integers(0, 150),
    span=st.tuples(st.integers(0, 150), st.integers(0, 150)),
    seed=st.integers(0, 2**64 - 1),
    combine=st.sampled_from(["median", "sum"]),
)
@settings(max_examples=60)
def test_kernels_equal_plain_integers_on_any_stretch(rows, columns, size, span, seed, combine):
    base, end = (min(x, size) for x in sorted(span))
    sketch, values = CountSketch(rows, columns, size, seed), integers(seed % 1000, end - base)
    cells = sketch.encode(values, base=base)
    assert cells.dtype == np.int32
    given_values = dict(zip(range(base, end), values.tolist(), strict=True))
    assert cells.tolist() == reference.encode(sketch.hashes, sketch.columns, given_values)
    wanted = [reference.estimate(sketch.hashes, cells.tolist(), i, combine=combine) for i in range(size)]
    assert sketch.estimate(cells, combine=combine).tolist() == wanted
    part = sketch.estimate(cells, base=base, count=end - base, combine=combine)
    assert part.tolist() == wanted[base:end]


@pytest.mark.parametrize("rows", [3, 4, 5])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_subset_in_any_order_is_sketched_like_a_vector_with_zeros(rows, share):
    size = 40_003  # several blocks of every kernel, and a part of a run
    random = np.random.default_rng(rows)
    sketch, values = CountSketch(rows, 1500, size, 9), integers(3, size)
    chosen = random.permutation(size)[: int(share * size)]
    sparse = np.zeros(size, np.int32)
    sparse[chosen] = values[chosen]
    cells = sketch.encode(sparse)
    assert np.array_equal(cells, sketch.encode(values[chosen], indices=chosen))
    assert np.array_equal(sketch.estimate(cells)[chosen], sketch.estimate(cells, indices=chosen))
    assert np.array_equal(
        sketch.estimate(cells, combine="sum")[chosen],
        sketch.estimate(cells, indices=chosen, combine="sum"),
    )


def test_indices_that_repeat_add_up():
    sketch = CountSketch(2, 40, 100, 1)
    twice = np.array([7, 7, 93], np.int64)
    values = np.array([5, -2, 4], np.int32)
    many = CountSketch(2, 40, 10_000, 1)  # the other path
    for s in (sketch, many):
        sums = s.encode(np.array([3, 4], np.int32), indices=np.array([7, 93], np.int64))
        assert np.array_equal(s.encode(values, indices=twice), sums)


@given(st.integers(0, 3000), st.integers(0, 1000), st.integers(2, 9))
@settings(max_examples=25)
def test_sketching_is_linear_to_the_bit(size, seed, workers):
    sketch = CountSketch(3, max(1, size // 10), size, seed)
    parts = [integers(seed + n, size) for n in range(workers)]
    summed = sum((sketch.encode(p) for p in parts), np.zeros_like(sketch.encode(parts[0])))
    assert np.array_equal(summed, sketch.encode(np.sum(parts, axis=0, dtype=np.int32)))


def test_a_vector_of_few_values_comes_back():
    sketch, size = CountSketch(5, 4000, 200_000, 4), 200_000
    places = np.random.default_rng(0).choice(size, 50, replace=False)
    sparse = np.zeros(size, np.int32)
    sparse[places] = integers(1, 50, 10**6)
    found = sketch.estimate(sketch.encode(sparse))
    assert np.array_equal(found[places], sparse[places])
    assert np.count_nonzero(found) < 60


def test_golden_words():
    """Two machines, or two versions, that disagree here cannot reduce together."""
    hashes = SketchHashes.draw(2, 1, 3)
    assert hashes.places.tolist() == GOLDEN_PLACES
    assert hashes.signs.tolist() == GOLDEN_SIGNS
    sketch = CountSketch(2, 20, 64, 1, draw=3)
    assert sketch.encode(np.arange(64, dtype=np.int32)).tolist() == GOLDEN_CELLS


def test_each_seed_and_draw_has_hashes_of_its_own():
    drawn = [SketchHashes.draw(3, *arguments) for arguments in ((0,), (1,), (0, 1), (0, 2))]
    assert len({hashes.signs.tobytes() for hashes in drawn}) == 4
    assert len({hashes.places.tobytes() for hashes in drawn}) == 4
    again = SketchHashes.draw(3, 0, 2)
    assert np.array_equal(again.signs, drawn[3].signs)
    assert all((h.signs < PRIME).all() and (h.places < PRIME).all() for h in drawn)


# What the theory asks of the hashes, over 400 draws


def hashed(draws: int, indices: np.ndarray, columns: int, rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Columns and signs of indices, [draws * rows][index], through the kernels."""
    places, signs = [], []
    for draw in range(draws):
        sketch = CountSketch(rows, columns, int(indices.max()) + 1, 11, draw=draw)
        counted = np.zeros((rows, columns), np.int32) + np.arange(1, columns + 1, dtype=np.int32)
        for row in range(rows):
            one = np.zeros_like(counted)
            one[row] = counted[row]
            found = sketch.estimate(one, indices=indices, combine="sum")
            places.append(np.abs(found) - 1)
            signs.append(np.sign(found))
    return np.array(places), np.array(signs)


PAIRS = np.array([0, 1, 15, 16, 17, 40, 1000, 1016, 123_456, 999_999], np.int64)


def test_pairs_of_different_runs_collide_as_often_as_pairs_should():
    columns = 48
    places, _ = hashed(400, PAIRS, columns)
    for a in range(PAIRS.size):
        for b in range(a):
            rate = np.mean(places[:, a] == places[:, b])
            if PAIRS[a] // RUN == PAIRS[b] // RUN:
                assert rate == 0
                continue
            bound = 1 / (columns - RUN + 1)
            assert rate < bound + 4.5 * np.sqrt(bound / 2000)
    uniform = np.bincount(places[:, 3], minlength=columns)
    assert uniform[columns - RUN + 1 :].sum() == 0  # index 16 begins a run
    assert abs(uniform[: columns - RUN + 1] * (columns - RUN + 1) / 2000 - 1).max() < 0.7


def test_signs_are_balanced_and_independent_by_fours():
    _, signs = hashed(400, PAIRS, 48)
    spread = 4.5 / np.sqrt(2000)
    assert np.abs(signs.mean(axis=0)).max() < spread
    random = np.random.default_rng(2)
    for count in (2, 3, 4):
        for _ in range(40):
            chosen = random.choice(PAIRS.size, count, replace=False)
            assert abs(signs[:, chosen].prod(axis=1).mean()) < spread


def test_the_error_is_that_of_the_theory():
    """Mean square error of one row: the energy of all others over the columns, for dense values."""
    size, columns, draws = 20_000, 2000, 30
    values = integers(5, size)
    errors = []
    for draw in range(draws):
        sketch = CountSketch(1, columns, size, 2, draw=draw)
        errors.append(np.mean((sketch.estimate(sketch.encode(values)) - values.astype(float)) ** 2))
    wanted = np.sum(values.astype(float) ** 2) / columns
    assert 0.9 < np.mean(errors) / wanted < 1.1


# Speed: the benchmark compares cells and estimates with torch's in every turn


# What is refused


def test_a_cell_cannot_leave_int32():
    sketch = CountSketch(1, 16, 320, 0)  # all runs of indices share cells
    most = (1 << 26) - 1  # 21 runs at most, 26 bits each
    cells = sketch.encode(np.full(320, most, np.int32))
    signs = sketch.estimate(np.ones((1, 16), np.int32)).reshape(20, RUN)
    assert np.array_equal(cells[0], most * signs.sum(axis=0))
    for wrong in (most + 1, -most - 2):
        with pytest.raises(ValueError, match="beyond int32: quantise to fewer bits"):
            sketch.encode(np.full(320, wrong, np.int32))
        with pytest.raises(ValueError, match="beyond int32"):
            sketch.encode(np.full(32, wrong, np.int32), indices=np.arange(32))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: CountSketch(6, 10, 10, 0), ValueError, "1 to 5 rows, got 6"),
        (lambda: CountSketch(3, 0, 10, 0), ValueError, "1 cell at least"),
        (lambda: CountSketch(3, 20, PRIME, 0), ValueError, "tell up to 2147483646 values"),
        (lambda: SKETCH.encode(np.zeros(3)), TypeError, "int32, got float64; quantise"),
        (lambda: SKETCH.encode(integers(0, 101)), ValueError, "0 to 99, got 101 of them"),
        (lambda: SKETCH.encode(integers(0, 9), base=92), ValueError, "9 of them from 92"),
        (lambda: SKETCH.encode(integers(0, 1), indices=np.array([100])), ValueError, "got 100 to 100"),
        (lambda: SKETCH.encode(integers(0, 1), indices=np.array([-1])), ValueError, "got -1 to -1"),
        (lambda: SKETCH.encode(integers(0, 2), indices=np.array([1])), ValueError, "got 1 and 2"),
        (lambda: SKETCH.encode(integers(0, 1), indices=np.zeros(1, np.int32)), TypeError, "flat int64"),
        (lambda: SKETCH.estimate(integers(0, 59)), ValueError, "3 x 20 cells, got shape"),
        (lambda: SKETCH.estimate(integers(0, 60), combine="mean"), ValueError, "'median' or 'sum'"),
        (lambda: columns_for(0, 10, 3), ValueError, "above 0 and at most 16, got 0"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


SKETCH = CountSketch(3, 20, 100, 0)
GOLDEN_PLACES = [
    [1871674104, 658511484, 1189763461, 1542320174],
    [347663538, 1981786507, 2033404054, 1631204492],
]
GOLDEN_SIGNS = [[659595534, 959664984, 1238295970, 600276062], [417673453, 1512876433, 1426813502, 181741874]]
GOLDEN_CELLS = [
    [-48, 49, 98, 67, 68, 106, -72, -68, 68, -78, 80, -14, 36, 54, -144, -148, 4, 3, 14, 15],
    [0, -1, -2, -13, -93, 105, -9, 43, 75, -29, -17, 19, 59, -3, -57, -145, -133, -14, -15, -110],
]
