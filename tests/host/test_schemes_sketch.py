"""Steps sent with the data, the count sketch as a scheme, Sketched-SGD: what they promise to keep is kept."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from oscar.errors import ConfigError
from oscar.numerics.saturation import Saturation
from oscar.numerics.sketch import CountSketch
from oscar.schemes.base import Message, Scheme, Worker
from oscar.schemes.count_sketch import CountSketchOptions, CountSketchScheme
from oscar.schemes.fields import field_limit
from oscar.schemes.grid import Grid, GridSteps
from oscar_studies.peers.sketched_sgd import SketchedSgd, SketchedSgdOptions
from support.lockstep import lockstep

F32 = np.float32


def normal(seed: int, size: int, sigma: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sigma, size).astype(F32)


class Job:
    """Workers in lockstep: every message summed, or its maximum taken, without a wire."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme, self.workers = scheme, [Worker(rank) for rank in range(scheme.nodes)]

    def step(self, gradients: list[np.ndarray]) -> np.ndarray:
        self.totals, sent = lockstep(map(self.scheme.messages, self.workers, gradients), self._combine)
        self.channels = [message.channel for message in sent]
        mean = self.scheme.finish(self.totals)
        self.scheme.forget()
        for worker in self.workers:
            worker.commit()
        assert mean.dtype == F32
        return mean

    def _combine(self, messages: list[Message]) -> np.ndarray:
        first = messages[0]
        if first.data.dtype == np.int32:
            limit = field_limit(first.bits, self.scheme.nodes)
            assert all(np.abs(m.data).max(initial=0) <= limit for m in messages)
        combine = np.maximum if first.op == "max" else np.add
        whole = [m.data if m.ride is None else np.concatenate([m.data, m.ride]) for m in messages]
        return combine.reduce(whole, dtype=first.data.dtype)


# Steps


class Steps:
    """Workers that do nothing but agree on steps."""

    def __init__(self, sizes: list[int], nodes: int, coarseness: float = 1 / 8, bits: int = 11) -> None:
        self.steps, self.exchanges = GridSteps(sizes, nodes, coarseness, bits), 0

    def iterate(self, values: list[np.ndarray]) -> Grid:
        def attempt(values: np.ndarray, grid: Grid):
            integers, lost = grid.quantise(values, 127)
            return (yield Message("sum", integers, bits=16, ride=grid.ride(values, lost)))[integers.size :]

        running = [self.steps.settle(v, 127, partial(attempt, v)) for v in values]
        totals, grids = [], []
        messages = [next(g) for g in running]
        while messages:
            combine = np.max if messages[0].op == "max" else np.sum
            self.exchanges += messages[0].op == "max"
            whole = [m.data if m.ride is None else np.append(m.data, m.ride) for m in messages]
            totals.append(combine(whole, axis=0))
            messages = []
            for one in running:
                try:
                    messages.append(one.send(totals[-1]))
                except StopIteration as stop:
                    grids.append(stop.value)
        grid, (last,) = self.steps.split(totals)
        assert len({g.exponents for g in [grid, *grids]}) == 1
        self.steps.observe(grid, last[-self.steps.riders :].astype(np.int32))
        return grid


@pytest.mark.parametrize("nodes", [1, 8, 17])
@pytest.mark.parametrize("bits", [9, 11, 16, 32])
def test_steps_follow_the_values_without_a_message(nodes, bits):
    job = Steps([3000, 0, 500], nodes, bits=bits)
    sizes = [1.0] * 3 + [2.0**n for n in range(1, 8)] + [128.0] * 3 + [100 * 0.7**n for n in range(26)]
    sizes += [0.01] * 4
    for iteration, size in enumerate(sizes):
        values = [
            np.concatenate([normal(99 * iteration + n, 3000, size), normal(n, 500, 1e-3)])
            for n in range(nodes)
        ]
        grid = job.iterate(values)
        if iteration in (2, 12, len(sizes) - 1):
            wanted = math.log2(size / 8)
            assert abs(grid.exponents[0] - wanted) <= 1.25  # .75 of hysteresis, .5 for the units of a field
    assert grid.exponents[1] is None
    narrow = field_limit(bits, nodes) < 31  # units of half of what is nominal
    assert abs(grid.exponents[2] - math.log2(1e-3 / 8)) <= (1.5 if narrow else 0.5)
    assert job.exchanges == 1


@pytest.mark.parametrize("nodes", [1, 8])
def test_values_that_jump_have_their_step_in_the_same_iteration(nodes):
    job, sizes = Steps([3000, 500], nodes, bits=16), [1.0, 1.0, 1e4, 1e4, 1.0, 1e-3, 1e8, 1.0]
    for iteration, size in enumerate(sizes):
        spread = [normal(iteration + n, 3000, size if n == 0 else min(size, 1.0)) for n in range(nodes)]
        grid = job.iterate([np.append(large, normal(n, 500)) for n, large in enumerate(spread)])
        if size < 1:  # of so little energy beside the other tensor that its step does not matter
            assert grid.exponents[0] == -3
            continue
        assert abs(grid.exponents[0] - math.log2(size / 8)) <= 1.25
        assert grid.exponents[1] == -3
        largest = 127.5 * 2.0 ** grid.exponents[0]
        assert max(np.abs(values).max() for values in spread) <= largest
    assert job.exchanges == (5 if nodes == 1 else 6)  # on 8 nodes, the mean is small after the first spike


def test_a_tensor_has_no_step_until_it_has_values_and_then_keeps_one_while_it_is_zero():
    job = Steps([4, 3], 2)
    quiet, loud = np.zeros(4, F32), np.array([1, -1, 1], F32)
    grids = [
        job.iterate([np.concatenate([a, loud])] * 2) for a in (quiet, quiet, loud[[0, 0, 1, 1]], quiet, quiet)
    ]
    assert [g.exponents for g in grids] == [(None, -3), (None, -3), (-3, -3), (-3, -3), (-3, -3)]
    assert job.exchanges == 3
    values = np.concatenate([quiet + 9, loud])
    assert grids[0].quantise(values)[0].tolist() == [0] * 4 + [8, -8, 8]
    assert grids[0].ride(values, Saturation()).tolist() == [0, 64, 0]
    assert grids[0].dequantise(np.ones(7, np.int32), 1).tolist() == [0] * 4 + [0.125] * 3


def test_the_grid_rounds_clips_and_scales_exactly():
    offsets = np.array([0, 5, 5, 9], np.int64)
    grid = Grid((0, None, -126), offsets, 1 / 8, 127, 16)
    tiny = 2.0**-126
    values = np.array([0.5, 1.5, -2.5, 127.6, -3e38, 3e38, tiny, -2.6 * tiny, 1e-45], F32)
    integers, lost = grid.quantise(values)
    assert integers.tolist() == [0, 2, -2, 127, -127, 127, 1, -3, 0]
    assert lost.values == 3
    shuffled = np.array([8, 0, 5, 1, 1, 7], np.int64)
    some, lost = grid.quantise(values, 1, indices=shuffled)
    assert some.tolist() == [0, 0, 1, 1, 1, -1]
    assert lost.values == 4
    sums = np.array([7, -8, 2**31 - 1, -(2**31), 1, 3, -3, 0, 1], np.int32)
    means = grid.dequantise(sums, 3)
    exact = sums / 3 * np.repeat([1.0, tiny], [5, 4])
    assert np.array_equal(means, exact.astype(F32))
    assert np.array_equal(grid.dequantise(sums[shuffled], 3, indices=shuffled), means[shuffled])


def test_what_grids_refuse():
    with pytest.raises(ValueError, match="magnitudes up to 4 at least; fields of 6 bits"):
        GridSteps([3], 8, 1.0, 6)
    with pytest.raises(ValueError, match="coarseness must lie in"):
        GridSteps([3], 8, math.nan, 11)
    grid = Grid((0,), np.array([0, 3]), 1.0, 127, 16)
    with pytest.raises(ValueError, match="expected 3 values in a flat array, got shape"):
        grid.quantise(np.zeros(4, F32))
    with pytest.raises(ValueError, match="0 to 2, got 3 to 3"):
        grid.dequantise(np.zeros(1, np.int32), 1, indices=np.array([3]))
    with pytest.raises(ValueError, match="limit of 16777217"):
        grid.quantise(np.zeros(3, F32), 1 << 24 | 1)
    with pytest.raises(ConfigError, match=r"state\.exponents: expected 1 items, got 2"):
        GridSteps([3], 8, 1.0, 11).load_state_dict(GridSteps([1, 1], 8, 1.0, 11).state_dict())


# The plain count sketch

SHAPES = [(60, 20), (0,), (300,)]
VALUES = 1500


def gradients(nodes: int, seed: int) -> list[np.ndarray]:
    """Some large values that nodes share, and noise; the last tensor is all zero on node 0."""
    out = []
    for node in range(nodes):
        own = normal(97 * seed + node, VALUES) + 40 * (np.arange(VALUES) % 61 == 5)
        if node == 0:
            own[1200:] = 0
        out.append(own.astype(F32))
    return out


@pytest.mark.parametrize("nodes", [1, 3, 17])
@pytest.mark.parametrize("estimate", ["median", "mean"])
def test_the_mean_is_the_estimate_of_the_summed_integers(nodes, estimate):
    options = CountSketchOptions(ratio=0.3, rows=3, estimate=estimate, cell_bits=20)
    job = Job(CountSketchScheme(options, shapes=SHAPES, nodes=nodes, seed=5))
    for iteration in range(3):
        theirs = gradients(nodes, iteration)
        grid = Grid(*_present(job.scheme, theirs))
        mean = job.step(theirs)
        total = np.sum([grid.quantise(g, 127)[0] for g in theirs], axis=0, dtype=np.int32)
        sketch = CountSketch(3, 150, VALUES, 5, draw=iteration)
        combine, share = ("sum", 3) if estimate == "mean" else ("median", 1)
        wanted = sketch.estimate(sketch.encode(total), combine=combine)
        assert np.array_equal(mean, grid.dequantise(wanted, nodes * share))
        asked = iteration == 0 or nodes == 1  # alone, node 0 has a tensor of zeros
        assert job.channels == (["steps", "cells"] if asked else ["cells"])


def _present(scheme, theirs):
    """The grid of the coming iteration, as `agree` settles it."""
    steps, offsets = scheme.steps, scheme.offsets
    parts = [np.sqrt(np.mean(np.split(g.astype(float), offsets[1:-1])[t] ** 2)) if size else 0.0
             for t, size in enumerate(scheme.sizes) for g in theirs]  # fmt: skip
    largest = np.array(parts).reshape(len(scheme.sizes), -1).max(axis=1).astype(F32)
    grid = steps.grid(largest[steps.unset] if steps.unset else None)
    return grid.exponents, grid.offsets, grid.coarseness, grid.limit, grid.nominal


def test_cells_beyond_their_field_saturate_and_are_counted():
    options = CountSketchOptions(ratio=0.05, cell_bits=8, fresh_hash=False)
    job = Job(CountSketchScheme(options, shapes=[(4000,)], nodes=2, seed=0))
    job.step([normal(n, 4000) for n in range(2)])  # Job checks the fields
    assert all(w.saturation.values > 10 for w in job.workers)


def test_a_threshold_leaves_out_noise_and_feedback_keeps_it():
    options = CountSketchOptions(ratio=3.0, rows=5, threshold=3.0, error_feedback=True, cell_bits=24)
    nodes = 4
    job = Job(CountSketchScheme(options, shapes=SHAPES, nodes=nodes, seed=1))
    large = np.arange(1200) % 61 == 5
    for iteration in range(4):
        theirs = gradients(nodes, iteration)
        before = [np.zeros(VALUES, F32) if w.residual is None else w.residual for w in job.workers]
        mean = job.step(theirs)
        left = mean == 0
        if iteration == 0:
            assert np.count_nonzero(~left[:1200][large]) > 0.8 * np.count_nonzero(large)
            assert np.count_nonzero(~left) < 0.1 * VALUES
        for g, held, worker in zip(theirs, before, job.workers, strict=True):
            assert np.array_equal(worker.residual[left], (g + held)[left])
            assert np.abs(worker.residual[~left]).max(initial=0) < np.abs(g + held).max() / 8


# Sketched-SGD


def test_what_is_not_applied_waits_in_the_sketch_to_the_bit():
    nodes = 4
    scheme = SketchedSgd(
        SketchedSgdOptions(share=0.01, ratio=4.0, exact=False, threshold=0.5, cell_bits=20),
        shapes=SHAPES,
        nodes=nodes,
        seed=3,
    )
    job = Job(scheme)
    applied, given_integers = np.zeros(VALUES), np.zeros(VALUES, np.int64)
    exponents = set()
    for iteration in range(6):
        theirs = gradients(nodes, iteration)
        corrected = [w.corrected(g) for w, g in zip(job.workers, theirs, strict=True)]
        mean = job.step(theirs)
        exponents.add(scheme.exponent)
        step = 2.0**scheme.exponent
        for value, worker in zip(corrected, job.workers, strict=True):
            given_integers += np.rint((value - worker.residual) / step).astype(np.int64)
        applied += np.rint(mean.astype(float) * nodes / step)
        assert 0 < np.count_nonzero(mean) <= 15
    assert len(exponents) == 1
    waits = scheme.sketch.encode((given_integers - applied).astype(np.int32))
    assert np.array_equal(scheme.waiting, waits.ravel())


@pytest.mark.parametrize("factor", [1.0, 3.0, 0.3])
def test_what_waits_survives_a_change_of_steps(factor):
    """A few values in a wide sketch come back exactly, so that nothing may be lost but rounding."""
    size, nodes = 4000, 2
    scheme = SketchedSgd(
        SketchedSgdOptions(share=1 / size, ratio=8.0, cell_bits=28, bits=16, exact=False),
        shapes=[(size,)],
        nodes=nodes,
        seed=0,
    )
    job = Job(scheme)
    given, applied = np.zeros(size), np.zeros(size)
    for iteration in range(12):
        own = np.zeros(size, F32)
        own[[100, 200, 300]] = np.array([1.0, -0.7, 0.25]) * factor**iteration
        given += own
        applied += job.step([own] * nodes)
    held = np.mean([w.residual for w in job.workers], axis=0)
    waiting = scheme.sketch.estimate(scheme.waiting) / nodes * 2.0**scheme.exponent
    worst = np.abs(given - applied - held - waiting).max()
    assert worst <= 12 * 2.0**scheme.exponent
    assert 2.0**scheme.exponent < 0.1 * np.abs(own).max()
    assert np.count_nonzero(applied) >= 2


def test_momentum_gathers_in_the_sketch_and_is_forgotten_where_applied():
    size = 4000
    options = SketchedSgdOptions(
        share=1 / size, ratio=8.0, cell_bits=28, bits=16, momentum=0.5, coarseness=2.0**-7, exact=False
    )
    scheme = SketchedSgd(options, shapes=[(size,)], nodes=1, seed=0)
    job = Job(scheme)
    own = np.zeros(size, F32)
    own[[7, 2000]] = 4.0, 0.5
    means = [job.step([own]) for _ in range(3)]
    assert all(abs(m[7] - 4.0) < 0.05 for m in means)  # applied at once: no momentum of its own
    small = scheme.sketch.estimate(scheme.waiting)[2000] * 2.0**scheme.exponent
    assert abs(small - 0.5 * (1 + 1.5 + 1.75)) < 0.1


def test_exact_values_of_the_largest_are_applied_and_the_rest_stays_with_the_workers():
    nodes, size = 5, 3000
    options = SketchedSgdOptions(
        share=0.01, rows=5, ratio=0.3, cell_bits=20, candidates=6, coarseness=2.0**-5, bits=16
    )
    job = Job(SketchedSgd(options, shapes=[(size,)], nodes=nodes, seed=3))
    given, applied = np.zeros(size), np.zeros(size)
    for iteration in range(8):
        theirs = [normal(n + 7 * iteration, size) + 30 * (np.arange(size) % 250 == 9) for n in range(nodes)]
        theirs = [g.astype(F32) for g in theirs]
        total = sum(w.corrected(g) for w, g in zip(job.workers, theirs, strict=True)) / nodes
        mean = job.step(theirs)
        assert job.channels[-2:] == ["cells", "exact"]
        chosen = set(np.flatnonzero(mean).tolist())
        assert len(chosen) <= 30
        assert set(range(9, size, 250)) <= chosen
        where = sorted(chosen)
        step = 2.0 ** job.scheme.steps.exponents[0]
        assert np.abs(mean[where] - total[where]).max() <= 2 * step
        given += np.mean(theirs, axis=0)
        applied += mean
    held = np.mean([w.residual for w in job.workers], axis=0)
    assert np.abs(given - applied - held).max() < 1e-4


@pytest.mark.parametrize(("threshold", "grows"), [(0.0, True), (2.0, False)])
def test_a_threshold_keeps_noise_from_feeding_itself(threshold, grows):
    """Dense noise in a small sketch: values that are extracted wrongly come back larger."""
    options = SketchedSgdOptions(
        share=0.05, rows=5, ratio=0.2, cell_bits=16, exact=False, threshold=threshold
    )
    job = Job(SketchedSgd(options, shapes=[(6000,)], nodes=2, seed=3))
    applied = [np.linalg.norm(job.step([normal(7 * k + n, 6000) for n in range(2)])) for k in range(12)]
    assert (max(applied) > 20 * np.sqrt(6000)) == grows
