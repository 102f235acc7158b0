"""Chunk plans: every value in one chunk, the same on every node, in exact integers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscar.numerics.plans import (
    PLANS,
    SHARE_PARTS,
    USES_COSTS,
    ChunkPlan,
    block_costs,
    make_plan,
)


@st.composite
def cases(draw):
    values, granule = draw(st.integers(0, 3000)), draw(st.sampled_from([1, 2, 7, 64, 256, 5000]))
    blocks = -(-values // granule)
    seed, sparse = draw(st.integers(0, 2**32)), draw(st.floats(0, 1))
    random = np.random.default_rng(seed)
    costs = random.integers(0, 1 << draw(st.integers(1, 40)), blocks) * (random.random(blocks) > sparse)
    return values, draw(st.integers(1, 64)), granule, draw(st.sampled_from([None, costs]))


def chunks(plan: ChunkPlan, values: int) -> list[np.ndarray]:
    source = plan.gather(np.arange(values))
    return [source[low:high] for low, high in zip(plan.bounds, plan.bounds[1:], strict=False)]


def loads(plan: ChunkPlan, per_value: np.ndarray) -> np.ndarray:
    return np.array([per_value[part].sum() for part in chunks(plan, per_value.size)])


@pytest.mark.parametrize("name", PLANS)
@given(case=cases())
@settings(max_examples=120)
def test_every_value_is_in_exactly_one_chunk(name, case):
    values, nodes, granule, costs = case
    plan = make_plan(name, values, nodes, granule=granule, costs=costs)
    assert len(plan.bounds) == nodes + 1
    assert plan.bounds[0] == 0
    assert plan.bounds[-1] == values
    assert all(type(b) is int for b in plan.bounds)
    assert list(plan.bounds) == sorted(plan.bounds)
    data = np.arange(values, dtype=np.int32)
    moved = plan.gather(data)
    assert np.array_equal(np.sort(moved), data)
    assert np.array_equal(plan.scatter(moved), data)
    assert moved.size == 0 or not np.shares_memory(moved, data)
    again = make_plan(name, values, nodes, granule=granule, costs=None if costs is None else costs.copy())
    assert again.bounds == plan.bounds
    assert np.array_equal(again.gather(data), moved)


@given(case=cases())
@settings(max_examples=150)
def test_splitter_cuts_at_the_nearest_block_edge(case):
    values, nodes, granule, costs = case
    if costs is None or not costs.sum():
        return
    prefix = [0]
    for cost in costs.tolist():
        prefix.append(prefix[-1] + cost)
    total = prefix[-1]
    best = [
        min(range(len(prefix)), key=lambda edge: (abs(prefix[edge] * nodes - i * total), edge))
        for i in range(1, nodes)
    ]
    plan = make_plan("splitter", values, nodes, granule=granule, costs=costs)
    assert plan.bounds == (0, *(min(values, edge * granule) for edge in best), values)


@pytest.mark.parametrize("name", ["splitter", "interleave", "snake"])
@pytest.mark.parametrize("nodes", [2, 8, 64])
def test_balances_better_than_equal_chunks_where_costs_are_skewed(name, nodes):
    granule, blocks = 64, 40 * nodes
    per_block = np.where(np.arange(blocks) < blocks // 4, 900, 20) + np.random.default_rng(1).integers(
        0, 50, blocks
    )
    per_value = np.repeat(per_block, granule)
    plan = make_plan(name, per_value.size, nodes, granule=granule, costs=per_block * granule)
    even = make_plan("equal", per_value.size, nodes, granule=granule)
    worst, ideal = loads(plan, per_value).max(), per_value.sum() / nodes
    assert worst < 0.6 * loads(even, per_value).max()
    assert worst < 1.1 * ideal


def test_equal_chunks_differ_by_one_value_at_most():
    sizes = np.diff(make_plan("equal", 1003, 64, granule=1).bounds)
    assert sizes.min() == 15
    assert sizes.max() == 16


def test_static_interleave_deals_block_by_block():
    plan = make_plan("interleave", 10, 2, granule=3)
    assert [c.tolist() for c in chunks(plan, 10)] == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9]]


def test_snake_deals_by_falling_cost_and_keeps_the_natural_order_within_a_chunk():
    plan = make_plan("snake", 6, 2, granule=1, costs=np.array([1, 6, 2, 5, 3, 4]))
    assert [c.tolist() for c in chunks(plan, 6)] == [[1, 2, 4], [0, 3, 5]]  # 6, 3, 2 and 5, 4, 1


@pytest.mark.parametrize("name", sorted(PLANS))
def test_more_nodes_than_blocks_leaves_chunks_empty(name):
    plan = make_plan(name, 700, 64, granule=256, costs=np.array([9, 1, 5]))
    sizes = np.diff(plan.bounds)
    assert sizes.sum() == 700
    assert name == "equal" or np.count_nonzero(sizes) <= 3


@pytest.mark.parametrize("nodes", [3, 256])
def test_costs_of_the_largest_models_do_not_overflow(nodes):
    """2^28 values at the dearest a value can be, shifted as the cluster keeps its running costs."""
    granule = 1 << 18
    costs = np.full(1 << 10, (65 * granule) << 8, np.int64)
    plan = make_plan("splitter", 1 << 28, nodes, granule=granule, costs=costs)
    assert plan.bounds == tuple(
        min(range(0, (1 << 28) + 1, granule), key=lambda b: (abs(b * nodes - (i << 28)), b))
        for i in range(nodes + 1)
    )


def test_block_costs_follow_magnitudes():
    sums = np.array([0, 1, -1, 2, -3, 255, -32768, 0, 0, 5], np.int16)
    assert block_costs(sums, 1).tolist() == [0, 3, 3, 5, 5, 17, 33, 0, 0, 7]
    assert block_costs(sums, 4).tolist() == [11, 55, 7]
    assert block_costs(np.array([-(1 << 31)], np.int32), 1).tolist() == [65]
    assert block_costs(np.zeros(0, np.int16), 4).tolist() == []


def test_without_costs_every_rule_falls_back_to_a_static_plan():
    for name, fallback in (("splitter", "equal"), ("snake", "interleave")):
        assert name in USES_COSTS
        plan, static = (make_plan(n, 1000, 3, granule=64) for n in (name, fallback))
        assert plan.bounds == static.bounds
    assert make_plan("splitter", 10, 2, granule=4, costs=np.zeros(3, np.int64)).bounds == (0, 5, 10)


@st.composite
def shares(draw, chunks):
    parts = draw(st.lists(st.integers(0, 1000), min_size=chunks, max_size=chunks).filter(any))
    return [part / sum(parts) for part in parts]


@pytest.mark.parametrize("name", PLANS)
@given(case=cases(), data=st.data())
@settings(max_examples=100)
def test_shares_cover_every_value_and_nothing_is_left_for_a_share_of_0(name, case, data):
    values, count, granule, costs = case
    wanted = data.draw(shares(count))
    plan = make_plan(name, values, count, granule=granule, costs=costs, shares=wanted)
    assert (plan.bounds[0], plan.bounds[-1], len(plan.bounds)) == (0, values, count + 1)
    assert all(type(b) is int for b in plan.bounds)
    moved = plan.gather(np.arange(values))
    assert np.array_equal(np.sort(moved), np.arange(values))
    sizes = np.diff(plan.bounds)
    assert sizes.min() >= 0
    assert not sizes[np.array(wanted) == 0].any()
    again = make_plan(name, values, count, granule=granule, costs=costs, shares=tuple(wanted))
    assert again.bounds == plan.bounds
    assert np.array_equal(again.gather(np.arange(values)), moved)


@given(case=cases(), data=st.data())
@settings(max_examples=100)
def test_chunks_have_their_shares_to_the_value_or_block(case, data):
    values, count, granule, costs = case
    wanted = np.array(data.draw(shares(count)))
    slack = 1 + values / SHARE_PARTS
    sizes = np.diff(make_plan("equal", values, count, granule=1, shares=wanted.tolist()).bounds)
    assert np.abs(sizes - wanted * values).max() <= slack
    blocks = -(-values // granule)
    plan = make_plan("interleave", values, count, granule=granule, shares=wanted.tolist())
    dealt = np.diff(plan.bounds) / granule
    assert np.abs(dealt - wanted * blocks).max() <= slack + 1  # and the last block may be short
    if costs is not None and costs.sum():
        plan = make_plan("splitter", values, count, granule=granule, costs=costs, shares=wanted.tolist())
        prefix = [0, *np.cumsum(costs).tolist()]
        goals = np.cumsum(wanted)[:-1] * prefix[-1]
        cut = [prefix[-(-bound // granule)] for bound in plan.bounds[1:-1]]
        near = prefix[-1] / SHARE_PARTS + max(costs.tolist())
        assert all(abs(at - goal) <= near for at, goal in zip(cut, goals, strict=True))


@pytest.mark.parametrize("name", ["splitter", "interleave", "snake"])
def test_cost_is_in_proportion_to_shares_where_it_is_skewed(name):
    granule, wanted = 16, [0.4, 0.05, 0.0, 0.25, 0.3]
    per_block = np.random.default_rng(5).integers(0, 900, 4000)
    per_value = np.repeat(per_block, granule)
    plan = make_plan(name, per_value.size, 5, granule=granule, costs=per_block * granule, shares=wanted)
    got = loads(plan, per_value) / per_value.sum()
    assert np.abs(got - wanted).max() < 0.012
    if name == "snake":
        assert np.abs(got - wanted).max() < 0.001


def test_turns_are_spread_over_the_gradient():
    plan = make_plan("interleave", 12, 3, granule=1, shares=[0.5, 0.25, 0.25])
    assert [c.tolist() for c in chunks(plan, 12)] == [[0, 3, 4, 7, 8, 11], [1, 5, 9], [2, 6, 10]]
    snake = make_plan("snake", 12, 3, granule=1, costs=np.arange(12, 0, -1), shares=[0.5, 0.25, 0.25])
    assert [c.tolist() for c in chunks(snake, 12)] == [[0, 3, 4, 7, 8, 11], [1, 6, 9], [2, 5, 10]]


def test_without_shares_plans_are_what_they_were():
    """Digest of plans before shares were known; equal shares of a power of two deal the same."""
    seen = hashlib.sha256()
    for name in sorted(PLANS):
        for values, count, granule in ((0, 3, 4), (1000, 3, 7), (4099, 8, 64), (700, 64, 256)):
            random = np.random.default_rng(values)
            costs = random.integers(0, 1 << 20, -(-values // granule)) * (random.random() < 0.9)
            for given_costs in (None, costs):
                plan = make_plan(name, values, count, granule=granule, costs=given_costs)
                seen.update(repr((plan.name, plan.bounds, plan.granule)).encode())
                seen.update(b"" if plan.order is None else plan.order.tobytes())
    assert seen.hexdigest()[:16] == "87ef51546cb6011c"
    costs = np.random.default_rng(0).integers(0, 1 << 20, 64)
    for name in PLANS:
        plans = [make_plan(name, 512, 8, granule=8, costs=costs, shares=s) for s in (None, [0.125] * 8)]
        assert plans[0].bounds == plans[1].bounds
        assert np.array_equal(*(plan.gather(np.arange(512)) for plan in plans))


def test_bad_shares_are_refused():
    def plan(*wanted):
        make_plan("equal", 10, len(wanted), granule=1, shares=wanted)

    with pytest.raises(ValueError, match=r"shares: expected a sum of 1, got 0\.9; divide each by it"):
        plan(0.5, 0.4)
    with pytest.raises(ValueError, match=r"expected numbers of 0 or more, got -0\.5 for chunk 1"):
        plan(1.5, -0.5)
    with pytest.raises(ValueError, match="expected numbers of 0 or more, got nan for chunk 0"):
        plan(float("nan"), 1.0)
    with pytest.raises(ValueError, match="shares: expected one for each of 3 chunks, got 2"):
        make_plan("equal", 10, 3, granule=1, shares=[0.5, 0.5])


def test_bad_arguments_are_refused():
    with pytest.raises(
        ValueError, match="plan must be one of equal, splitter, interleave, snake, got 'even'"
    ):
        make_plan("even", 10, 2, granule=1)
    with pytest.raises(ValueError, match="expected values >= 0, chunks >= 1, granule >= 1; got 10, 0, 1"):
        make_plan("equal", 10, 0, granule=1)
    with pytest.raises(ValueError, match="expected a cost for each of 3 blocks, got 2"):
        make_plan("snake", 10, 2, granule=4, costs=np.zeros(2, np.int64))
