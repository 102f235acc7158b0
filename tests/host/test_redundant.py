"""Redundancy: exact sums in any order of arrival, equal tables on both ends of a link, deaths survived."""

from __future__ import annotations

import argparse
from collections import deque

import numpy as np
import pytest

from oscar.coding.registry import make_codec
from oscar.errors import ConfigError, PeerError
from oscar.numerics.quantiser import sum_width
from oscar.timeline.link import LinkModel
from oscar_lab.bench import redundancy
from oscar_lab.rivals.redundant_nodes import RedundantNode
from oscar_lab.rivals.redundant_tasks import Kind, Redundancy
from oscar_lab.rivals.redundant_time import Race

CUT = "cut"


def width(workers: int) -> int:
    return sum_width(8, workers)


class Rounds:
    """Ranks whose work and messages happen in a random order; `deaths`: how many ranks die on the way."""

    def __init__(self, draw, nodes, copies, iterations, *, deaths=0, sizes=(0, 1, 40, 700)):
        self.draw, self.plan, self.deaths = draw, Redundancy(nodes, copies), deaths
        random = np.random.default_rng(draw.randrange(1 << 32))
        self.tasks, self.bounds, self.classes = [], [], []
        for _ in range(iterations):
            cut = [draw.choice(sizes) for _ in range(nodes)]
            self.bounds.append((0, *np.cumsum(cut).tolist()))
            scale = random.integers(1, 40)
            drawn = random.normal(0, scale, (nodes, sum(cut))).round().clip(-127, 127).astype(np.int16)
            self.tasks.append(drawn)
            self.classes.append(random.integers(0, 16, sum(cut), dtype=np.uint8))
        chosen = make_codec("asc")
        self.nodes = [RedundantNode(rank, self.plan, chosen, width) for rank in range(nodes)]
        self.links = {(i, j): deque() for i in range(nodes) for j in range(nodes) if i != j}
        self.results = [[] for _ in range(nodes)]
        self.begun, self.dead, self.bytes = [0] * nodes, set(), 0

    def run(self, *, without=(), until=lambda: False):
        """Let things happen until nothing is left, but for the deliveries of a link `without`."""
        while events := [event for event in self._events() if event[1:] != without]:
            if until():
                break
            kind, *who = self.draw.choice(events)
            getattr(self, f"_{kind}")(*who)
        return self

    def _events(self):
        events = []
        for rank, node in enumerate(self.nodes):
            if rank in self.dead:
                continue
            ready = not self.begun[rank] or node.done
            if ready and self.begun[rank] < len(self.tasks):
                events.append(("begin", rank))
            if self.begun[rank] and node.wanted is not None:
                events.append(("work", rank))
            if self.deaths and self.draw.random() < 0.02:
                events.append(("die", rank))
        events += [
            ("deliver", *link) for link, queue in self.links.items() if queue and link[1] not in self.dead
        ]
        return events

    def _send(self, messages):
        for message in messages:
            assert message.sender not in self.dead
            self.bytes += message.size
            self.links[message.sender, message.receiver].append(message)

    def _begin(self, rank):
        at = self.begun[rank]
        if at:
            self.results[rank].append(self.nodes[rank].now.sums.copy())
        self.begun[rank] += 1
        self._send(self.nodes[rank].begin(self.bounds[at], self.classes[at]))

    def _work(self, rank):
        node = self.nodes[rank]
        self._send(node.finish(node.wanted, self.tasks[node.now.number][node.wanted]))

    def _deliver(self, sender, receiver):
        message = self.links[sender, receiver].popleft()
        node = self.nodes[receiver]
        self._send(node.lost(sender) if message is CUT else node.receive(message))

    def _die(self, rank, *, whole=False):
        self.deaths = max(0, self.deaths - 1)
        self.dead.add(rank)
        for (sender, _), queue in self.links.items():
            if sender == rank:
                for _ in range(0 if whole else self.draw.randint(0, len(queue))):
                    queue.pop()
                queue.append(CUT)

    def check(self):
        """All living ranks have all sums, to the bit, and the same tables on both ends of each link."""
        living = [node for node in self.nodes if node.rank not in self.dead]
        for node in living:
            assert node.done
            got = [*self.results[node.rank], node.now.sums]
            assert len(got) == len(self.tasks)
            for sums, tasks in zip(got, self.tasks, strict=True):
                assert np.array_equal(sums, tasks.sum(axis=0, dtype=np.int64))
            for (way, kind, peer), end in node.ends.items():
                if way != "decode" or peer in self.dead:
                    continue
                other = self.nodes[peer].ends["encode", kind, node.rank if kind is Kind.TASK else -1]
                mine, theirs = end.states, other.states
                assert mine.keys() == theirs.keys()
                for key in mine:
                    assert mine[key].sequence == theirs[key].sequence
                    assert np.array_equal(mine[key].hist, theirs[key].hist)


def test_sums_are_exact_and_tables_equal_in_any_order_of_arrival(draw):
    drained = 0
    for _ in range(40):
        n = draw.randint(1, 6)
        rounds = Rounds(draw, n, draw.randint(1, n), 3).run()
        rounds.check()
        drained += sum(node.drained for node in rounds.nodes)
        if rounds.plan.copies == 1:
            assert not any(node.drained for node in rounds.nodes)
    assert drained  # copies did come late


def test_deaths_are_survived_while_tasks_have_copies(draw):
    died = 0
    for _ in range(120):
        n = draw.randint(3, 6)
        copies = draw.randint(2, n)
        rounds = Rounds(draw, n, copies, 3, deaths=draw.randint(1, copies - 1)).run()
        rounds.check()
        died += len(rounds.dead)
    assert died > 30


def test_frames_of_a_dead_rank_that_others_have_outlived_are_left(draw):
    """Rank 2 hears nothing of rank 0 until it is two iterations on: its tables are then of no use."""
    rounds = Rounds(draw, 3, 3, 3, sizes=(1, 40))  # the others do all tasks without it
    slow = rounds.links[0, 2]
    rounds.run(without=(0, 2), until=lambda: any(message.iteration == 1 for message in slow))
    rounds._die(0, whole=True)
    rounds.run(without=(0, 2))
    assert rounds.begun[2] == 3
    assert len({message.iteration for message in slow if message is not CUT}) == 2
    rounds.run().check()
    assert rounds.nodes[2].dead == {0}


def test_a_task_without_a_copy_is_named():
    nodes = [RedundantNode(rank, Redundancy(4, 2), make_codec("asc"), width) for rank in range(4)]
    for node in nodes:
        node.begin((0, 2, 4, 6, 8), None)
    nodes[3].lost(1)
    assert nodes[3].owner(1) == 2
    with pytest.raises(PeerError, match=r"no copy of task 2 is left for chunk 1: its workers 2, 1 are dead"):
        nodes[3].lost(2)


def test_a_copy_is_counted_once_even_if_it_is_sent_again():
    nodes = [RedundantNode(rank, Redundancy(3, 2), make_codec("asc"), width) for rank in range(3)]
    for node in nodes:
        node.begin((0, 3, 6, 9), np.zeros(9, np.uint8))
    ones = np.ones(9, np.int16)
    for rank, task in ((0, 0), (0, 1), (1, 1), (2, 2)):
        for message in nodes[rank].finish(task, ones * (task + 1)):
            if message.receiver == 2:
                nodes[2].receive(message)
    assert nodes[2].drained == 1
    assert nodes[2].now.sums[6:].tolist() == [6, 6, 6]
    with pytest.raises(ValueError, match=r"rank 2 does tasks \(2, 0\) once each, got 2"):
        nodes[2].finish(2, ones)


def test_bad_frames_are_named():
    nodes = [RedundantNode(rank, Redundancy(3, 2), make_codec("asc"), width) for rank in range(3)]
    for node in nodes:
        node.begin((0, 3, 6, 9), None)
    first, second = nodes[0].finish(0, np.ones(9, np.int16))
    where = r"rank 1: the frame of task 0, chunk 1, from rank 0 is bad"
    with pytest.raises(PeerError, match=where):
        nodes[1].receive(first._replace(frame=bytes(first.frame[:-1]) + b"?"))
    with pytest.raises(
        PeerError, match=r"task 2, chunk 1, from rank 0 .* \(3, 8, 1, 0\), expected \(3, 8, 1, 2\)"
    ):
        nodes[1].receive(first._replace(task=2))
    with pytest.raises(PeerError, match="it is of iteration -1, at 0"):
        nodes[2].receive(second._replace(iteration=-1))


def test_what_would_not_be_exact_is_refused():
    with pytest.raises(
        ConfigError, match="redundancy 2: error feedback's residual would belong to 2 workers"
    ):
        Redundancy(8, 2, error_feedback=True)
    Redundancy(8, 1, error_feedback=True)
    with pytest.raises(ConfigError, match="got nodes=4, redundancy=5"):
        Redundancy(4, 5)
    with pytest.raises(ConfigError, match="expected a lossless codec of integers, got fp32"):
        RedundantNode(0, Redundancy(2, 2), make_codec("fp32"), width)


def test_a_slow_worker_is_not_waited_for():
    """Two workers with chunks of one value, on a link of 1 ms a byte: by hand."""
    link = LinkModel(bandwidth_bps=8e3, latency_s=0.5, codec_latency_s=0.25)
    codec, size = make_codec("int16"), 8 + 24 + 2
    tasks = [np.array([1, 2], np.int16), np.array([10, 20], np.int16)]
    race = Race(Redundancy(2, 1), codec, width, link)
    lap = race.lap(tasks, [[1.0], [50.0]], (0, 1, 2))
    hop = 0.25 + size / 1e3 + 0.5 + 0.25
    assert (lap.frames, lap.bytes, lap.drained) == (4, 4 * size, 0)
    assert lap.covered_s == pytest.approx(50 + hop)
    race = Race(Redundancy(2, 2), codec, width, link)
    lap = race.lap(tasks, [[1.0, 1.0], [50.0, 50.0]], (0, 1, 2))
    assert lap.covered_s == pytest.approx(2 + hop)  # rank 0 did both tasks; rank 1 adds them
    assert lap.seconds == pytest.approx(2 + 2 * hop)
    assert (lap.sums.tolist(), lap.finished) == ([11, 22], 2)


def test_laps_are_exact_whoever_is_slow_or_dies(draw):
    late = 0
    for _ in range(15):
        n = draw.randint(2, 6)
        copies = draw.randint(2, n)
        race = Race(Redundancy(n, copies), make_codec("asc"), width, LinkModel.of(gbps=1, latency_us=20))
        for lap_number in range(4):
            bounds = (0, *np.cumsum([draw.choice([0, 5, 900]) for _ in range(n)]).tolist())
            random = np.random.default_rng(draw.randrange(1 << 32))
            tasks = random.integers(-20, 20, (n, bounds[-1])).astype(np.int16)
            seconds = (random.exponential(30e-6, (n, copies))).tolist()
            deaths = {draw.randrange(n): draw.uniform(0, 2e-4)} if lap_number == 2 else {}
            lap = race.lap(tasks, seconds, bounds, deaths=deaths)
            late += lap.drained
            for rank in set(range(n)) - race.dead:
                assert np.array_equal(race.nodes[rank].now.sums, tasks.sum(axis=0, dtype=np.int32))
    assert late


def test_the_benchmark_finds_redundancy_faster_and_exact(capsys):
    parser = argparse.ArgumentParser()
    redundancy.add_arguments(parser)
    result = redundancy.run(parser.parse_args(["--iterations", "40", "--values", "512"]))
    assert result["same"]
    one, two, _ = result["rows"]
    assert two["gain"] > 1.2
    assert one["drained"] == 0 < two["drained"]
    assert "redundancy 2: bar 1.5x" in capsys.readouterr().out
