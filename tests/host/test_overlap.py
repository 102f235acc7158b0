"""Time of an iteration: its bounds and its buckets; test_timeline.py holds the closed form to tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar_studies.overlap import bucket_shares, bucket_times, iteration_time, scaled

seconds = st.floats(0, 1e3, allow_subnormal=False)
sizes = st.lists(st.integers(0, 10**7), max_size=40)
TINY = 1e-9


@given(sizes, st.integers(1, 12), seconds, st.data())
def test_an_iteration_is_within_its_bounds(given_sizes, buckets, compute, data):
    shares = bucket_shares(given_sizes, buckets)
    takes = data.draw(st.lists(seconds, min_size=shares.size, max_size=shares.size))
    total = float(iteration_time(compute, shares, takes))
    assert max(compute, sum(takes)) - TINY <= total <= compute + sum(takes) + TINY
    assert float(iteration_time(compute + 1, shares, takes)) >= total
    slower = [t + 1 for t in takes]
    assert float(iteration_time(compute, shares, slower)) >= total + 1 - TINY  # the last is never hidden


@given(sizes, seconds, seconds)
def test_one_bucket_hides_nothing(given_sizes, compute, takes):
    assert float(iteration_time(compute, bucket_shares(given_sizes, 1), [takes])) == compute + takes


@given(sizes, st.integers(1, 50))
def test_buckets_are_whole_tensors_from_the_last_on(given_sizes, buckets):
    shares, total = bucket_shares(given_sizes, buckets), sum(given_sizes)
    assert 1 <= shares.size <= min(buckets, max(1, sum(size > 0 for size in given_sizes)))
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    ends = {sum(given_sizes[at:]) for at in range(len(given_sizes))} | {0}
    if total:
        assert {round(end * total) for end in np.cumsum(shares)} <= ends


def test_equal_tensors_are_cut_evenly_and_wrong_counts_are_refused():
    assert np.array_equal(bucket_shares([5] * 8, 4), np.full(4, 0.25))
    assert np.array_equal(bucket_shares([90, 5, 5], 4), [0.1, 0.9])  # the large first tensor is reduced last
    with pytest.raises(ValueError, match="expected 1 bucket or more, got 0"):
        bucket_shares([3], 0)
    with pytest.raises(ValueError, match="expected 2 buckets, got"):
        iteration_time(1.0, np.array([0.5, 0.5]), [1.0])


def test_many_iterations_at_once_are_each_alone():
    random = np.random.default_rng(0)
    compute, shares, takes = random.random(9), np.array([0.2, 0.5, 0.3]), random.random((9, 3))
    together = iteration_time(compute, shares, takes)
    assert [float(iteration_time(c, shares, t)) for c, t in zip(compute, takes, strict=True)] == list(
        together
    )


@pytest.mark.parametrize(("name", "hops"), [("ring", 6), ("boomerang", 6), ("duplex", 3), ("direct", 2)])
def test_bucket_times_scale_bytes_and_keep_latency(name, hops):
    config = Config().variant(schedule={"name": name}, link={"codec_gvalues": 0.01})
    random = np.random.default_rng(1)
    stats = (
        LocalCluster(config).allreduce([[random.laplace(size=40_000).astype("f4")] for _ in range(4)]).stats
    )
    link = config.link.model()
    assert bucket_times(stats, link, np.ones(1)) == stats.time_s
    halves = bucket_times(stats, link, np.array([0.5, 0.5]))
    none = bucket_times(stats, link, np.array([1e-12]))[0]
    assert none == pytest.approx(hops * 3e-6, rel=0.2)  # 2 us of link, .5 us each of encoder and decoder
    assert halves.sum() == pytest.approx(stats.time_s + none, rel=0.02)
    free = LocalCluster(config).allreduce([[np.ones(7, np.float32)]]).stats  # one node sends nothing
    assert bucket_times(free, link, np.array([0.5, 0.5])).tolist() == [0, 0]


@pytest.mark.parametrize("driver", [False, True])
def test_a_small_bucket_on_a_nic_takes_its_latency_at_least(driver):
    """Frames of a bucket have the NIC's work of their share, so a share of 1 is the whole AllReduce."""
    config = Config().variant(schedule={"name": "direct"}, link={"codec": "rtl", "driver": driver})
    random = np.random.default_rng(1)
    sparse = [[random.laplace(size=60_000).astype("f4") * (random.random(60_000) < 0.2)] for _ in range(4)]
    stats, link = LocalCluster(config).allreduce(sparse).stats, config.link.model()
    frames, shares = stats.moved[0].frames, np.array([1e-12, 0.01, 0.3, 0.9, 1.0])
    whole = scaled(frames, 1.0)
    assert whole == frames
    assert {key: cells.tolist() for key, cells in whole.cells.items()} == {
        key: cells.tolist() for key, cells in frames.cells.items()
    }
    times = bucket_times(stats, link, shares)
    assert times[0] > 2 * link.latency_s
    assert times[-1] == stats.time_s
    assert (np.diff(times) > 0).all()
