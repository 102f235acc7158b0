"""Sparsifiers: nothing is lost, owners never overlap, thresholds keep the density, nodes decide alike."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import ConfigError, GradientError
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.sparse import micro as shared_threshold
from oscar.schemes.sparse.deft import Deft, pack, pieces_of, shares_of
from oscar.schemes.sparse.micro import (
    LearntRanges,
    Micro,
    MovedRanges,
    Ranges,
    first_threshold,
    move_one,
    released,
)
from oscar.schemes.sparse.thresholds import (
    LANES,
    above,
    level,
    moments,
    reached_by,
    reached_by_each,
    rungs,
    top,
)
from oscar.state import crc
from oscar_studies.peers.sidco import fitted, threshold_of

pytestmark = pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")
Options = dict[str, Any]


def cluster(name: str, nodes: int, **options: Any) -> LocalCluster:
    return LocalCluster(Config(nodes=nodes, method=name, scheme=options))


def gradients(random: np.random.Generator, nodes: int, shapes: Any) -> list[list[np.ndarray]]:
    """Return gradients [node][tensor] of heavy tails, an eighth of them 0, of equal size: none is a spike."""
    tails = [random.laplace(size=(nodes, *shape)) ** 3 * (random.random(shape) > 0.125) for shape in shapes]
    size = np.sqrt(sum(np.square(tensor.reshape(nodes, -1)).sum(1) for tensor in tails))
    return [
        [(tensor[node] / (size[node] or 1)).astype(np.float32) for tensor in tails] for node in range(nodes)
    ]


# What is sent.


def test_the_union_of_top_k_may_be_n_times_k(seed: int) -> None:
    random, nodes, size, k = np.random.default_rng(seed), 4, 4000, 40
    every = [[random.normal(size=size).astype(np.float32)] for _ in range(nodes)]
    places = random.permutation(size)[: nodes * k].reshape(nodes, k)
    for own, mine in zip(every, places, strict=True):
        own[0][mine] += np.float32(100) * np.sign(own[0][mine])
    one = cluster("topk", nodes, density=k / size)
    one.allreduce(every)
    assert one.scheme.united == nodes * k
    assert one.scheme.counts.tolist() == [k] * nodes
    for name in ("micro", "deft", "clt-k"):
        one = cluster(name, nodes, density=k / size)
        one.allreduce(every)
        assert one.scheme.united <= 2 * k  # 40 values are few for a threshold: 12 sigma


@pytest.mark.parametrize(("name", "options"), [
    ("micro", {}), ("micro", {"partition": "learnt"}), ("exdyna", {}), ("exdyna", {"partition": "released"}),
    ("deft", {}), ("clt-k", {}),
])  # fmt: skip
@pytest.mark.parametrize("density", [0.01, 0.1])
def test_the_density_is_what_was_asked_for(name: str, options: Options, density: float, seed: int) -> None:
    """Of a gradient whose ranges differ, and whose values differ between workers."""
    random, nodes, size = np.random.default_rng(seed), 8, 20_000
    scales = np.exp(4 * np.linspace(0, 1, size))
    one = cluster(name, nodes, density=density, **options)
    found = []
    for _ in range(25):
        every = scales * random.laplace(size=(nodes, size))
        one.allreduce([[own.astype(np.float32)] for own in every])
        found.append(one.scheme.united / size)
    assert abs(np.mean(found[5:]) / density - 1) < 0.1
    assert all(abs(came / density - 1) < 0.25 for came in found[5:])


@pytest.mark.parametrize("name", ["hard-threshold", "dct-threshold", "sidco"])
def test_a_threshold_of_whole_gradients_gives_each_worker_k_at_first(name: str, seed: int) -> None:
    random, nodes, size = np.random.default_rng(seed), 5, 40_000
    one = cluster(name, nodes, density=0.02, **({"every": 1} if name == "dct-threshold" else {}))
    for _ in range(1 if name == "hard-threshold" else 30):
        one.allreduce([[random.laplace(size=size).astype(np.float32)] for _ in range(nodes)])
    assert one.scheme.counts.mean() == pytest.approx(800, rel=0.25 if name == "sidco" else 0.1)


# Edges.


@pytest.mark.parametrize(("name", "key", "bad", "message"), [
    ("micro", "threshold", -1.0, r"state\.scheme\.threshold: expected a number of 0 to"),
    ("micro", "threshold", math.nan, r"state\.scheme\.threshold: expected a number of 0 to"),
    (
        "exdyna", "ranges", {"hits": np.full(1, -1), "activity": np.full(2, 65536)},
        r"ranges\.hits: expected int64",
    ),
    ("sidco", "stages", 9, r"state\.scheme\.stages: expected an integer of 1 to 8"),
])  # fmt: skip
def test_a_state_that_cannot_be_is_refused(name: str, key: str, bad: Any, message: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    one = cluster(name, 2)
    one.allreduce(gradients(random, 2, [(500,)]))
    held, state = crc(one.state_dict()), one.state_dict()
    state["scheme"][key] = bad
    with pytest.raises(ConfigError, match=message):
        one.load_state_dict(state)
    assert crc(one.state_dict()) == held


def test_edges_of_ranges_that_fall_are_refused() -> None:
    ranges = MovedRanges(1000, 3)
    for edges in ([0, 700, 300, 1000], [1, 300, 700, 1000], [0, 300, 700, 999]):
        with pytest.raises(ConfigError, match=r"edges that rise from 0 to 1000|values of 0 to 1000"):
            ranges.load_state_dict({"edges": np.array(edges)})
    assert ranges.bounds(0).tolist() == [0, 333, 666, 1000]


def test_what_a_rank_cannot_have_sent_is_refused_and_leaves_no_trace(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    every = gradients(random, 3, [(900,), (50,)])
    for name, target, lie in (
        ("micro", (shared_threshold, "reached_by_each"), lambda real, *a: real(*a)[::-1] + np.float32(1)),
        ("micro", (shared_threshold, "reached_by_each"), lambda real, *a: real(*a) * np.float32(np.nan)),
        ("micro", (shared_threshold, "reached_by_each"), lambda real, *a: real(*a)[:-1]),
        ("deft", (Deft, "deal"), lambda real, *a: real(*a)[:-1]),
        ("deft", (Deft, "deal"), lambda real, *a: _more(real(*a), "count", 1 << 20)),
        ("deft", (Deft, "deal"), lambda real, *a: _more(real(*a), "bin", 3)),
    ):
        one = cluster(name, 3)
        one.allreduce(every)
        held, real = crc(one.state_dict()), getattr(*target)
        with monkeypatch.context() as patch:
            patch.setattr(*target, lambda *a, lie=lie, real=real: lie(real, *a))
            with pytest.raises(GradientError, match=r"rank \d.* all ranks must run the same"):
                one.allreduce(every)
        assert crc(one.state_dict()) == held
        one.allreduce(every)


def _more(places: np.ndarray, key: str, by: int) -> np.ndarray:
    places[key][0] += by
    return places


# The rules, each beside what is obviously right.


def sample(random: np.random.Generator) -> np.ndarray:
    """Return values of any kind: dense, few, of few magnitudes, zeros, denormal."""
    size = int(random.integers(0, 30_000))
    kinds = (
        random.laplace(size=size) ** 3,
        random.laplace(size=size) * (random.random(size) < 0.03),
        random.integers(-3, 4, size),
        np.zeros(size),
        random.laplace(size=size) * 1e-41,
    )
    return kinds[int(random.integers(len(kinds)))].astype(np.float32)


@pytest.mark.parametrize("turn", range(40))
def test_thresholds_are_exact(turn: int, seed: int) -> None:
    random = np.random.default_rng([seed, turn])
    acc = sample(random)
    low, high = sorted(int(edge) for edge in random.integers(0, acc.size + 1, 2))
    size, sizes = np.abs(acc), np.abs(acc[low:high])
    falling = np.sort(sizes)[::-1]
    threshold = float(random.choice(falling)) if falling.size else 1.0
    reached = np.flatnonzero((size >= np.float32(threshold)) & (size > 0))
    assert np.array_equal(above(acc, threshold, low, high), reached[(reached >= low) & (reached < high)])
    count = int(random.integers(1, sizes.size + 3))
    exact = float(falling[count - 1]) if count <= falling.size else 0.0
    assert reached_by(acc, count, low, high) == exact
    ranks = np.unique(random.integers(1, sizes.size + 3, 5))
    wanted = [falling[rank - 1] if rank <= falling.size else 0 for rank in ranks]
    assert reached_by_each(acc, ranks, low, high).tolist() == wanted
    order = np.argsort(-sizes, kind="stable")[:count]
    assert np.array_equal(top(acc, count, low, high), low + np.sort(order[sizes[order] > 0]))


@pytest.mark.parametrize("turn", range(40))
def test_a_few_ranks_of_each_worker_tell_the_threshold_of_all(turn: int) -> None:
    """Of forty drawn once: how far values lie off the line between two ranks has no bound that is as near."""
    random = np.random.default_rng(turn)
    workers = int(random.integers(1, 17))
    own = [
        (random.laplace(size=int(random.integers(0, 9000))) * 4.0 ** random.normal()).astype(np.float32)
        for _ in range(workers)
    ]
    every = np.abs(np.concatenate(own))
    count = int(random.integers(1, max(2, every.size // 4)))
    ranks = rungs(count, workers)
    assert ranks[-1] == count
    ladders = np.stack([reached_by_each(values, ranks) for values in own])
    found = np.count_nonzero(every >= np.float32(level(ladders, ranks, count)))
    assert abs(found - count) <= 0.2 * count + 4
    assert level(np.zeros_like(ladders), ranks, count) == 0


def test_the_published_rule_only_rises_within_a_tenth() -> None:
    factors = [released(1.0, chosen, 1000) for chosen in (0, 909, 910, 999, 1000, 1001, 1100, 1101, 9999)]
    assert factors == [0.995, 0.995, *[1.00125] * 5, 1.005, 1.005]
    assert first_threshold(100) == 0.05
    assert released(3e38, 5000, 1) <= np.finfo(np.float32).max


def test_a_range_that_chooses_nothing_sends_one_value_as_published() -> None:
    """MiCRO: at the begin of the range, and one further in each iteration."""
    one = cluster("micro", 2, controller="released", density=0.1)
    for iteration in range(3):
        one.allreduce([[np.full(10, 1e-9, np.float32)]] * 2)
        owners = [(iteration + rank) % 2 for rank in range(2)]
        chosen = [worker.chosen.tolist() for worker in one.states[0].workers]
        assert chosen == [[5 * owner + iteration] for owner in owners]


def test_exdyna_hands_over_one_block_where_neighbours_differ() -> None:
    edges = np.array([0, 256, 512, 768, 1024])
    moved = move_one(edges, np.array([400, 100, 100, 400]), 32, 32_768)
    assert moved.tolist() == [0, 255, 512, 769, 1024]
    assert move_one(edges, np.array([250, 251, 249, 250]), 32, 32_768).tolist() == edges.tolist()
    assert move_one(edges, np.zeros(4, int), 32, 32_768).tolist() == edges.tolist()
    least = np.array([0, 64, 512, 768, 1024])  # 1,024 / (4 * 4) blocks stay with each
    assert move_one(least, np.array([400, 100, 400, 400]), 32, 32_768)[1] == 64


@pytest.mark.parametrize("kind", [Ranges, MovedRanges, LearntRanges])
def test_ranges_cover_all_values_once_whatever_is_chosen(kind: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    for values in (0, 1, 5, 1000, 32_767, 32_768, 200_000):
        nodes = int(random.integers(1, 17))
        ranges = kind(values, nodes)
        for iteration in range(20):
            bounds = ranges.bounds(iteration)
            assert bounds[0] == 0
            assert bounds[-1] == values
            assert (np.diff(bounds) >= 0).all()
            united = np.flatnonzero(random.random(values) < np.linspace(0.2, 0, values))
            counts = random.multinomial(united.size, random.dirichlet(np.full(nodes, 0.2)))
            ranges.observe(iteration, counts, united)


def test_learnt_ranges_are_better_balanced_than_moved_and_equal_ones(seed: int) -> None:
    """Where a few places, and a few ranks, have most of what is large."""
    random, nodes, values = np.random.default_rng(seed), 8, 160_000
    chance = 0.2 * np.exp(-np.linspace(0, 6, values))
    activity = np.exp(0.5 * random.normal(size=nodes)).clip(0.4, 2)
    worst = {}
    for kind in (Ranges, MovedRanges, LearntRanges):
        ranges, unequal = kind(values, nodes), []
        for iteration in range(60):
            bounds, owner = ranges.bounds(iteration), (np.arange(nodes) - iteration) % nodes
            of_place = np.repeat(activity[owner], np.diff(bounds))
            united = np.flatnonzero(random.random(values) < chance * of_place)
            counts = np.zeros(nodes, np.int64)
            counts[owner] = np.diff(np.searchsorted(united, bounds))
            ranges.observe(iteration, counts, united)
            unequal.append(counts.max() * nodes / counts.sum() - 1)
        worst[kind] = np.mean(unequal[30:])
    assert worst[LearntRanges] < 0.4
    assert 2 * worst[LearntRanges] < worst[MovedRanges] < worst[Ranges]


@pytest.mark.parametrize("size", [0, 1, LANES, 1003])
def test_moments_are_added_in_the_order_of_lanes(size: int, seed: int) -> None:
    values = np.random.default_rng([seed, size]).normal(size=size).astype(np.float32)
    for base in (0.0, 0.7):
        lanes = [[0.0] * LANES for _ in range(3)]
        for j, value in enumerate(values.tolist()):
            over = abs(value) - base
            if over >= 0:
                for lane, more in zip(lanes, (1.0, over, over * over), strict=True):
                    lane[j % LANES] += more
        assert moments(values, base) == (int(sum(lanes[0])), sum(lanes[1]), sum(lanes[2]))


def test_fits_find_the_quantiles_of_what_they_fit(seed: int) -> None:
    random, size = np.random.default_rng(seed), 400_000
    for shape in (0.0, 0.2, -0.3):
        uniform = 1 - random.random(size)
        values = -np.log(uniform) if shape == 0 else (uniform**-shape - 1) / shape
        found = fitted(size, float(values.sum()), float((values**2).sum()), 0.01, "pareto")
        assert found == pytest.approx(-math.log(0.01) if shape == 0 else (0.01**-shape - 1) / shape, rel=0.06)
    exponential = random.exponential(3.0, size).astype(np.float32)
    for trusting in (True, False):
        for stages in (1, 2, 3):
            threshold = threshold_of(exponential, size // 100, stages, "exponential", trusting=trusting)
            assert np.count_nonzero(exponential >= threshold) == pytest.approx(size / 100, rel=0.15)
    assert threshold_of(np.zeros(9, np.float32), 1, 3, "pareto", trusting=True) == 0


def test_stages_follow_the_published_rule(seed: int) -> None:
    """Tails heavier than the fit's: too many are chosen, and too few where it is lighter."""
    random = np.random.default_rng(seed)
    light = cluster("sidco", 2, density=0.001, controller="released")
    for _ in range(10):
        light.allreduce([[random.uniform(-1, 1, 20_000).astype(np.float32)] for _ in range(2)])
    assert light.scheme.stages == 3
    assert light.scheme.seen == 0


@pytest.mark.parametrize("turn", range(20))
def test_deft_deals_all_of_k_to_bins_of_like_cost(turn: int, seed: int) -> None:
    random = np.random.default_rng([seed, turn])
    sizes, nodes = random.integers(0, 900, int(random.integers(1, 9))).tolist(), int(random.integers(1, 9))
    pieces = pieces_of(sizes, nodes)
    assert (pieces[:, 1] > pieces[:, 0]).all()
    assert [b[0] - a[1] for a, b in pairwise(pieces)] == [0] * max(0, len(pieces) - 1)
    assert np.diff(pieces, axis=1).sum() == sum(sizes)
    lengths = np.diff(pieces, axis=1)[:, 0]
    if nodes > 1 and len(lengths):
        assert lengths.max() <= max(sum(sizes) // nodes, -(-max(sizes) // nodes))
    norms = random.exponential(size=len(lengths)) ** 3
    count = int(random.integers(0, sum(sizes) + 1))
    shares = shares_of(norms, lengths, count, least=0)
    assert (shares <= lengths).all()
    full = shares == lengths
    assert shares.sum() == count or (shares.sum() < count and full.any())
    assert (shares_of(norms, lengths, count, least=1) >= 1).all()
    assert not shares_of(0 * norms, lengths, count, least=0).any()
    costs = lengths * np.log2(np.maximum(2, shares))
    bins = pack(costs, nodes)
    load = np.bincount(bins, costs, minlength=nodes)
    assert load.max(initial=0) <= costs.sum() / nodes + costs.max(initial=0)


def test_deft_gives_what_a_piece_cannot_take_to_the_next() -> None:
    shares = shares_of(np.array([1.0, 8.0, 1.0]), np.array([50, 10, 50]), 40, least=0)
    assert shares.tolist() == [15, 10, 15]
    assert shares_of(np.array([0.0, 5.0]), np.array([9, 9]), 4, least=1).tolist() == [1, 4]


def test_every_range_has_another_owner_in_the_next_iteration(seed: int) -> None:
    random, nodes = np.random.default_rng(seed), 4
    one = cluster("micro", nodes, density=0.5)
    owners: list[list[int]] = []
    for _ in range(nodes):
        one.allreduce(gradients(random, nodes, [(400,)]))
        owners.append([int(worker.chosen[0]) // 100 for worker in one.states[0].workers])
    assert isinstance(one.scheme, Micro)
    assert sorted(map(tuple, owners)) == sorted({tuple(o) for o in owners})
    assert all(sorted(column) == list(range(nodes)) for column in zip(*owners, strict=True))


@pytest.mark.parametrize("name", ["hard-threshold", "dct-threshold"])
def test_a_threshold_that_is_held_is_not_one_of_the_warm_up(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    one = cluster(name, 4, density=0.01, warmup=10)
    for _ in range(3):
        one.allreduce([[random.laplace(size=20_000).astype(np.float32)] for _ in range(4)])
    assert one.scheme.counts.mean() < 0.1 * 20_000
