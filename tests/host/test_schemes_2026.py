"""THC and DynamiQ against oracles: their papers' arithmetic value by value, without vectors or packing."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import CautionWarning, FrameError
from oscar.numerics.tensors import pack_bits, packed_size, unpack_bits
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.base import check_bytes
from oscar.schemes.registry import make_scheme
from oscar_studies.peers import dynamiq
from oscar_studies.peers.rotation import Rotation, hadamard
from oscar_studies.peers.thc import best_table
from support.gradients import laplace

SHAPES = [(40, 50), (0,), (33,), (1,)]
NAMES = pytest.mark.parametrize("name", ["thc", "dynamiq"])


def cluster(name: str, nodes: int, **options: Any) -> LocalCluster:
    return LocalCluster(Config.model_validate({"method": name, "nodes": nodes, "scheme": options}))


def drawn(nodes: int, turn: int, shapes: Any = SHAPES) -> list[list[np.ndarray]]:
    return [laplace(rank, turn, shapes) for rank in range(nodes)]


def mean_of(gradients: list[list[np.ndarray]]) -> np.ndarray:
    return np.mean([np.concatenate([t.ravel() for t in mine]) for mine in gradients], axis=0)


@pytest.mark.parametrize("bits", [1, 3, 4, 7, 8, 13])
def test_packed_codes_come_back_and_begin_at_the_lowest_bit(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, 101)
    packed = pack_bits(codes, bits)
    assert packed.size == packed_size(101, bits)
    whole = int.from_bytes(packed.tobytes(), "little")
    assert [(whole >> (i * bits)) & ((1 << bits) - 1) for i in range(101)] == codes.tolist()
    assert np.array_equal(unpack_bits(packed, 101, bits), codes)


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_the_transform_is_the_matrix_of_sylvester(size: int) -> None:
    matrix = np.array([[(-1) ** (i & j).bit_count() for j in range(size)] for i in range(size)]) / math.sqrt(
        size
    )
    values = laplace(0, 0, [(size,)])[0]
    assert np.allclose(hadamard(values), matrix @ values, atol=1e-5)


def test_blocks_fit_and_rotate_back() -> None:
    rotation = Rotation(900, 1 << 20)
    assert rotation.sizes.tolist() == [512, 256, 128, 64]
    assert Rotation(900, 256).sizes.tolist() == [256, 256, 256, 128, 64]
    values, signs = laplace(0, 0, [(900,)])[0], rotation.signs(3, 7)
    assert set(signs.tolist()) == {-1.0, 1.0}
    rotated = rotation.forward(values, signs)
    assert np.linalg.norm(rotated) == pytest.approx(np.linalg.norm(values), rel=1e-5)
    assert np.allclose(rotation.back(rotated, signs), values, atol=1e-4)
    assert not np.array_equal(signs, rotation.signs(3, 8))


def test_the_table_is_the_best_of_all() -> None:
    """By trying all: the variance of random rounding of a normal value, integrated in small steps."""
    bits, granularity, tail, top = 2, 9, 0.1, 1.6448536
    x = np.linspace(-top, top, 20_001)
    density = np.exp(-x * x / 2)

    def variance(table: tuple[int, ...]) -> float:
        levels = top * (2 * np.array(table) / granularity - 1)
        upper = np.clip(np.searchsorted(levels, x), 1, len(levels) - 1)
        return float(((x - levels[upper - 1]) * (levels[upper] - x) * density).sum())

    every = [(0, *inner, granularity) for inner in itertools.combinations(range(1, granularity), 2)]
    assert best_table(bits, granularity, tail) == min(every, key=variance)
    assert best_table(4, 15, 1 / 32) == tuple(range(16))  # no choice: uniform levels
    paper = best_table(4, 30, 1 / 32)
    assert len(paper) == 16
    assert (paper[0], paper[-1]) == (0, 30)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_thc_is_the_mean_of_table_entries_each_next_to_its_value(nodes: int) -> None:
    """An oracle in float64: rotate by a matrix, clip, and look for each sum between its neighbours'."""
    gradients = drawn(nodes, 0, [(120,)])
    one = cluster("thc", nodes, error_feedback=False, block=64)
    result = one.allreduce(gradients)
    scheme = make_scheme("thc", {"block": 64}, shapes=[(120,)], nodes=nodes, seed=one.config.seed)
    rotation, table = scheme.rotation, np.array(best_table(4, 30, 1 / 32))
    assert rotation.sizes.tolist() == [64, 64]
    signs = rotation.signs(one.config.seed, 0).astype(np.float64)
    matrix = np.array([[(-1) ** (i & j).bit_count() for j in range(64)] for i in range(64)]) / 8
    padded = [np.append(mine[0].astype(np.float64), np.zeros(8)) * signs for mine in gradients]
    rotated = np.array([np.concatenate([matrix @ part for part in np.split(mine, 2)]) for mine in padded])
    norms = np.linalg.norm(rotated.reshape(nodes, 2, 64), axis=2).max(axis=0)
    top = np.repeat(2.1538747 * norms / 8, 64)
    places = np.clip((rotated / top + 1) * 15, 0, 30)
    upper = np.clip(np.searchsorted(table, places, side="right"), 1, 15)
    low, high = table[upper - 1].sum(axis=0), table[upper].sum(axis=0)
    back = np.concatenate(
        [matrix @ part for part in np.split(np.append(result.mean[0], np.zeros(8)) * signs, 2)]
    )
    sums = (back / top + 1) * 15 * nodes
    whole = np.arange(64)  # the second block's padding is lost on the way back
    assert np.abs(sums - np.rint(sums))[whole].max() < 1e-2
    assert (np.rint(sums)[whole] >= low[whole]).all()
    assert (np.rint(sums)[whole] <= high[whole]).all()


def test_thc_sends_codes_to_owners_and_sums_back() -> None:
    for nodes, sums in ((2, 6), (4, 7), (8, 8)):
        stats = cluster("thc", nodes).allreduce(drawn(nodes, 0, [(1 << 16,)])).stats
        assert stats.bits_per_value == pytest.approx((4 + sums) / 2, rel=0.02)


@pytest.mark.parametrize("width", [2, 4, 8])
def test_levels_are_those_of_the_closed_form(width: int) -> None:
    square = dynamiq.ERRORS[width] ** 2
    whole = [((1 + 2 * square) ** i - 1) / (2 * square) * (1 + square) for i in range(1 << (width - 1))]
    assert np.allclose(dynamiq.levels_of(width), np.array(whole) / whole[-1], rtol=1e-6)


def test_widths_keep_to_the_budget_and_follow_energies() -> None:
    """By trying all thresholds."""
    random = np.random.default_rng(0)
    for spread, budget in ((1, 4.3), (1, 2.0), (12, 4.3), (12, 2.5), (12, 8.0)):
        energies = np.exp(spread * random.normal(size=300)).astype(np.float32)
        widths = dynamiq.choose_widths(energies, budget)
        order = np.argsort(energies)
        assert (np.diff(widths[order]) >= 0).all()
        assert widths.mean() <= budget
        best = 2.0
        for threshold in np.concatenate([energies, energies.astype(np.float64) * dynamiq.RATIO]):
            tried = np.where(energies >= threshold, 8, np.where(energies >= threshold / dynamiq.RATIO, 4, 2))
            if tried.mean() <= budget:
                best = max(best, float(tried.mean()))
        assert widths.mean() == best
    assert dynamiq.choose_widths(np.zeros(3, np.float32), 5).tolist() == [2, 2, 2]


def test_a_value_of_one_worker_comes_as_one_of_its_two_levels() -> None:
    """An oracle: a single node quantises once. Level times scale, and scales are parts of the largest."""
    gradient = laplace(0, 0, [(256,)])[0]
    found = cluster("dynamiq", 1, bits=5.0).allreduce([[gradient]]).mean[0]
    mean = np.float32(gradient.sum() / 256)
    centre = float(np.array([mean]).view(np.uint32)[0] & 0xFFFF0000)
    centre = float(np.array([int(centre)], np.uint32).view(np.float32)[0])
    levels, groups = dynamiq.levels_of(4).astype(np.float64), (gradient - mean).reshape(16, 16)
    units = np.abs(groups).max(axis=1)
    top = units.max()
    for group, own, unit in zip(found.reshape(16, 16), groups, units, strict=True):
        shares = {math.floor(unit / top * 255 * near) for near in (0.99, 1.0)}
        tops = [top * (1 + part / 256) for part in range(3)]  # bfloat16 rounds the largest up
        for came, value in zip(group, own, strict=True):
            upper = min(int(np.searchsorted(levels, abs(value) / unit, side="right")), 7)
            most = max(levels[upper] * (max(shares) + 1) / 255 * one for one in tops)
            least = min(levels[upper - 1] * min(shares) / 255 * one for one in tops)
            size = abs(came - centre)
            slack = 0.01 * top  # of the centre, which bfloat16 rounds
            assert least - slack <= size <= most + slack
            assert size < 2 * slack or (came > centre) == (value > 0)


@NAMES
def test_means_are_unbiased_and_workers_draw_apart(name: str) -> None:
    nodes, rounds = 3, 200
    gradients = [[np.abs(t) for t in mine] for mine in drawn(nodes, 0, [(512,)])]
    one = cluster(name, nodes, error_feedback=False, **({"tail": 1e-5} if name == "thc" else {}))
    results = np.array([one.allreduce(gradients).mean[0] for _ in range(rounds)])
    exact = mean_of(gradients)
    deviation = results.std(axis=0)
    assert deviation.min() > 0
    means = np.array([result[:] for result in results]).mean(axis=0)
    room = 0.01 * np.abs(exact).max()  # bfloat16 of the centre
    assert (np.abs(means - exact) < 6 * deviation / math.sqrt(rounds) + room).all()


def test_correlated_rounding_has_less_noise() -> None:
    equal = laplace(0, 0, [(4096,)])
    errors = {}
    for correlated in (True, False):
        one = cluster("dynamiq", 4, correlated=correlated)
        found = [one.allreduce([equal] * 4).mean[0] for _ in range(6)]
        errors[correlated] = np.mean([np.square(one - equal[0]).mean() for one in found])
    assert errors[True] < 0.95 * errors[False]


@NAMES
def test_feedback_delivers_what_was_lost(name: str) -> None:
    def lost(feedback: bool) -> float:
        one, total, given = cluster(name, 4, error_feedback=feedback), 0.0, 0.0
        for turn in range(8):
            gradients = drawn(4, turn, [(3000,)])
            total, given = total + one.allreduce(gradients).mean[0], given + mean_of(gradients)
        return float(np.linalg.norm(total - given))

    assert lost(True) < 0.7 * lost(False)


def test_a_super_group_of_large_values_has_a_finite_mean() -> None:
    """256 values of 2e37 sum to more than float32 holds."""
    gradients = [[np.full(300, 2e37, np.float32)], [np.zeros(300, np.float32)]]
    assert np.allclose(cluster("dynamiq", 2).allreduce(gradients).mean[0], 1e37, rtol=0.01)


def test_a_mean_is_subtracted_as_it_is_sent() -> None:
    """1.003 is no bfloat16: what that rounds away is a difference to the mean, and is coded."""
    mean = cluster("dynamiq", 2).allreduce([[np.full(256, 1.003, np.float32)]] * 2).mean[0]
    assert abs(mean.mean() - 1.003) < 0.001


def test_bytes_of_another_size_name_who_sent_them() -> None:
    with pytest.raises(FrameError, match="rank 3 sent 4 bytes, expected 5: all ranks must reduce the same"):
        check_bytes(np.zeros(4, np.uint8), 5, 3)


@pytest.mark.parametrize(
    ("bits", "feedback", "said"), [(3.0, True, True), (5.0, True, False), (3.0, False, False)]
)
def test_dynamiq_warns_of_feedback_that_may_diverge(bits: float, feedback: bool, said: bool) -> None:
    run, told = cluster("dynamiq", 2, bits=bits, error_feedback=feedback), []
    for _ in range(2):  # told once
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CautionWarning)
            run.allreduce([[np.ones(300, np.float32)]] * 2)
        told += [str(each.message) for each in caught]
    assert len(told) == said
    assert all("error feedback with 3 bits may diverge" in text and "give 5 bits" in text for text in told)
