"""Tasks on resources: against the replay, the closed form and the kernel, within their bounds, by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from oscar.coding.costs import Cost
from oscar.collective.schedules import SCHEDULES, make_schedule
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.reducers.cluster import LocalCluster
from oscar.timeline.clocks import Stage, Terms
from oscar.timeline.engine import (
    AFTER,
    BEFORE,
    CODEC,
    COMPUTE,
    INSIDE,
    PORT,
    Graph,
    Need,
    Step,
    Timeline,
    check_ready,
    iteration,
)
from oscar.timeline.equal import assumed_frames, equal_time
from oscar.timeline.lanes import GRID, make_case, policy_time, seconds_at
from oscar.timeline.link import Cores, LinkModel, Pipeline
from oscar.timeline.lowering import unit_work
from oscar.timeline.replay import replay, time_of
from oscar_lab.bench._timelines import bubbles
from oscar_lab.rivals.by_frame import ORDERS, Production, allreduce, sums_s
from oscar_studies.overlap import bucket_shares, iteration_time
from support.frames import unequal

CLOSE = 1e-12
# A NIC whose encoders and decoders are free for the next frame before the result is there.
NIC = Pipeline(
    Stage(100.0, Terms(bound=1.5, once=300.0), Terms(mean=3.0, once=200.0)),
    Stage(200.0, Terms(bound=1.2, once=100.0), Terms(busiest=4.0, once=150.0)),
    units=4,
    block=2048,
)
LINKS = [
    LinkModel.of(gbps=10, latency_us=3, codec_gvalues=0.5, codec_latency_us=1),
    LinkModel(message_s=1e-7, coder=Cores(Cost(6e-9, 5e-7), Cost(13e-9, 8e-7), Cost(6e-9, 2e-7), 3)),
    LinkModel(coder=NIC),
]
STEPS = [
    [Step(PORT, BEFORE, 0)],
    [Step(CODEC, BEFORE, 0), Step(PORT, BEFORE, 0), Step(CODEC, AFTER, 0)],
    [Step(COMPUTE, BEFORE, 0), Step(PORT, BEFORE, 0), Step(COMPUTE, AFTER, 0)],
    [Step(INSIDE, AFTER, 0), Step(CODEC, BEFORE, 0), Step(PORT, BEFORE, 0), Step(INSIDE, BEFORE, 0)],
]


def check(timeline: Timeline) -> None:
    """Needs are kept, one task at a time, no faster than the bounds; the chain that ends last has no gap."""
    graph, start, end = timeline.graph, timeline.start, timeline.end
    for at, task in enumerate(graph.tasks):
        for need in task.needs:
            met = (start if need.of_start else end)[need.task] + need.lag_s
            assert start[at] >= met * (1 - CLOSE)
    for number, resource in enumerate(graph.resources):
        if not resource.shared:
            assert all(start[b] >= end[a] for a, b in pairwise(timeline.on(number)))
    total = timeline.total_s
    assert timeline.bound_s() <= total * (1 + CLOSE)
    assert max(timeline.use().values()) <= 1 + CLOSE
    chain = timeline.critical()
    assert end[chain[-1]] == total
    if not any(resource.shared for resource in graph.resources):
        assert start[chain[0]] == graph.tasks[chain[0]].release_s


def test_every_schedule_takes_what_its_replay_takes(draw: random.Random) -> None:
    cases = 0
    while cases < 120:
        schedule = make_schedule(
            draw.choice(list(SCHEDULES)), draw.randrange(2, 6), subframes=draw.randrange(1, 4)
        )
        frames = unequal(schedule, draw)
        if len(frames):
            cases += 1
            link, coded = draw.choice(LINKS), draw.random() < 0.8
            timeline = allreduce(schedule, frames, link, coded=coded).run()
            wanted = replay(schedule, frames, link, coded=coded).total_s
            assert timeline.total_s == pytest.approx(wanted, rel=CLOSE, abs=0), schedule
            if cases % 10 == 0:
                check(timeline)


@pytest.mark.parametrize("name", ["ring", "direct"])
def test_frames_whose_work_is_known_take_what_their_replay_takes(draw: random.Random, name: str) -> None:
    """Cores that share frames are free for the next one before the result is there."""
    noise = np.random.default_rng(draw.randrange(2**32))
    cluster = LocalCluster(Config.model_validate({"nodes": 4, "schedule": {"name": name, "subframes": 5}}))
    for _ in range(2):
        gradients = [[noise.laplace(size=150_000).astype(np.float32)] for _ in range(4)]
        moved = cluster.allreduce(gradients).stats.moved[0]
    link = LinkModel(coder=NIC)
    work, _ = unit_work(moved.frames, NIC)
    assert any(each.hold < each.work for each in work.values())
    wanted = replay(moved.schedule, moved.frames, link).total_s
    timeline = allreduce(moved.schedule, moved.frames, link).run()
    assert timeline.total_s == pytest.approx(wanted, rel=CLOSE, abs=0)
    check(timeline)


def test_no_sum_is_complete_before_its_values_are_made(draw: random.Random) -> None:
    """No sum is complete before all values are made; production that takes no time changes nothing.

    A ring whose work keeps its order takes as long as communication at least, and as both in turn at most.
    Where frames of several meet at a port, or others are coded first, an order may save or cost time: no
    such bound holds.
    """
    for _ in range(12):
        name, nodes, subs = (
            draw.choice(["ring", "direct"]),
            draw.randrange(2, 6),
            draw.randrange(1, 5),
        )
        schedule = make_schedule(name, nodes, subframes=subs)
        frames, link = assumed_frames(schedule, draw.randrange(500, 50_000), 8), draw.choice(LINKS)
        alone = allreduce(schedule, frames, link)
        once = allreduce(schedule, frames, link, production=Production(0.0))
        assert once.run().total_s == alone.run().total_s
        communicate = sums_s(alone)
        seconds = communicate * draw.choice([0.5, 1, 2])
        for order, triggered in product(ORDERS, (False, True)):
            if triggered and link.codec(True).busy:
                continue
            graph = allreduce(schedule, frames, link, production=Production(seconds, order, triggered))
            check(graph.run())
            found = sums_s(graph)
            assert found >= seconds * (1 - CLOSE)
            if name == "ring" and order != "pieces" and not triggered:
                assert communicate * (1 - CLOSE) <= found <= (seconds + communicate) * (1 + CLOSE)


def test_a_ring_hides_its_sums_behind_production_in_its_own_order() -> None:
    """Four ranks, 64 k values, production as long as communication; plain order hides next to nothing."""
    link = LinkModel.of(gbps=8, latency_us=2.5, codec_gvalues=0.2, codec_latency_us=0.75)
    schedule = make_schedule("ring", 4, subframes=16)
    frames = assumed_frames(schedule, 1 << 16, 16, header_bytes=0)
    alone = sums_s(allreduce(schedule, frames, link))
    own, plain = (
        2 * alone / sums_s(allreduce(schedule, frames, link, production=Production(alone, order)))
        for order in ("rotated", "plain")
    )
    assert 1.5 < own < 1.8
    assert 1 < plain < 1.2


def test_a_triggered_sum_is_coded_when_all_is_added(draw: random.Random) -> None:
    """In whatever order it comes."""
    link = LinkModel.of(gbps=8, latency_us=2.5, codec_gvalues=0.2, codec_latency_us=0.75)
    for _ in range(20):
        schedule = make_schedule("direct", 4, subframes=draw.randrange(1, 4))
        production = Production(draw.choice([1e-5, 1e-3]), draw.choice(ORDERS), triggered=True)
        graph = allreduce(schedule, unequal(schedule, draw), link, production=production)
        timeline, ends = graph.run(), dict[str, float]()
        begins = {}
        for at, task in enumerate(graph.tasks):
            what, _, place = task.name.partition(" ")
            if what == "encode":
                begins[place] = timeline.start[at]
            elif what == "sum":
                ends[place] = max(ends.get(place, 0.0), timeline.end[at])
        assert all(begins[place] >= end for place, end in ends.items())


def test_an_overlapped_iteration_takes_what_the_closed_form_says(draw: random.Random) -> None:
    for _ in range(150):
        sizes = [draw.randrange(10**6) for _ in range(draw.randrange(1, 30))]
        shares, compute = bucket_shares(sizes, draw.randrange(1, 9)), draw.random()
        takes = [draw.random() * draw.choice([0.01, 0.3]) for _ in shares]
        ready = compute * (1 / 3 + 2 / 3 * np.cumsum(shares))
        steps = [[Step(PORT, BEFORE, seconds)] for seconds in takes]
        timeline = iteration(ready, range(1, shares.size + 1), steps).run()
        assert timeline.total_s == pytest.approx(
            float(iteration_time(compute, shares, takes)), rel=CLOSE, abs=0
        )
        check(timeline)
        idle = sum(end - start for start, end in bubbles(timeline, PORT))
        begun = timeline.start[timeline.on(PORT)[0]]
        assert begun + idle + sum(takes) == pytest.approx(timeline.total_s)


def drawn_case(draw: random.Random, tensors: int) -> Any:
    sizes = np.array([draw.choice([0, 1, 5, draw.randrange(1 << 22)]) for _ in range(tensors)], np.int64)
    ready = np.cumsum([draw.random() * draw.choice([0, 1e-3]) for _ in range(tensors)])
    curves = [
        [draw.random() * 1e-4 + GRID * draw.choice([1e-10, 3e-9]) * draw.random() for _ in steps]
        for steps in STEPS
    ]
    refused = np.array([[draw.random() < 0.1 * (option > 0) for _ in sizes] for option in range(len(STEPS))])
    return (
        sizes,
        ready,
        curves,
        refused,
        make_case(ready, np.tile(sizes, (len(STEPS), 1)), STEPS, curves, refused),
    )


def test_the_kernel_takes_what_the_engine_takes_to_the_bit(draw: random.Random) -> None:
    for _ in range(300):
        tensors = draw.randrange(1, 25)
        sizes, ready, curves, refused, case = drawn_case(draw, tensors)
        stops = sorted({*draw.sample(range(1, tensors + 1), draw.randrange(tensors)), tensors})
        chosen = [draw.randrange(len(STEPS)) for _ in stops]
        starts = np.zeros((len(stops), case.queue.shape[1]))
        found = policy_time(case, np.array(stops), np.array(chosen), len(stops), starts, np.inf)
        groups = list(zip([0, *stops], stops, chosen, strict=False))
        if any(refused[option, a:b].any() for a, b, option in groups):
            assert np.isinf(found)
            continue
        steps = [
            [
                step._replace(seconds=seconds_at(curve, int(sizes[a:b].sum())))
                for step, curve in zip(STEPS[option], curves[option], strict=True)
            ]
            for a, b, option in groups
        ]
        timeline = iteration(ready, stops, steps).run()
        assert found == timeline.total_s
        for limit in (found * 0.99, found, found * 1.01):
            limited = policy_time(case, np.array(stops), np.array(chosen), len(stops), starts.copy(), limit)
            assert limited == (found if limit > found else np.inf)
        own = iter(timeline.start[len(stops) :])
        assert [starts[g, 1 + s] for g, row in enumerate(steps) for s in range(len(row))] == list(own)
        check(timeline)


def test_curves_are_straight_between_powers_of_two_and_go_on_beyond() -> None:
    curve = 5.0 + 2.0 * GRID
    for values in (1, 2, 3, 1000, 2**39 + 5, 2**41):
        assert seconds_at(curve, values) == pytest.approx(5.0 + 2.0 * values, rel=CLOSE)
    flat = np.maximum(GRID, 2.0**20)
    assert [seconds_at(flat, v) for v in (0, 7, 2**20, 3 * 2**19)] == [2.0**20] * 3 + [1.5 * 2**20]


def test_list_scheduling_by_hand() -> None:
    graph = Graph()
    free, ordered = graph.resource("free"), graph.resource("ordered", in_order=True)
    first = graph.add("first", free, 2)
    late = graph.add("late", ordered, 1, [first])
    for resource in (free, ordered):
        graph.add("low", resource, 1, priority=5)
    blocked, high = graph.add("blocked", ordered, 1), graph.add("high", free, 1, priority=-1, release_s=0.5)
    tail = graph.add("tail", None, 3, [Need(first, 0.25, of_start=True), Need(high, 1.0)])
    found = graph.run()
    assert list(found.start) == [0, 2, 3, 0, 3, 2, 4]  # low on ordered goes while late's queue waits
    assert found.total_s == 7
    assert found.critical() == [first, high, tail]
    assert bubbles(found, ordered) == [(1, 2)]
    assert found.bound_s() == pytest.approx(0.5 + 1 + 1 + 3)
    assert (late, blocked) == (1, 4)
    check(found)


def test_a_shared_core_works_on_all_at_once_and_loses_no_time(draw: random.Random) -> None:
    graph = Graph()
    core = graph.resource("core", shared=True)
    one, _ = graph.add("one", core, 3), graph.add("two", core, 1, release_s=1)
    graph.add("three", core, 1, [one])
    assert list(graph.run().end) == [4, 3, 5]
    for _ in range(50):
        graph = Graph()
        core = graph.resource("core", shared=True)
        for at in range(12):
            needs = [draw.randrange(at)] if at and draw.random() < 0.5 else []
            graph.add(str(at), core, draw.random(), needs)
        found = graph.run()
        check(found)
        assert found.total_s == pytest.approx(found.loads()[0])  # somebody is always there


def test_a_codec_on_a_core_that_it_shares_slows_the_backward_pass_down() -> None:
    steps = [[Step(COMPUTE, BEFORE, 2.0), Step(PORT, BEFORE, 1.0)]] * 2
    alone, both = (iteration([2, 4], [1, 2], steps, shared) for shared in ((), (COMPUTE,)))
    assert list(alone.run().end) == [2, 6, 4, 5, 8, 9]
    assert list(both.run().end) == [2, 6, 6, 7, 8, 9]


def test_what_cannot_be_is_refused() -> None:
    graph = Graph()
    lane = graph.resource("lane", in_order=True)
    graph.add("a", lane, 1, [1])
    graph.add("b", lane, 1)
    with pytest.raises(ConfigError, match=r"wait in no circle, got a after b after a"):
        graph.run()
    with pytest.raises(ValueError, match="expected a resource of 1, got number 3"):
        graph.add("c", 3, 1)
    with pytest.raises(ValueError, match="expected seconds from 0"):
        graph.add("c", lane, -1)
    with pytest.raises(ConfigError, match=r"0 or more, got -1 s for tensor 0"):
        check_ready([-1, 2])
    with pytest.raises(ConfigError, match=r"got 1 s for tensor 2 after 2 s"):
        check_ready([0, 2, 1])
    with pytest.raises(ConfigError, match="a finite ready time for each tensor"):
        check_ready([0, float("nan")])
    for stops in ([1], [2, 2], [0, 3], [3, 1]):
        with pytest.raises(ValueError, match="groups that cover 3 tensors in order"):
            iteration([0, 1, 2], stops, [[]] * len(stops))


def test_what_a_nic_codes_passes_no_faster_than_its_bus() -> None:
    schedule = make_schedule("direct", 4)
    free = Stage(0.0, Terms(), Terms())
    link = LinkModel(bandwidth_bps=100e9, latency_s=0.0, coder=Pipeline(free, free, 1e-30))
    slower = replace(link, coder=Pipeline(free, free, 1e-30, port_bps=10e9))
    frames = assumed_frames(schedule, 1 << 16, 8)
    bus, wire = (time_of(schedule, frames, one) for one in (slower, link))
    assert bus == pytest.approx(10 * wire, rel=1e-3)
    raw = [equal_time(schedule, 1 << 16, one, coded=False) for one in (slower, link)]
    assert raw[0] == raw[1]
    assert equal_time(make_schedule("ring", 4), 1 << 16, slower) > 5 * equal_time(
        make_schedule("ring", 4), 1 << 16, link
    )
