"""Peeled tables: what goes in comes out, and which keys stay is what the definition says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscar.schemes.peeling import PeelingTable


def keys_of(random: np.random.Generator, count: int, beyond: int) -> np.ndarray:
    return np.sort(random.choice(beyond, count, replace=False)).astype(np.int64)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 400),
    workers=st.integers(1, 17),
    hashes=st.integers(2, 5),
    slots=st.sampled_from([1, 2, 16]),
    ratio=st.floats(0.3, 2.0),
)
def test_summed_tables_give_every_sum_back(
    seed: int, count: int, workers: int, hashes: int, slots: int, ratio: float
) -> None:
    random = np.random.default_rng(seed)
    keys = keys_of(random, count, 4 * count + 1)
    values = random.integers(-127, 128, (workers, count)).astype(np.int32)
    table = PeelingTable.sized(count, ratio=ratio, spare=0, hashes=hashes, slots=slots, seed=seed)
    assert table.cells >= int(ratio * count)
    peeling = table.plan(keys)
    cells = np.sum([table.encode(keys, mine) for mine in values], axis=0, dtype=np.int32)
    before = cells.copy()
    sums = values.sum(axis=0, dtype=np.int32)
    assert np.array_equal(peeling.decode(cells, sums[peeling.stuck]), sums)
    assert np.array_equal(cells, before)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), count=st.integers(1, 60), ratio=st.floats(0.6, 1.6))
def test_stuck_keys_are_those_of_the_plain_definition(seed: int, count: int, ratio: float) -> None:
    keys = keys_of(np.random.default_rng(seed), count, 1000)
    table = PeelingTable.sized(count, ratio=ratio, spare=0, hashes=3, slots=4, seed=seed)
    one = np.ones(1, np.int32)
    cells_of = {int(key): set(np.flatnonzero(table.encode(np.array([key]), one))) for key in keys}
    left = set(cells_of)
    while True:
        held = [cell for key in left for cell in cells_of[key]]
        alone = {key for key in left if any(held.count(cell) == 1 for cell in cells_of[key])}
        if not alone:
            break
        left -= alone
    assert {int(key) for key in keys[table.plan(keys).stuck]} == left


@pytest.mark.parametrize("count", [1, 30, 1000, 30_000])
def test_most_tables_above_the_threshold_peel_and_none_below(count: int) -> None:
    random = np.random.default_rng(count)

    def stuck(ratio: float, spare: int) -> list[int]:
        return [
            PeelingTable.sized(count, ratio=ratio, spare=spare, hashes=3, slots=1, seed=seed)
            .plan(keys)
            .stuck.size
            for seed, keys in enumerate(keys_of(random, count, 3 * count) for _ in range(6))
        ]

    assert stuck(1.23, 32).count(0) >= 4
    if count == 30_000:  # the threshold of three hashes is 1.222
        assert min(stuck(1.20, 0)) > count // 4


def test_cells_and_signs_are_the_documented_ones() -> None:
    def mix(block: int, row: int, seed: int) -> int:
        mask = (1 << 64) - 1
        x = (block * 0x9E3779B97F4A7C15 + seed + (row + 1) * 0xD1B54A32D192ED03) & mask
        for _ in range(2):
            x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & mask
        return x ^ x >> 32

    table = PeelingTable(hashes=3, buckets=10, slots=4, seed=7)
    for key in (0, 5, 123_456_789_012):
        expected = np.zeros(table.cells, np.int32)
        for row in range(3):
            h = mix(key // 4, row, 7)
            bucket = (h & 0xFFFFFFFF) * 10 >> 32
            expected[(row * 10 + bucket) * 4 + key % 4] = -9 if h >> 63 else 9
        found = table.encode(np.array([key], np.int64), np.array([9], np.int32))
        assert np.array_equal(found, expected)
    golden = PeelingTable(3, 2, 1, 0).encode(np.arange(4), np.array([1, 10, 100, 1000], np.int32))
    assert golden.tolist() == GOLDEN


GOLDEN = [-990, 99, 1101, 10, 0, 891]


@pytest.mark.parametrize("wrong", [{"hashes": 1}, {"hashes": 9}, {"buckets": 0}, {"slots": 0}])
def test_impossible_tables_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="tables have 2 to 8 hashes"):
        PeelingTable(**({"hashes": 3, "buckets": 1, "slots": 1, "seed": 0} | wrong))
