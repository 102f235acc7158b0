"""The bandit: it finds the best coarseness, follows a link, is equal on all ranks, resumes bit for bit."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import ConfigError
from oscar.numerics.bandit import ARMS, EPOCH, Bandit, loss_factor
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.state import crc
from oscar.timeline.link import LinkModel
from oscar.transports.threads import local_transports
from support.ranks import on_ranks

SHAPE, NODES = (6000,), 3
QUANTISER = {"controller": "bandit", "error_feedback": True, "coarseness": 0.125}
CONFIG = Config.model_validate({"nodes": NODES, "quantiser": QUANTISER})


def seconds(coarseness: float, bps: float) -> float:
    return 0.02 + 2e6 * max(0.2, 2 - math.log2(coarseness)) / bps


def test_it_stays_near_the_best_fixed_arm_of_a_link_that_changes(seed: int) -> None:
    noise = 1 + 0.02 * np.random.default_rng(seed).standard_normal(1200)
    bandit, took, fixed = Bandit(ARMS, 0.125), 0.0, dict.fromkeys(ARMS, 0.0)
    last = {}
    for at, factor in enumerate(noise):
        bps = 1e9 if at < 400 or at >= 800 else 1e8
        for arm in ARMS:
            fixed[arm] += factor * seconds(arm, bps) * loss_factor(arm)
        taken = factor * seconds(bandit.coarseness, bps)
        took += taken * loss_factor(bandit.coarseness)
        bandit.add(taken)
        last.setdefault(at // 400, []).append(bandit.coarseness)
    assert took < 1.05 * min(fixed.values())
    for phase, bps in enumerate((1e9, 1e8, 1e9)):
        best = min(ARMS, key=lambda arm: seconds(arm, bps) * loss_factor(arm))
        settled = last[phase][200:]
        assert settled.count(best) > 0.5 * len(settled), (phase, best)


def gradients(random: np.random.Generator) -> list[list[np.ndarray]]:
    return [[random.standard_normal(SHAPE).astype(np.float32)] for _ in range(NODES)]


def steps_of(cluster: LocalCluster) -> Any:
    assert cluster.scheme is not None
    return cluster.scheme.steps  # type: ignore[attr-defined]


@pytest.mark.parametrize("sigma", [1.0, 1.2, 1.7])
def test_a_neighbour_arm_has_steps_of_its_own(seed: int, sigma: float) -> None:
    random, cluster, found = np.random.default_rng(seed), LocalCluster(CONFIG), []
    bandit = cluster.bandit
    assert bandit is not None
    for arm in (1, 2, 1, 2):
        bandit._next = lambda arm=arm: arm  # type: ignore[method-assign]
        for _ in range(EPOCH):
            cluster.allreduce([[sigma * x for x in own] for own in gradients(random)])
        found.append(steps_of(cluster).exponents[0])
    assert found == [found[0], found[0] + 1] * 2


def test_a_slow_link_makes_steps_coarser_and_a_run_resumes_bit_for_bit(seed: int) -> None:
    random, cluster = np.random.default_rng(seed), LocalCluster(CONFIG)
    for _ in range(8 * EPOCH):
        cluster.allreduce(gradients(random))
        wire = cluster.state.wire  # type: ignore[union-attr]
        wire.link, wire.topology = LinkModel.of(gbps=0.001), None  # type: ignore[attr-defined]
    assert cluster.bandit is not None
    assert cluster.bandit.coarseness > 0.125
    exponent = steps_of(cluster).exponents[0]
    assert abs(exponent - math.log2(cluster.bandit.coarseness)) <= 1  # gradients of sigma 1
    other = LocalCluster(CONFIG)
    other.load_state_dict(cluster.state_dict())
    assert steps_of(other).coarseness == cluster.bandit.coarseness
    for one in (cluster, other):
        wire = one.state.wire  # type: ignore[union-attr]
        wire.link, wire.topology = LinkModel.of(gbps=0.001), None  # type: ignore[attr-defined]
    for _ in range(2 * EPOCH):
        every = gradients(random)
        means = [one.allreduce(every).mean[0].tobytes() for one in (cluster, other)]
        assert means[0] == means[1]
    assert crc(cluster.state_dict()) == crc(other.state_dict())


def test_ranks_whose_clocks_differ_choose_alike(seed: int) -> None:
    def work(transport: Any) -> list[float]:
        random, found = np.random.default_rng(seed + transport.rank), []
        with_rank = Communicator(CONFIG, transport)
        for _ in range(4 * EPOCH):
            time.sleep(0.001 * transport.rank)
            with_rank.allreduce([random.standard_normal(SHAPE).astype(np.float32)])
            assert with_rank.bandit is not None
            found.append(with_rank.bandit.coarseness)
        return found

    results = on_ranks(local_transports(NODES), work)
    assert results[0] == results[1] == results[2]
    assert len(set(results[0])) > 1


def test_a_state_of_other_arms_is_refused_and_nothing_changes() -> None:
    one, two = Bandit(ARMS, 1.0), Bandit((0.5, 1.0), 1.0)
    before = two.state_dict()
    for bad in (one.state_dict(), {**before, "times": [1.0] * EPOCH}, {**before, "arm": 2}):
        with pytest.raises(ConfigError):
            two.load_state_dict(bad)
        assert two.state_dict() == before
