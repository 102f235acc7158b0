"""What docs/reference/asc.md proves: no value, frequency, histogram, state or payload leaves its bounds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from oscar.coding.asc import AscParams, Encoder, lanes, max_frame, model
from oscar.coding.asc import reference as ref
from oscar.coding.asc.link import Implementation
from oscar.coding.asc.params import (
    AUTO_BLOCK_LOG2,
    BASE,
    COST,
    COUNT_BITS,
    CROWD,
    FADE_ABOVE,
    HALF_COUNTED,
    LIMIT,
    MAX_BLOCK_LOG2,
    POSSIBLE,
    PRIOR,
    RAW_BITS,
    SAMPLE,
    STATE_BITS,
    STATE_LOW,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    VALUE_ROWS,
    auto_block_log2,
    context_of,
    count_step,
    counted_lane,
    group_cycle,
)  # fmt: skip


def test_symbols_hold_all_magnitudes_below_the_limit_once() -> None:
    ends = [*BASE[1:], LIMIT]
    assert [end - base for base, end in zip(BASE, ends, strict=True)] == [
        1,
        *(1 << (b - 1) for b in RAW_BITS[1:]),
    ]
    for value in range(-LIMIT + 1, LIMIT):
        s, raw = model.symbol_of(value, 0)
        assert 0 <= raw < 1 << RAW_BITS[s]
        assert ref._high(s, raw) == value


def test_frequencies_sum_to_1024_and_every_symbol_that_may_occur_has_one(seed: int) -> None:
    dice = random.Random(seed)
    assert all(0 < sum(row) <= 64 for row in PRIOR)
    for _ in range(300):
        q = dice.randrange(TABLE_ROWS)
        hist = [dice.getrandbits(dice.randrange(13)) for _ in range(SYMBOLS)]
        levels = [dice.randrange(16) for _ in range(SYMBOLS)]
        last = dice.randrange(SYMBOLS)
        most = POSSIBLE[q] if q >= VALUE_ROWS else min(POSSIBLE[q], last + 1)
        learnt, sent = model.frequencies(hist, q, last), model.from_octaves(levels, q, last)
        for freq in (learnt, sent, model.frequencies([0] * SYMBOLS, q, last)):
            assert sum(freq) == TOTAL
            assert freq[-1] >= 1
            assert [f > 0 for f in freq] == [s < most or s == SYMBOLS - 1 for s in range(SYMBOLS)]


def test_every_value_finds_its_symbol_possible() -> None:
    for row_class in range(1, 16):
        largest = min(LIMIT, 1 << row_class) - 1
        for position in range(16):
            for mean in range(16):
                q = context_of(row_class, position, mean)
                assert 0 <= q < VALUE_ROWS
                assert all(s < POSSIBLE[q] for s in range(SYMBOLS) if BASE[s] <= largest)


def test_histograms_stay_below_16_bits_and_fade(seed: int) -> None:
    dice = random.Random(seed)
    hist = list(PRIOR[0]) + [0] * (SYMBOLS - len(PRIOR[0]))
    for _ in range(200):
        counts = [dice.getrandbits(dice.randrange(28)) for _ in range(SYMBOLS)]
        hist = model.learn(hist, counts)
        assert sum(hist) < 1 << (COUNT_BITS + 1)
    for _ in range(20):
        hist = model.learn(hist, [0] * SYMBOLS)
    assert sum(hist) <= FADE_ABOVE


def test_a_level_is_half_the_count_of_the_next(seed: int) -> None:
    dice = random.Random(seed)
    assert model.octaves([64, 32, 33, 1, 0] + [0] * 11)[:5] == [15, 14, 14, 9, 0]
    for _ in range(200):
        counts = [dice.getrandbits(dice.randrange(30)) for _ in range(SYMBOLS)]
        if any(counts):
            for count, level in zip(counts, model.octaves(counts), strict=True):
                exact = 15 - np.log2(max(counts) / count) if count else 0
                assert level == 0 if not count else level == 1 or abs(level - exact) <= 0.5000001


def test_costs_are_logarithms_rounded_up() -> None:
    for f in range(1, TOTAL + 1):
        exact = 256 * np.log2(TOTAL / f)
        assert exact - 1e-6 <= COST[f] < exact + 1


def test_coder_states_stay_in_bounds_and_pop_undoes_push() -> None:
    top = (1 << STATE_BITS) - 1
    for f in range(1, TOTAL + 1):
        for size in (0, 1, 6):
            c, edge = min(7, TOTAL - f), f << (14 - size)
            for x in {STATE_LOW, STATE_LOW + 1, edge - 1, edge, edge + 1, 256 * edge - 1, 256 * edge, top}:
                if not STATE_LOW <= x <= top:
                    continue
                coder = lanes.Lanes([x])
                raw = x & ((1 << size) - 1)
                coder.push([(f, c, raw, size)])
                assert STATE_LOW <= coder.states[0] <= top
                assert len(coder.data) <= 2
                freq = [c, f, TOTAL - c - f] if c else [0, f, TOTAL - f]
                assert coder.pop([(freq, [0, size, 0])]) == [(1, raw)]
                assert (coder.states, coder.data) == ([x], b"")


def test_division_in_single_precision_is_exact() -> None:
    """As the compiled twin divides: a state below 2^14 f by a frequency f, at both sides of each multiple."""
    multiples = np.arange(1, 1 << 14, dtype=np.int64)
    for f in range(1, TOTAL + 1):
        for y in (multiples * f, multiples * f + f - 1):
            quotient = (y.astype(np.float32) / np.float32(f)).astype(np.int64)
            assert np.array_equal(quotient, multiples)


def test_the_rows_that_tables_learn_from_and_the_size_of_blocks() -> None:
    assert {count_step(HALF_COUNTED, live) for live in range(33)} == {1}
    assert [count_step(HALF_COUNTED + 1, live) for live in (0, CROWD, CROWD + 1, 32)] == [1, 1, 2, 2]
    assert [group_cycle(log2) for log2 in (0, 10, 11, 12, 17)] == [4, 1, 2, 4, 4]
    for group in range(SAMPLE):
        for first in range(0, 32, SAMPLE):  # each lane counts in one of four rows
            assert {counted_lane(first + i, group) for i in range(SAMPLE)} == set(range(SAMPLE))


@pytest.mark.parametrize("period", [2, 4, 8, 16, 32, 33, 48, 64, 96, 128, 256, 512, 768, 1024])
def test_the_sample_has_every_column_of_a_matrix(period: int) -> None:
    """Values of a matrix with that many columns: none is left out, none counts twice as often as others."""
    values = np.arange(1 << 16)
    first = np.array([[counted_lane(j, g) for j in range(32)] for g in range(SAMPLE)]).ravel()
    counts = np.bincount(values[(values - first[values >> 5 & 127]) % SAMPLE == 0] % period, minlength=period)
    expected = len(values) / SAMPLE / period
    assert 0.6 * expected <= counts.min() <= counts.max() <= 1.5 * expected
    for count in (1, 4096, 4097, 100_000, 10**8):
        for coded in (0, count // 64, count // 8, count, 4 * count):
            log2 = auto_block_log2(count, coded)
            assert AUTO_BLOCK_LOG2 <= log2 <= MAX_BLOCK_LOG2
            if AUTO_BLOCK_LOG2 < log2 < MAX_BLOCK_LOG2:  # one block, or about 32 KiB of coded bytes in each
                assert -(-count >> log2) == 1 or 1 << 14 <= coded / count * (1 << log2) < 1 << 17


@pytest.mark.parametrize("width", [1, 8, 13, 16, 17, 32])
@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_no_payload_exceeds_its_bound(width: int, seed: int, implementation: Implementation) -> None:
    top = (1 << (width - 1)) - 1
    draw = np.random.default_rng(seed)
    worst = [
        draw.integers(-top - 1, top + 1, 2500),
        np.where(draw.random(2500) < 0.5, top, -top - 1),
        np.where(np.arange(2500) % 2, top, 0),
        np.rint(draw.laplace(0, max(1, top / 9), 2500)).clip(-top - 1, top),
    ]
    for params in (AscParams(block_log2=10), AscParams(), AscParams(context="none", sent_rows=False)):
        encoder = Encoder(params, implementation=implementation)
        for values in worst:
            for count in (0, 1, 2, 33, 1024, 1025, 2500):
                frame = encoder.encode(values[:count].astype(np.int64), step=0, width=width)
                assert len(frame) <= max_frame(params, count, width)
