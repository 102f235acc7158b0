"""Shares of unequal ranks: no port is freed earlier, no rank finishes earlier, all ranks agree to the bit."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from oscar.coding.frame import HEADER_BYTES
from oscar.errors import MissingExtraError
from oscar.numerics.plans import SHARE_PARTS, make_plan
from oscar.timeline.choose import auto_shares, batch_shares, port_loads, rounded, settled
from oscar.timeline.topology import grouped, switch, wires

RAW = (32.0, 32.0)


def busiest(topology, shares, bits, values):
    """Seconds of the busiest port, frame by frame."""
    busy, n = [0.0] * len(topology.ports), topology.nodes
    for i, j in itertools.permutations(range(n), 2):
        link = topology.links[i, j]
        for share, each in ((shares[j], bits[0]), (shares[i], bits[1])):
            for at in (*link.out, *link.into):
                size = HEADER_BYTES + share * values * each / 8
                busy[at] += topology.message_s + size * topology.ports[at].seconds_per_byte
    return max(busy)


def test_no_other_shares_free_the_busiest_port_earlier(draw):
    for _ in range(25):
        n = draw.randint(2, 7)
        topology = switch([draw.choice([10, 25, 100, 200]) for _ in range(n)], 2e-6)
        if n == 6 and draw.random() < 0.7:
            topology = grouped(2, 3, inside=(200, 1e-6), between=(draw.choice([25, 100]), 2e-6))
        bits = (draw.uniform(0.5, 32), draw.uniform(0.5, 32))
        shares = auto_shares(topology, *bits, 1_000_000)
        assert sum(shares) == 1
        assert all(share * SHARE_PARTS == int(share * SHARE_PARTS) >= 0 for share in shares)
        best = busiest(topology, shares, bits, 1_000_000)
        load, fixed = port_loads(topology, *bits, 1_000_000)
        assert (load @ shares + fixed).max() == pytest.approx(best)
        others = [[draw.expovariate(1) for _ in range(n)] for _ in range(200)]
        others += [[s + draw.choice([0, 0.002, 0.05]) for s in shares] for _ in range(200)] + [[1] * n]
        for other in others:
            total = sum(other)
            assert best <= busiest(topology, [o / total for o in other], bits, 1_000_000) * (1 + 1e-5)


def test_a_slow_port_owns_nothing_and_the_others_own_alike():
    shares = auto_shares(switch([100, 100, 100, 25], 2e-6), *RAW, 250_000)
    assert shares == (349526 / SHARE_PARTS, 349525 / SHARE_PARTS, 349525 / SHARE_PARTS, 0)
    assert shares == auto_shares(switch([100, 100, 100, 25], 2e-6), *RAW, 250_000)
    assert make_plan("equal", 999, 4, granule=1, shares=shares).bounds == (0, 333, 666, 999, 999)


def test_equal_ports_own_alike():
    for n, bits in ((8, (1.25, 2.9)), (5, (2.0, 8.0)), (4, (6.0, 2.0)), (1, RAW)):
        shares = auto_shares(switch([100] * n, 2e-6), *bits, 10_000)
        assert max(abs(share - 1 / n) for share in shares) <= 1 / SHARE_PARTS


def test_bad_topologies_and_numbers_are_refused(monkeypatch):
    ring = wires(4, {(i, (i + 1) % 4): (100, 1e-6) for i in range(4)})
    with pytest.raises(ValueError, match="there is none from rank 0 to rank 2"):
        auto_shares(ring, *RAW, 10)
    with pytest.raises(ValueError, match="bits_all: expected bits per value above 0, got nan"):
        auto_shares(switch([1, 1], 0), 1.0, float("nan"), 10)
    with pytest.raises(ValueError, match="values: expected 1 or more, got 0"):
        auto_shares(switch([1, 1], 0), 1.0, 1.0, 0)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingExtraError, match=r"\[schedule\]"):
        auto_shares(switch([1, 1], 0), 1.0, 1.0, 10)


def test_rounding_keeps_the_sum_and_zeros(draw):
    for _ in range(100):
        raw = [draw.choice([0, draw.random()]) for _ in range(draw.randint(1, 40))] + [1.0]
        parts = rounded(raw)
        assert sum(parts) == 1
        assert all(
            abs(p - r / sum(raw)) <= 1 / SHARE_PARTS and (r or not p) for p, r in zip(parts, raw, strict=True)
        )


def test_a_replay_settles_between_equal_shares_and_those_of_the_program():
    wanted = (0.5, 0.25, 0.25, 0.0)
    assert settled(wanted, lambda shares: shares[3]) == (wanted, 0)
    assert settled(wanted, lambda shares: -shares[3]) == ((0.25,) * 4, -0.25)
    found, seconds = settled(wanted, lambda shares: abs(shares[3] - 0.13), steps=4)
    assert found == (0.375, 0.25, 0.25, 0.125)
    assert seconds == pytest.approx(0.005)
    assert settled(wanted, lambda shares: 1.0)[0] == wanted
    with pytest.raises(ValueError, match="steps: expected 1 or more, got 0"):
        settled(wanted, sum, steps=0)


def test_no_other_sizes_finish_earlier(draw):
    for _ in range(60):
        n, least = draw.randint(1, 4), draw.randint(0, 2)
        seconds = [draw.choice([1.0, 1.5, 5.0, draw.uniform(0.01, 3)]) for _ in range(n)]
        batch = max(1, n * least) + draw.randint(0, 14)
        sizes, weights = batch_shares(seconds, batch, least=least)
        assert sum(sizes) == batch
        assert min(sizes) >= least
        every = (
            [*head, batch - sum(head)]
            for head in itertools.product(range(least, batch + 1), repeat=n - 1)
            if batch - sum(head) >= least
        )
        best = min(max(b * s for b, s in zip(other, seconds, strict=True)) for other in every)
        assert max(b * s for b, s in zip(sizes, seconds, strict=True)) == pytest.approx(best, rel=1e-12)
        assert weights.dtype == np.float32


def test_weighted_means_are_the_mean_over_the_batch(draw):
    samples = np.random.default_rng(draw.randrange(1 << 32)).normal(size=(40, 6))
    sizes, weights = batch_shares([1.0, 1.0, 4.0], 40)
    assert sizes == (18, 18, 4)
    parts = np.split(samples, np.cumsum(sizes)[:-1])
    mean = np.mean([w * part.mean(axis=0) for w, part in zip(weights, parts, strict=True)], axis=0)
    assert np.allclose(mean, samples.mean(axis=0), rtol=1e-6)


def test_bad_batches_are_refused():
    with pytest.raises(ValueError, match="expected 4 samples or more for 4 ranks, got 3"):
        batch_shares([1.0] * 4, 3)
    with pytest.raises(ValueError, match=r"a time above 0 for each rank, got \['0.0 of rank 1'\]"):
        batch_shares([1.0, 0.0], 3)
