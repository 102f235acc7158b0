"""MergeComp's search: the best groups where costs have one valley, and equal groups on all ranks always."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from threading import Barrier

import pytest

from oscar_studies.merging import Merged, Stops, averaged, merge


class Valley:
    """Step times that fall and then rise along every border, each for itself; more groups may cost more."""

    def __init__(self, draw: random.Random, tensors: int, groups: int) -> None:
        self.best = sorted(draw.sample(range(1, tensors), groups - 1))
        self.slopes = [(draw.uniform(0.1, 2), draw.uniform(0.1, 2)) for _ in self.best]
        self.gain = draw.uniform(0.5, 3) * tensors
        self.asked: list[Stops] = []

    def __call__(self, stops: Stops) -> float:
        self.asked.append(stops)
        seconds = 100 + self.gain * max(0, len(self.best) + 1 - len(stops)) + 5 * max(0, len(stops) - 3)
        for border, best, (left, right) in zip(stops[:-1], self.best, self.slopes, strict=False):
            seconds += left * max(0, best - border) + right * max(0, border - best)
        return seconds


def exhaustive(tensors: int, groups: int, cost: Valley) -> float:
    return min(cost((*inner, tensors)) for inner in combinations(range(1, tensors), groups - 1))


@pytest.mark.parametrize("apart", [1, 3, None])
@pytest.mark.parametrize("groups", [2, 3])
def test_the_search_is_as_good_as_an_exhaustive_one(
    groups: int, apart: int | None, draw: random.Random
) -> None:
    for _ in range(30):
        tensors = draw.randrange(groups + 1, 22)
        cost = Valley(draw, tensors, groups)
        found = merge(tensors, cost, most=groups, apart=apart)
        asked = list(cost.asked)
        assert len(asked) == len(set(asked)) == found.measured
        assert found.time_s == min(exhaustive(tensors, y, cost) for y in range(1, groups + 1))
        assert found.time_s == cost(found.stops) == min(found.by_groups)
        assert found.stops[-1] == tensors
        assert list(found.stops) == sorted(set(found.stops))


def test_two_groups_take_a_measurement_or_two_for_each_halving() -> None:
    found = merge(1024, lambda stops: abs(stops[0] - 700) if len(stops) > 1 else 999)
    assert found.stops == (700, 1024)
    assert found.measured <= 1 + 2 * 10


def test_one_more_group_that_gains_nothing_ends_the_search(draw: random.Random) -> None:
    cost = Valley(draw, 12, 2)
    found = merge(12, cost, most=8)
    assert found.stops == (cost.best[0], 12)
    assert len(found.by_groups) == 3
    assert merge(9, lambda stops: len(stops), most=4) == Merged((9,), 1, (1, 2), 6)
    assert merge(1, lambda _: 3.0, most=5).stops == (1,)


def test_ranks_that_measure_different_times_end_with_equal_groups(draw: random.Random) -> None:
    ranks, tensors = 4, 30
    seeds = [draw.randrange(2**32) for _ in range(ranks)]
    barrier, box = Barrier(ranks), [0.0]

    def run(rank: int) -> tuple[Merged, list[Stops]]:
        own, asked = random.Random(seeds[rank]), []

        def step_s(stops: Stops) -> float:
            asked.append(stops)
            return own.uniform(1, 2)

        def share(seconds: float) -> float:
            if rank == 0:
                box[0] = seconds
            barrier.wait(10)
            shared = box[0]
            barrier.wait(10)
            return shared

        return merge(tensors, step_s, share, most=3), asked

    with ThreadPoolExecutor(ranks) as pool:
        ends = list(pool.map(run, range(ranks)))
    assert all(end == ends[0] for end in ends)


def test_only_steps_after_the_warm_up_count() -> None:
    steps = iter([9.0, 9.0, 1.0, 2.0, 3.0])
    assert averaged(lambda _: next(steps), warmups=2, iterations=3)((1,)) == 2.0


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, float("inf")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"groups \(3,\): expected seconds from 0"):
        merge(3, lambda _: seconds)
    with pytest.raises(ValueError, match="a distance from 1"):
        merge(3, lambda _: 1.0, apart=0)
