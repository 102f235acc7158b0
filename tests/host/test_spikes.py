"""Gradients that jump: every call's mean is right, and nothing of a spike comes back later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import SaturationWarning
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.registry import scheme_names
from oscar_lab.trials.spikes import SpikeCase, config_of, train

SHAPES, NODES = [(40, 30), (200,), ()], 2
SPIKES = range(8, 11)
quiet = pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")


def gradients(call: int, size: float = 1.0, everyone: bool = False) -> list[list[np.ndarray]]:
    """Return gradients [rank][tensor], float32, with a common part; rank 0's, or all, are `size` times."""
    given = []
    for rank in range(NODES):
        draws = np.random.default_rng([7, 0]), np.random.default_rng([7, call + 1, rank])
        factor = size if everyone or rank == 0 else 1.0
        given.append([
            np.asarray(factor * sum(draw.laplace(0, 0.02, shape) for draw in draws), np.float32)
            for shape in SHAPES
        ])  # fmt: skip
    return given


def flat(tensors: Any) -> np.ndarray:
    return np.concatenate([np.ravel(tensor) for tensor in tensors]).astype(np.float64)


def residuals(cluster: LocalCluster) -> list[np.ndarray]:
    workers = [] if cluster.state is None else cluster.state.workers
    kept = [np.zeros(1) if worker.residual is None else worker.residual for worker in workers]
    return [one.astype(np.float64) for one in kept] or [np.zeros(1)]


@quiet
@pytest.mark.parametrize("everyone", [False, True])
@pytest.mark.parametrize("method", scheme_names())
def test_a_spike_has_the_usual_error_and_leaves_nothing_behind(method: str, everyone: bool) -> None:
    cluster, errors, waiting = LocalCluster(config_of(method)), [], 0.0
    ordinary = np.linalg.norm(flat(gradients(0)[0]))
    for call in range(16):
        given = gradients(call, 1e4 if call in SPIKES else 1.0, everyone)
        true, owed = np.mean([flat(mine) for mine in given], axis=0), np.mean(residuals(cluster), axis=0)
        error = np.linalg.norm(flat(cluster.allreduce(given).mean) - true)
        if call < SPIKES[0]:
            errors.append(error / np.linalg.norm(true))
            waiting = max(np.linalg.norm(one) for one in residuals(cluster))
        else:
            beyond = max(0.0, error - np.linalg.norm(owed)) / np.linalg.norm(true)
            assert beyond <= 3 * np.median(errors[2:])
        if call >= SPIKES[-1]:
            after = max(np.linalg.norm(one) for one in residuals(cluster))
            assert after <= 3 * waiting + 8 * ordinary


@quiet
@pytest.mark.parametrize(
    "method",
    ["lhc", "oscar-sw-lossless", "oscar-sw-best", "s2-reducer", "zen", "thc", "qsgd", "powersgd"],
)
def test_losses_that_take_turns_have_the_usual_error(method: str) -> None:
    assert _worst(method, SpikeCase("turns", 1e3)) <= 3


@quiet
@pytest.mark.parametrize("method", ["count-sketch", "lhc", "s2-reducer", "zen"])
def test_what_rounding_left_of_a_large_gradient_does_not_drown_a_small_one(method: str) -> None:
    calm, turns = LocalCluster(config_of(method)), LocalCluster(config_of(method))
    usual = [_error(calm, gradients(call)) for call in range(10)]
    # Until the large gradients are usual, their roundings are dropped as those of spikes are.
    errors = [_error(turns, gradients(call, 1e3 if call % 2 else 1.0, everyone=True)) for call in range(60)]
    assert max(errors[2::2]) <= 3 * np.median(usual[2:])


def _error(cluster: LocalCluster, given: list[list[np.ndarray]]) -> float:
    """Return the relative error of the call's mean."""
    true = np.mean([flat(mine) for mine in given], axis=0)
    return float(np.linalg.norm(flat(cluster.allreduce(given).mean) - true) / np.linalg.norm(true))


@quiet
@pytest.mark.parametrize("method", ["topk", "scalecom", "demo"])
def test_a_spike_of_ten_times_shows_after_gradients_became_smaller(method: str) -> None:
    cluster = LocalCluster(config_of(method))
    for call in range(25):
        cluster.allreduce(gradients(call, 0.93**call, everyone=True))
    before = [np.linalg.norm(one) for one in residuals(cluster)]
    cluster.allreduce(gradients(25, 10 * 0.93**25, everyone=True))
    after = [np.linalg.norm(one) for one in residuals(cluster)]
    assert all(new <= old for new, old in zip(after, before, strict=True))


@quiet
@pytest.mark.parametrize("method", ["oscar-sw", "oscar-sw-best"])
def test_a_spike_does_not_make_the_choice_for_later_calls(method: str) -> None:
    cluster, usual = LocalCluster(config_of(method)), 0.0
    for call in range(16):
        cluster.allreduce(gradients(call, 1e8 if call in SPIKES else 1.0, everyone=True))
        largest = float(cluster.scheme.chosen.magnitude.max())  # type: ignore[union-attr]
        usual = largest if call == SPIKES[0] - 1 else usual
    assert largest <= 4 * usual


@quiet
def test_spread_parts_of_a_spike_do_not_come_after_it() -> None:
    cluster, errors = LocalCluster(Config(method="oscar-sw-best", scheme={"spread": True})), []
    for call in range(16):
        errors.append(_error(cluster, gradients(call, 1e4 if call in SPIKES else 1.0, everyone=True)))
    assert max(errors[SPIKES[-1] + 1 :]) <= 3 * np.median(errors[2 : SPIKES[0]])


@quiet
def test_oktopk_sends_as_many_values_during_a_spike_and_after_it() -> None:
    cluster = LocalCluster(config_of("oktopk"))
    wanted = 0.25 * sum(np.prod(shape) for shape in SHAPES)
    for call in range(16):
        cluster.allreduce(gradients(call, 1e4 if call in SPIKES else 1.0, everyone=True))
        assert cluster.scheme is not None
        for count in (cluster.scheme.united, *(worker.chosen.size for worker in cluster.workers)):
            assert 0.7 * wanted <= count <= 1.4 * wanted


@quiet
@pytest.mark.parametrize("method", ["lhc", "zen", "thc", "topk", "powersgd"])
def test_a_tensor_that_is_zero_keeps_its_step_and_its_residual(method: str) -> None:
    cluster = LocalCluster(config_of(method))
    for call in range(4):
        cluster.allreduce(gradients(call))
    here = slice(0, 1200)
    before = [one[here] for one in residuals(cluster)]
    assert all(one.any() for one in before)
    for call in range(4, 8):
        given = gradients(call)
        for mine in given:
            mine[0][:] = 0
        if method != "thc":  # whose rotation mixes tensors
            assert not cluster.allreduce(given).mean[0].any()
            assert all(np.array_equal(a, b[here]) for a, b in zip(before, residuals(cluster), strict=True))
    assert cluster.allreduce(gradients(9)).mean[0].any()


def _worst(method: str, case: SpikeCase) -> float:
    how = {"calls": 36, "nodes": NODES, "seed": 0}
    usual = np.median(train(method, SpikeCase(), **how)["whole"][2:])
    return float(max(train(method, case, **how)["errors"][25:]) / usual)


@pytest.mark.filterwarnings("ignore::oscar.errors.CautionWarning")
def test_what_a_spike_loses_is_reported_once_and_forget_drops_what_waits() -> None:
    cluster = LocalCluster(Config(method="topk", scheme={"density": 0.25, "momentum": 0.9}))
    for call in range(4):
        cluster.allreduce(gradients(call))
    with pytest.warns(SaturationWarning, match="the gradient grew or fell so much"):
        cluster.allreduce(gradients(4, 1e4))
    cluster.allreduce(gradients(5))
    cluster.allreduce(gradients(6, 1e5))  # without a second warning, which would be an error
    assert cluster.state is not None
    cluster.forget()
    assert all(worker.residual is None and worker.velocity is None for worker in cluster.state.workers)


@pytest.mark.parametrize("method", ["lhc", "oscar-sw-best", "sketched-sgd"])
def test_rounding_at_the_end_of_float32_is_no_overflow(method: str) -> None:
    given = [[np.full((40, 30), 3.4e38, np.float32)]] * NODES
    mean = LocalCluster(Config(method=method)).allreduce(given).mean[0]
    assert np.isfinite(mean).all()
    assert mean.max() >= 3e38
