"""A step for each value: the rules of protocol.md in plain integers, and that all nodes follow them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oscar import cores
from oscar.config import Config
from oscar.errors import GradientError, PeerError
from oscar.numerics import quantiser_kernels
from oscar.numerics.plans import make_plan
from oscar.numerics.quantiser import QuantiserParams, Rounding, WorkerQuantiser
from oscar.numerics.steps import StepTracker
from oscar.numerics.summaries import summarise
from oscar.numerics.value_steps import ValueSteps, move, rule_of
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.threads import ThreadTransport, local_transports
from support.gradients import laplace
from support.ranks import on_ranks

PARAMS = QuantiserParams(step="value", coarseness=1.0)
QUANTISER = {"step": "value", "coarseness": 1.0}
GOLDEN = [
    [(3584, -2), (4225, -2), (2943, 0), (11775, 8), (3584, -8), (4546, 0)],
    [(3136, -2), (4338, -2), (5383, 1), (18495, 8), (3136, -8), (4940, 0)],
    [(2744, -2), (4437, -2), (3225, 3), (24375, 8), (2744, -8), (5285, 0)],
]


def moved(a: int, k: int, total: int, nodes: int, coarseness: float) -> tuple[int, int]:
    """Return the next A and k, as docs/reference/protocol.md has them."""
    w = min(2**24, max(1, round(2**20 * coarseness / math.sqrt(2 * nodes / math.pi))))
    size = min(min(abs(total), 2**24 // w + 1) * w >> 8, 65535)
    a += (size - a) >> 3
    if 2436 <= a < 6889:
        return a, k
    after = min(8, max(-8, k + (181 * a >> 7).bit_length() - 13))
    return (a >> after - k if after >= k else a << k - after), after


@pytest.mark.parametrize("nodes", [1, 4, 256])
@pytest.mark.parametrize("coarseness", [2.0**-20, 0.125, 1.0, 3.7, 2.0**20])
def test_magnitudes_and_shifts_move_by_the_rule(nodes: int, coarseness: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    mean = np.arange(seed % 13, 1 << 16, 13).astype(np.uint16)
    shifts = random.integers(-8, 9, mean.size).astype(np.int8)
    sums = random.integers(-(1 << 23), 1 << 23, mean.size) >> random.integers(0, 24, mean.size)
    for dtype, given_sums in ((np.int32, sums), (np.int16, np.clip(sums, -32768, 32767))):
        out, shifted = np.empty_like(mean), np.empty_like(shifts)
        move(given_sums.astype(dtype), mean, shifts, *rule_of(coarseness, nodes), out, shifted)
        values = zip(mean.tolist(), shifts.tolist(), given_sums.tolist(), strict=True)
        expected = [moved(a, k, total, nodes, coarseness) for a, k, total in values]
        assert list(zip(out.tolist(), shifted.tolist(), strict=True)) == expected


def test_a_short_run_is_the_one_written_down() -> None:
    """Golden: sums of four nodes, coarseness 1; a change of a rule breaks it."""
    mean, shifts = np.array([4096] * 6, np.uint16), np.array([-2, -2, -2, 8, -8, 0], np.int8)
    sums = np.array([0, 2, -2000, 40, 0, -3], np.int16)
    seen = []
    for _ in range(3):
        out, shifted = np.empty_like(mean), np.empty_like(shifts)
        move(sums, mean, shifts, *rule_of(1.0, 4), out, shifted)
        mean, shifts = out, shifted
        seen.append(list(zip(mean.tolist(), shifts.tolist(), strict=True)))
    assert seen == GOLDEN


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    arrays(np.float32, st.integers(0, 40), elements=floats | st.sampled_from([0.5, -0.5, 1.5, 127.5, -0.0])),
    st.integers(-141, 120),
    st.sampled_from([8, 12, 16]),
    st.booleans(),
    st.sampled_from(["nearest", "stochastic"]),
    st.sampled_from([np.int32, np.int16]),
    st.sampled_from([None, "equal", "interleave"]),
    st.integers(0, 1000),
)
def test_the_kernel_equals_numpy(
    tensor: np.ndarray,
    exponent: int,
    bits: int,
    feedback: bool,
    rounding: Rounding,
    dtype: type[np.integer[Any]],
    plan_name: str | None,
    seed: int,
) -> None:
    params = QuantiserParams(bits=bits, error_feedback=feedback, rounding=rounding, seed=5, step="value")
    count = tensor.size + min(3, tensor.size)
    plan = None if plan_name is None else make_plan(plan_name, count, 3, granule=4)
    compiled, plain = WorkerQuantiser(params, 0), WorkerQuantiser(params, 0)
    exponent = min(exponent, params.max_exponent - 8)
    shifts = np.random.default_rng(seed).integers(-8, 9, count).astype(np.int8)
    for given_now in (tensor, tensor[::-1].copy()):  # the second one meets a residual
        tensors = [given_now, given_now[:3]]
        came = compiled.quantise(tensors, [exponent, None], dtype, plan, None, shifts)
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
            patch.setattr(quantiser_kernels, "NORMAL_EXPONENTS", range(0))
            expected = plain.quantise(tensors, [exponent, None], dtype, None, None, shifts)
        assert np.array_equal(came if plan is None else plan.scatter(came), expected)
        assert vars(compiled.saturation) == pytest.approx(vars(plain.saturation), rel=1e-9)
        for worker in (compiled, plain):
            worker.commit()
        if feedback:
            bits_of = [worker.residual.view(np.uint32) for worker in (compiled, plain)]
            assert np.array_equal(*bits_of)
    for given_now in (tensor,):
        each = np.ldexp(given_now.astype(np.float64), -(shifts[: tensor.size].astype(int) + exponent))
        if rounding == "nearest" and not feedback:
            expected = np.clip(np.rint(each), -params.limit, params.limit)
            alone = WorkerQuantiser(params, 0).quantise([given_now], [exponent], shifts=shifts[: tensor.size])
            assert np.array_equal(alone, expected)


def test_what_is_not_finite_is_refused() -> None:
    worker, bad = WorkerQuantiser(PARAMS, 2), np.array([1, np.nan, 2], np.float32)
    with pytest.raises(GradientError, match="node 2, tensor 0: 1 of 3 values"):
        worker.quantise([bad], [0], shifts=np.zeros(3, np.int8))


def wide(random: np.random.Generator, size: int) -> np.ndarray:
    return random.integers(-3000, 3000, size) >> random.integers(0, 12, size)


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize("threads", [1, 4])
def test_sums_settle_means_shifts_and_exponents(
    dtype: type[np.integer[Any]], threads: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the formulas, in plan order, with a tensor that has no step, over several iterations."""
    monkeypatch.setattr(cores, "THREAD_VALUES", 2000)
    random, sizes, nodes = np.random.default_rng(seed), [1, 4500, 0, 700, 5], 4
    values = sum(sizes)
    plan = make_plan("interleave", values, 4, granule=256)
    tracker, own = StepTracker(PARAMS, sizes, nodes), ValueSteps(values)
    tracker.exponents, tracker.variances = [-4, -5, -6, None, 20], [1 << 32] * 5
    a, k = [4096] * values, [-2] * values
    for _ in range(4):
        before, variances, sums = list(tracker.exponents), list(tracker.variances), wide(random, values)
        with cores.at_most(threads):
            settled = tracker.settle(plan.gather(sums.astype(dtype)), plan, own)
        assert np.array_equal(settled.sums, sums)
        for t, exponent in enumerate(before):
            here = range(tracker.offsets[t], tracker.offsets[t + 1])
            powers = np.array([k[i] for i in here], int) + (exponent or 0)
            expected = np.ldexp(sums[here.start : here.stop] / nodes, powers).astype(np.float32)
            assert np.array_equal(settled.mean[here.start : here.stop], expected)
            if exponent is None or not here:
                assert tracker.exponents[t] == exponent
                continue
            size = sum((int(sums[i]) << k[i] + 8) ** 2 for i in here)
            fresh = math.floor(Fraction(size * 2**16, nodes * len(here)))
            for i in here:
                a[i], k[i] = moved(a[i], k[i], int(sums[i]), nodes, 1.0)
            after = tracker.exponents[t]
            if size == 0:
                assert after == exponent
                continue
            if fresh > 256 * nodes * variances[t]:
                assert after is None
                continue
            estimate = variances[t] + ((fresh - variances[t]) >> (1 if fresh > variances[t] else 3))
            assert after is not None
            rise = after - exponent
            assert tracker.variances[t] == (estimate >> 2 * rise if rise > 0 else estimate << -2 * rise)
            assert abs(0.5 * math.log2(max(tracker.variances[t], 1) / 2**32)) <= 0.7501
            for i in here:
                step, k[i] = k[i] + exponent, min(8, max(-8, k[i] - rise))
                change = k[i] + after - step
                a[i] = min(65535, a[i] >> change if change > 0 else a[i] << -change)
        assert own.mean.tolist() == a
        assert own.shifts.tolist() == k
        assert own.classes.tolist() == [min(15, mean.bit_length()) for mean in a]


@pytest.mark.parametrize("threads", [1, 2])
def test_energies_of_a_saturated_tensor_are_whole(threads: int) -> None:
    """They exceed int64 long before a tensor is too large, whoever adds them."""
    values, nodes = 1 << 22, 16
    tracker, own = StepTracker(PARAMS, [values], nodes), ValueSteps(values)
    tracker.exponents, tracker.variances = [3], [1 << 60]
    with cores.at_most(threads):
        tracker.settle(np.full(values, 32752, np.int16), None, own)
    fresh = (32752 << 6) ** 2 * 2**16 // nodes
    estimate = (1 << 60) + ((fresh - (1 << 60)) >> 3)
    rise = (tracker.exponents[0] or 0) - 3
    assert tracker.variances == [estimate >> 2 * rise if rise > 0 else estimate << -2 * rise]


def gradients(iteration: int, nodes: int = 3, spread: float = 1.0) -> list[list[np.ndarray]]:
    """Noise whose size differs from value to value, by 2^-4 to 2^4 where spread is 1."""
    scale = np.exp2(spread * np.random.default_rng(99).uniform(-4, 4, 1200)).astype(np.float32)
    tensors = [laplace(rank, iteration, [(40, 30), (7,)]) for rank in range(nodes)]
    return [[first * scale.reshape(40, 30), second] for first, second in tensors]


def cluster(method: str = "asc", **changes: Any) -> LocalCluster:
    return LocalCluster(Config.model_validate({"method": method, "quantiser": {**QUANTISER, **changes}}))


def test_small_values_are_as_exact_as_large_ones() -> None:
    """Errors of means in each value's own sigma: a step per tensor loses all of the small ones."""

    def error(step: str) -> np.ndarray:
        own, squares = cluster(step=step), []
        for iteration in range(60):
            given_now = gradients(iteration)
            mean = own.allreduce(given_now).mean[0].ravel()
            exact = np.mean([node[0] for node in given_now], axis=0).ravel()
            squares.append(
                (mean - exact) ** 2 / np.mean([node[0].ravel() ** 2 for node in given_now], axis=0)
            )
        scale = np.exp2(np.random.default_rng(99).uniform(-4, 4, 1200))
        return np.sqrt(np.median(squares[30:], axis=0))[scale < 0.25]

    assert np.median(error("value")) < 0.4
    assert np.median(error("tensor")) > 0.4


def test_a_value_that_was_zero_for_long_comes_back_without_saturating() -> None:
    own = cluster()
    for iteration in range(150):
        given_now = gradients(iteration, spread=0.0)
        for node in given_now:
            node[0][3] = 0.0
        assert own.allreduce(given_now).stats.clipped == 0
    again = own.allreduce(gradients(151, spread=0.0))
    assert again.stats.clipped == 0
    assert own.scheme is not None
    assert own.scheme.position.shifts.min() <= -6


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 1e3, 1e12])
@pytest.mark.filterwarnings("ignore:.*it carries over:oscar.errors.SaturationWarning")
def test_steps_follow_a_tensor_that_changes_its_size(factor: float) -> None:
    own = cluster(coarseness=0.125, error_feedback=True)  # what saturates meanwhile is told without it
    for iteration in range(400 if factor < 1 else 90):
        given_now = [
            [t * np.float32(factor if iteration > 20 else 1) for t in n] for n in gradients(iteration)
        ]
        mean = own.allreduce(given_now).mean[0]
    exact = np.mean([node[0] for node in given_now], axis=0)
    assert np.abs(mean - exact).max() < 0.2 * np.abs(exact).max()
    assert np.median(np.abs(mean - exact) / np.abs(exact)) < 0.2


CONFIG = Config.model_validate({"quantiser": {**QUANTISER, "error_feedback": True}})


def _drift(name: str) -> Callable[[Any], None]:
    def change(position: ValueSteps) -> None:
        held = getattr(position, name).copy()
        held[5] ^= 1
        setattr(position, name, held)

    return change


@pytest.mark.parametrize("name", ["mean", "shifts"])
def test_shifts_that_drifted_are_named_at_the_next_call(name: str) -> None:
    def work(transport: ThreadTransport) -> Any:
        communicator = Communicator(CONFIG, transport, timeout_s=20)
        communicator.allreduce(gradients(0)[transport.rank])
        if transport.rank == 1:
            _drift(name)(communicator.states[0].scheme.position)
        return communicator.allreduce(gradients(1)[transport.rank])

    errors = on_ranks(local_transports(3), work)
    assert all(isinstance(error, PeerError) for error in errors), errors
    assert "rank 1 has another replicated state than this rank, in its steps;" in str(errors[2])


def test_one_small_exchange_in_the_first_iteration_is_all_it_costs() -> None:
    own = cluster()
    costs = [own.allreduce(gradients(i)).stats.exchange_bytes for i in range(10)]
    assert costs[0] > 0
    assert not any(costs[1:])


def test_summaries_of_a_tensor_without_a_step_keep_the_profile() -> None:
    """Sums of zeros change nothing, and after a jump the next agreement sets e alone."""
    tracker, own = StepTracker(PARAMS, [3], 2), ValueSteps(3)
    tracker.agree([summarise([np.full(3, 2.0, np.float32)], PARAMS)] * 2)
    tracker.settle(np.array([1, -8, 0], np.int16), None, own)
    shifts = own.shifts.copy()
    tracker.settle(np.zeros(3, np.int16), None, own)
    assert tracker.unset == []
    tracker.exponents = [None]
    tracker.agree([summarise([np.full(3, 64.0, np.float32)], PARAMS)] * 2)
    assert tracker.exponents == [6]
    assert np.abs(own.shifts - shifts).max() <= 1
