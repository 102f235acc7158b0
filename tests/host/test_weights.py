"""Unequal batches: gradients weighted before anything else give the mean over all samples."""

from __future__ import annotations

import numpy as np
import pytest

import oscar
from oscar.errors import ConfigError
from oscar.reducers.communicator import Communicator
from oscar.timeline.choose import batch_shares
from oscar.transports.threads import local_transports
from support.ranks import on_ranks


def test_ranks_of_unequal_speed_compute_the_mean_over_all_samples(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes, weights = batch_shares([1.0, 1.0, 3.0], 70)
    samples = random.normal(size=(70, 400)).astype(np.float32)
    parts = np.split(samples, np.cumsum(sizes)[:-1])
    given = [[part.mean(axis=0)] for part in parts]
    before = [tensor.tobytes() for (tensor,) in given]
    config = oscar.Config(method="fp32")
    result = oscar.LocalCluster(config, weights=weights).allreduce(given)
    assert result.mean[0] == pytest.approx(samples.mean(axis=0), abs=1e-6)
    assert [tensor.tobytes() for (tensor,) in given] == before
    assert sizes == (30, 30, 10)

    def work(transport):
        return Communicator(config, transport, weights=weights, timeout_s=20).allreduce(given[transport.rank])

    for came in on_ranks(local_transports(3), work):
        assert came.mean[0].tobytes() == result.mean[0].tobytes()


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([1.0, -0.5, 2.5], r"got -0\.5 of rank 1"),
        ([1.0, 1.0, 2.0], r"whose mean is 1, got a mean of 1\.33"),
        ([float("nan"), 1.0], "got nan of rank 0"),
        ([], "got none"),
    ],
)
def test_weights_that_are_none_are_refused(weights: list[float], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        oscar.LocalCluster(oscar.Config(), weights=weights)


def test_a_weight_for_each_rank() -> None:
    cluster = oscar.LocalCluster(oscar.Config(), weights=[0.5, 1.5])
    with pytest.raises(ConfigError, match="a weight for each of 3 ranks, got 2"):
        cluster.allreduce([[np.ones(4, np.float32)]] * 3)
