"""Values at the ends of float32: never a mean that is not finite, and the next call is right."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import GradientOverflowError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.reducers.grouped import Group, GroupedCluster, with_late
from oscar.schemes.registry import method_names
from oscar.state import crc
from oscar.transports.threads import local_transports
from oscar_lab.trials.extremes import VALUES, extreme, measure, ordinary
from oscar_studies.training import Trainer
from support.ranks import on_ranks


@pytest.mark.parametrize("method", method_names())
def test_every_method_tells_or_returns_a_finite_mean_and_goes_on(method: str) -> None:
    row = measure(method, list(VALUES), calls=len(VALUES))
    assert not row["wrong"]
    assert row["refused"] >= 2  # Inf and NaN
    assert row["refused"] + row["mean"] == len(VALUES)


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")
@pytest.mark.parametrize("method", ["topk", "powersgd", "spafl", "demo"])
def test_what_large_values_leave_behind_never_makes_ordinary_ones_overflow(method: str) -> None:
    cluster = LocalCluster(Config(method=method))
    for call in range(6):  # from the first call on
        try:
            cluster.allreduce(extreme("one 3e38", 0, call, 2))
        except GradientOverflowError:
            continue
    for call in range(6):
        mean = cluster.allreduce(ordinary(0, call, 2)).mean
        assert all(np.isfinite(tensor).all() for tensor in mean)


def test_the_error_names_the_tensor_the_ranks_and_what_to_do() -> None:
    given = ordinary(0, 0, 3)
    for node, value in enumerate((2e38, 1e38, 1.5e38)):
        given[node][1][7] = value
    with pytest.raises(GradientOverflowError) as caught:
        LocalCluster(Config(method="fp32")).allreduce(given)
    error = caught.value
    assert str(error) == (
        "tensor 1: the mean of 3 ranks is beyond float32 in 1 of 40 values, the first at flat index 7; the "
        "largest values that came are 2e+38 of rank 0, 1.5e+38 of rank 2, 1e+38 of rank 1; all state is as "
        "before the call; skip this iteration, or lower the loss scale or the learning rate"
    )
    assert error.tensor == 1
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.tensor) == (str(error), 1)


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")
@pytest.mark.parametrize("method", ["fp32", "zen", "topk", "powersgd"])
def test_all_ranks_raise_alike_and_go_on(method: str) -> None:
    config, nodes = Config(method=method), 3
    given = [ordinary(0, 0, nodes), extreme("2e38", 0, 0, nodes), ordinary(0, 1, nodes)]
    cluster = LocalCluster(config)
    expected = [cluster.allreduce(given[call]).mean for call in (0, 2)]

    def work(transport: Any) -> tuple[str, list[list[np.ndarray]]]:
        communicator = Communicator(config, transport, timeout_s=20.0)
        with pytest.raises(GradientOverflowError) as caught:  # when there is no state yet, too
            communicator.allreduce(given[1][transport.rank])
        assert not communicator.states
        means = [communicator.allreduce(given[0][transport.rank]).mean]
        before = crc(communicator.state_dict())
        with pytest.raises(GradientOverflowError):
            communicator.allreduce(given[1][transport.rank])
        assert crc(communicator.state_dict()) == before
        assert communicator.failed is None
        return str(caught.value), [*means, communicator.allreduce(given[2][transport.rank]).mean]

    results = on_ranks(local_transports(nodes), work)
    for result in results:
        assert not isinstance(result, BaseException), result
        assert result[0] == results[0][0]
        for mine, wanted in zip(result[1], expected, strict=True):
            assert [one.tobytes() for one in mine] == [one.tobytes() for one in wanted]


def test_a_state_beyond_float32_is_an_overflow_whatever_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LocalCluster(Config(method="powersgd"))
    cluster.allreduce(ordinary(0, 0, 2))
    before, kind = crc(cluster.state_dict()), type(cluster.scheme)
    finish = kind.finish

    def beyond(scheme: Any, totals: Any) -> np.ndarray:
        mean = finish(scheme, totals)
        scheme.factors = [np.full_like(factor, np.inf) for factor in scheme.factors]
        return mean

    monkeypatch.setattr(kind, "finish", beyond)
    with pytest.raises(GradientOverflowError, match="the state that follows from the mean of 2 ranks is"):
        cluster.allreduce(ordinary(0, 1, 2))
    assert crc(cluster.state_dict()) == before


def test_groups_name_the_tensor_by_its_place_in_the_model() -> None:
    groups = [Group((1,), Config()), Group((0, 2), Config(method="fp32"))]
    cluster = GroupedCluster(groups)
    cluster.allreduce(ordinary(0, 0, 2))
    before, bad = crc(cluster.state_dict()), ordinary(0, 1, 2)
    for node in bad:
        node[2][...] = 2e38
    with pytest.raises(GradientOverflowError, match=r"^tensor 2: ") as caught:
        cluster.allreduce(bad)
    assert caught.value.tensor == 2
    assert crc(cluster.state_dict()) == before


def test_what_waits_for_a_group_does_not_overflow() -> None:
    for shape in ((3, 2), ()):
        large = np.full(shape, 3e38, np.float32)
        whole = with_late(0, large, {0: large})
        assert np.array_equal(whole, np.full(shape, np.finfo(np.float32).max))
        assert whole.shape == shape


def test_a_training_whose_mean_overflows_has_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"vocabulary": 300, "dimension": 8, "hidden": 16, "outputs": 100, "text_bytes": 200_000}
    workload = {"name": "numpy-lm", "options": options}
    trainer = Trainer(Config.model_validate({"nodes": 2, "method": "fp32", "workload": workload}))
    shapes = trainer.workload.tensor_shapes
    large = [[np.full(shape, 2e38, np.float32) for shape in shapes]] * 2
    monkeypatch.setattr(trainer.workload, "gradients", lambda: large)
    trainer.step()
    assert trainer.diverged
