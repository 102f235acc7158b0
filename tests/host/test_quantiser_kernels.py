"""The compiled passes equal those in NumPy, bit for bit, at every exponent and at the limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oscar import cores
from oscar.errors import GradientError
from oscar.numerics import quantiser_kernels
from oscar.numerics.integers import add_up, same_bits
from oscar.numerics.plans import make_plan
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, Rounding, WorkerQuantiser
from oscar.numerics.quantiser_kernels import (
    COUNTS,
    FLOAT32_MAX,
    PIECE,
    add_bounded,
    all_finite,
    uniform,
)
from oscar.numerics.steps import StepTracker
from oscar.numerics.sum_kernels import SMALL, squares_of_changes

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    arrays(np.float32, st.integers(0, 40), elements=floats | st.sampled_from([0.5, -0.5, 1.5, 127.5, -0.0])),
    st.integers(-140, 140),
    st.sampled_from([8, 12, 16]),
    st.booleans(),
    st.sampled_from(["nearest", "stochastic"]),
    st.sampled_from([np.int32, np.int16]),
    st.sampled_from([None, "equal", "interleave"]),
)
def test_the_kernel_equals_numpy(
    tensor: np.ndarray,
    exponent: int,
    bits: int,
    feedback: bool,
    rounding: Rounding,
    dtype: type[np.integer[Any]],
    plan_name: str | None,
) -> None:
    params = QuantiserParams(bits=bits, error_feedback=feedback, rounding=rounding, seed=2**63 - 1)
    count = tensor.size + min(3, tensor.size)
    plan = None if plan_name is None else make_plan(plan_name, count, 3, granule=4)
    room = np.full(count, 99, dtype)
    compiled, plain = WorkerQuantiser(params, 0), WorkerQuantiser(params, 0)
    exponent = min(exponent, params.max_exponent)
    for given_now in (tensor, tensor[::-1].copy()):  # the second one meets a residual
        came = compiled.quantise([given_now, given_now[:3]], [exponent, None], dtype, plan, room)
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
            patch.setattr(quantiser_kernels, "NORMAL_EXPONENTS", range(0))
            expected = plain.quantise([given_now, given_now[:3]], [exponent, None], dtype)
        assert np.array_equal(came if plan is None else plan.scatter(came), expected)
        assert vars(compiled.saturation) == pytest.approx(vars(plain.saturation), rel=1e-9)
        for worker in (compiled, plain):
            worker.commit()
        if feedback:
            bits_of = [worker.residual.view(np.uint32) for worker in (compiled, plain)]
            assert np.array_equal(*bits_of)


@given(st.integers(0, 2**63 - 1), st.integers(0, 255), st.integers(0, 2**63), st.integers(0, 9000), st.data())
def test_any_part_of_the_noise_is_that_of_numpy(seed: int, rank: int, turn: int, at: int, data: Any) -> None:
    size = data.draw(st.integers(0, PIECE))
    generator = np.random.Generator(np.random.Philox(key=[seed, rank], counter=[0, 0, 0, turn]))
    words, draws = np.empty((4, COUNTS), np.uint64), np.empty(4 * COUNTS)
    came = uniform(np.array([seed, rank, turn], np.uint64), at, size, words, draws)
    assert np.array_equal(came, generator.random(at + size)[at:])


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_pieces_and_blocks_of_many_tensors_meet(rounding: Rounding) -> None:
    random = np.random.default_rng(0)
    tensors = [random.standard_normal(size).astype(np.float32) for size in (1, 7, 9001, 0, 4096, 5)]
    exponents, params = [-4, -5, -6, None, -4, -3], QuantiserParams(bits=8, rounding=rounding)
    compiled, plain = WorkerQuantiser(params, 1), WorkerQuantiser(params, 1)
    for name in ("splitter", "interleave"):
        plan = make_plan(name, sum(t.size for t in tensors), 4, granule=256)
        came = compiled.quantise(tensors, exponents, np.int16, plan)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quantiser_kernels, "NORMAL_EXPONENTS", range(0))
            expected = plain.quantise(tensors, exponents, np.int16, plan)
        assert np.array_equal(came, expected)
        assert vars(compiled.saturation) == pytest.approx(vars(plain.saturation), rel=1e-9)


@given(arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32)))
def test_what_is_not_finite_is_found(values: np.ndarray) -> None:
    assert all_finite(values) == np.isfinite(values).all()


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("feedback", [False, True])
def test_threads_change_no_bit(rounding: Rounding, feedback: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many tensors, some without a step, the quantiser's integers and what follows from sums."""
    monkeypatch.setattr(cores, "THREAD_VALUES", 6000)
    random = np.random.default_rng(1)
    params = QuantiserParams(bits=8, rounding=rounding, error_feedback=feedback)
    sizes, exponents = [1, 7, 9001, 0, 4096, 5, 30_000], [-4, -5, -6, None, None, -3, -5]
    plan = make_plan("interleave", sum(sizes), 4, granule=256)
    workers = [WorkerQuantiser(params, 1) for _ in range(2)]
    trackers = [StepTracker(params, sizes, 2) for _ in range(2)]
    places = [PositionState(sum(sizes)) for _ in range(2)]
    for tracker in trackers:
        tracker.exponents = [*exponents]
    for _ in range(3):
        tensors = [random.standard_normal(size).astype(np.float32) for size in sizes]
        with cores.at_most(1):
            alone = workers[0].quantise(tensors, exponents, np.int16, plan)
            one = trackers[0].settle(alone, plan, places[0])
        with cores.at_most(5):
            shared = workers[1].quantise(tensors, exponents, np.int16, plan)
            many = trackers[1].settle(shared, plan, places[1])
        assert np.array_equal(alone, shared)
        assert workers[0].saturation == workers[1].saturation
        for worker in workers:
            worker.commit()
        if feedback:
            assert np.array_equal(workers[0].residual, workers[1].residual)  # type: ignore[arg-type]
        assert np.array_equal(one.sums, many.sums)
        assert np.array_equal(one.mean, many.mean)
        assert trackers[0].digest() == trackers[1].digest()
        assert np.array_equal(places[0].mean, places[1].mean)
    tensors[-1][-1] = np.nan
    with cores.at_most(5), pytest.raises(GradientError, match="tensor 6: 1 of 30000 values"):
        workers[1].quantise(tensors, exponents, np.int16, plan)


@given(
    st.sampled_from([np.nan, -np.nan, np.inf, -np.inf]),
    st.integers(0, 2 * PIECE + 6),
    st.sampled_from([-130, -126, -6, 100, 120]),
    st.sampled_from([8, 16]),
    st.booleans(),
    st.sampled_from(["nearest", "stochastic"]),
    st.sampled_from([None, "equal", "interleave"]),
)
def test_a_value_that_is_not_finite_is_refused_in_any_pass_and_leaves_nothing(
    bad: float, at: int, exponent: int, bits: int, feedback: bool, rounding: Rounding, plan_name: str | None
) -> None:
    params = QuantiserParams(bits=bits, error_feedback=feedback, rounding=rounding)
    exponent = min(exponent, params.max_exponent)
    random = np.random.default_rng(at)
    good = [random.standard_normal(size).astype(np.float32) for size in (3, PIECE + 3, PIECE + 1)]
    exponents = [exponent, exponent, None]
    flat = np.concatenate(good)
    flat[at] = bad
    wrong = [flat[:3], flat[3 : PIECE + 6], flat[PIECE + 6 :]]
    tensor = next(t for t, part in enumerate(wrong) if not np.isfinite(part).all())
    plan = None if plan_name is None else make_plan(plan_name, flat.size, 3, granule=256)
    struck, calm = WorkerQuantiser(params, 1), WorkerQuantiser(params, 1)
    for _ in range(2):  # without and with a residual
        with pytest.raises(GradientError, match=f"node 1, tensor {tensor}: 1 of {wrong[tensor].size} values"):
            struck.quantise(wrong, exponents, np.int32, plan)
        came = [worker.quantise(good, exponents, np.int32, plan) for worker in (struck, calm)]
        assert np.array_equal(*came)
        for worker in (struck, calm):
            worker.commit()
        if feedback:
            assert np.array_equal(struck.residual, calm.residual)  # type: ignore[arg-type]


@given(arrays(np.float32, 24, elements=floats), arrays(np.float32, 24, elements=floats))
def test_residuals_are_added_within_float32(tensor: np.ndarray, residual: np.ndarray) -> None:
    out = np.empty_like(tensor)
    add_bounded(tensor, residual, out)
    with np.errstate(over="ignore"):
        expected = np.clip(tensor + residual, -FLOAT32_MAX, FLOAT32_MAX)
    assert np.array_equal(out.view(np.uint32), expected.view(np.uint32))


@given(arrays(np.int16, 24), arrays(np.int16, 24), st.integers(-140, 118), st.sampled_from([1, 2, 3, 7, 256]))
def test_means_and_squares_are_those_of_wide_numbers(
    sums: np.ndarray, before: np.ndarray, exponent: int, nodes: int
) -> None:
    tracker = StepTracker(QuantiserParams(), [sums.size], nodes)
    tracker.exponents = [exponent]
    with np.errstate(over="ignore"):
        expected = np.ldexp(sums.astype(np.float64) / nodes, exponent).astype(np.float32)
    assert np.array_equal(tracker.settle(sums).mean.view(np.uint32), expected.view(np.uint32))
    for left, right in ((0, 0), (1, 0), (0, 1)):
        pairs = [(int(a), int(b)) for a, b in zip(sums, before, strict=True)]
        squares = sum(a * a for a, _ in pairs), sum(((a << left) - (b << right)) ** 2 for a, b in pairs)
        assert squares_of_changes(sums, before, left, right) == squares


@pytest.mark.parametrize("edge", [SMALL - 1, SMALL, 32767])
def test_squares_of_a_full_piece_at_the_edge_of_32_bits_are_exact(edge: int) -> None:
    for first, last in ((edge, -edge - 1), (-edge - 1, edge)):
        sums, before = np.full(PIECE, first, np.int16), np.full(PIECE, last, np.int16)
        assert squares_of_changes(sums, before, 0, 0) == (PIECE * first**2, PIECE * (first - last) ** 2)


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize("name", ["splitter", "interleave", "snake"])
def test_sums_settle_what_each_tensor_needs(name: str, dtype: type[np.integer[Any]]) -> None:
    """Over tensors whose ends lie within blocks and pieces, in plan order, some without a step."""
    random, sizes = np.random.default_rng(0), [1, 9001, 0, 4096, 700, 5]
    values, width = sum(sizes), 600
    plan = make_plan(name, values, 4, granule=256, costs=np.arange(-(-values // 256)))
    tracker, plain = (StepTracker(QuantiserParams(), sizes, 4) for _ in range(2))
    position, alone = PositionState(values), PositionState(values)
    for tracked in (tracker, plain):
        tracked.exponents, tracked.variances = [-4, -5, -6, -3, None, -3], [1 << 40] * 6
    for turn in range(4):
        sums = random.integers(-width, width, values).astype(dtype)
        sums[:: 1 + turn * 4000] *= 3  # pieces with and without large sums
        settled = tracker.settle(plan.gather(sums), plan, position)
        assert np.array_equal(settled.sums, sums)
        for t, exponent in enumerate(plain.exponents):
            here = slice(plain.offsets[t], plain.offsets[t + 1])
            expected = np.ldexp(sums[here] / 4, exponent or 0).astype(np.float32)
            assert np.array_equal(settled.mean[here], expected)
        rises = plain._observe(sums, [None] * len(sizes))
        alone.observe(sums)
        alone.rescale(plain.offsets, rises)
        assert tracker.variances == plain.variances
        assert tracker.exponents == plain.exponents
        assert np.array_equal(position.mean, alone.mean)
        assert np.array_equal(position.classes, alone.classes)
    assert any(rises) or None in plain.exponents


def test_means_of_magnitudes_move_an_eighth_of_the_way_from_every_place() -> None:
    """All means of 16 bits, by the formula of docs/reference/protocol.md in 64 bits."""
    before = np.arange(1 << 16)
    for size in (0, 1, 700, 4095, 9000):
        position = PositionState(before.size)
        position.mean[:] = before
        position.observe(np.full(before.size, -size, np.int32))
        assert np.array_equal(position.mean, before + ((16 * min(size, 4095) - before) >> 3))


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize("size", [0, 1, 70_001])
def test_sums_and_bits_are_compared_to_the_last_value(dtype: type[np.integer[Any]], size: int) -> None:
    parts = [np.random.default_rng(rank).integers(-4000, 4000, size).astype(dtype) for rank in range(3)]
    total = np.sum(parts, axis=0).astype(dtype)
    assert add_up(parts, total)
    assert same_bits(total, total.copy())
    if size:
        wrong = total.copy()
        wrong[-1] += 1
        assert not add_up(parts, wrong)
        assert not same_bits(total, wrong)
        assert not same_bits(total, total[1:])
    most = np.full(size, np.iinfo(dtype).max, dtype)
    assert add_up([most, most], most + most) is (size == 0)  # wraps
    assert add_up([most, -most], np.zeros(size, dtype))


def test_position_classes_are_bit_lengths_of_moving_means() -> None:
    random = np.random.default_rng(0)
    state = PositionState(1 << 16)
    means = state.mean = np.arange(1 << 16).astype(np.uint16)
    sums = random.integers(-32768, 32768, means.size).astype(np.int16) >> random.integers(0, 16, means.size)
    state.observe(sums)
    moved = np.minimum(np.abs(sums.astype(np.int32)), 4095) * 16 - means.astype(np.int32)
    assert np.array_equal(state.mean, means + (moved >> 3))
    assert state.classes.tolist() == [min(15, int(mean).bit_length()) for mean in state.mean]
    state.load_state_dict({"mean": means})
    assert state.classes.tolist() == [min(15, mean.bit_length()) for mean in range(1 << 16)]
