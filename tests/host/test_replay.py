"""Any schedule over any ports: what a port carries, by hand and at random, and what is predicted from it."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

from oscar.coding.costs import Cost
from oscar.collective.actions import Action, Op, Phase
from oscar.collective.frames import Frames
from oscar.collective.ring import Boomerang, Duplex, Ring
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import SCHEDULES, make_schedule
from oscar.collective.trees import Direct, Hierarchical, Star
from oscar.config import LinkSection
from oscar.errors import OscarError
from oscar.timeline import equal
from oscar.timeline.choose import by_kind, choose, times
from oscar.timeline.equal import assumed_frames, equal_time, in_switch_time
from oscar.timeline.link import Cores, LinkModel
from oscar.timeline.lowering import cut_for
from oscar.timeline.nic import load_nic
from oscar.timeline.replay import replay, time_of
from oscar.timeline.scale import PLAYED, Measured, generator, scale
from oscar.timeline.topology import Link, Port, Topology, grouped, switch, wires
from support.frames import unequal

WIRE = LinkModel.of(gbps=1, latency_us=5)
CODED = LinkModel.of(gbps=10, latency_us=3, codec_gvalues=0.5, codec_latency_us=1)
NIC = LinkSection(codec="rtl").model()
ENGINES = LinkModel(message_s=1e-7, coder=Cores(Cost(6e-9, 5e-7), Cost(7e-9, 6e-7), Cost(6e-9, 2e-7), 3))
BYTE = 8e-9  # seconds at 1 Gb/s


def push(a: int, b: int) -> Frames:
    """Return the frames of a star of 3 around rank 2: 1000 values in a and b bytes there, in 1 byte back."""
    rows = [(0, 0, 0, 2, 0, 0, 1, 1000, a), (0, 0, 1, 2, 0, 0, 1, 1000, b)]
    return Frames.of([*rows, *((1, s, 2, r, 0, 0, 3, 1000, 1) for s, r in enumerate((0, 1)))])


def network(seed: random.Random, nodes: int) -> Topology:
    """Draw a topology with links between all ranks."""
    rate = [seed.choice([1.0, 10.0, 25.0]) for _ in range(nodes)]
    size = seed.choice([s for s in range(1, nodes + 1) if nodes % s == 0])
    groups = grouped(nodes // size, size, inside=(20, 1e-6), between=(seed.choice([2.0, 10.0]), 3e-6))
    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    mesh = wires(nodes, {pair: (seed.choice(rate), seed.random() * 1e-5) for pair in pairs})
    made = seed.choice([switch(rate, seed.choice([0.0, 2e-6])), groups, mesh])
    return replace(made, message_s=seed.choice([0.0, 1e-7]))


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_no_port_carries_two_frames_at_once_and_none_is_faster_than_its_load(name, draw):
    for _ in range(12):
        nodes, subs = draw.randrange(2, 8), draw.randrange(1, 4)
        schedule = make_schedule(name, nodes, subframes=subs)
        frames, topology = unequal(schedule, draw), network(draw, nodes)
        link, coded = draw.choice([WIRE, CODED, ENGINES]), draw.random() < 0.8
        found = replay(schedule, frames, link, topology, coded=coded, spans=True)
        ports = defaultdict(list)
        for one in found.carried:
            ports[one.port].append(one)
        _, cut = cut_for(schedule, frames, link.codec(coded).cores)
        used = sum(
            len(topology.links[i, j].out + topology.links[i, j].into)
            for i, j in zip(cut["sender"].tolist(), cut["receiver"].tolist(), strict=True)
        )
        assert used == len(found.carried)
        load = np.zeros(len(topology.ports))
        for row in cut:
            ends = topology.links[int(row["sender"]), int(row["receiver"])]
            for port in (*ends.out, *ends.into):
                load[port] += int(row["bytes"]) * topology.ports[port].seconds_per_byte
        assert found.total_s >= load.max() * (1 - 1e-9)
        for carried in ports.values():
            carried.sort(key=lambda one: one.start_s)
            for a, b in pairwise(carried):
                assert a.end_s <= b.start_s * (1 + 1e-9), (schedule, topology.text, a, b)
        rows = defaultdict(list)
        for span in found.spans:
            rows[span.rank, span.stage, span.core].append((span.start_s, span.start_s + span.duration_s))
        for bars in rows.values():
            bars.sort()
            assert all(a[1] <= b[0] * (1 + 1e-9) for a, b in pairwise(bars)), schedule


def test_frames_of_two_senders_take_turns_at_one_port():
    """Ranks 0 and 1 send to rank 2, of 1000 and 4000 bytes: the port takes them one after the other."""
    found = replay(Star(3, root=2), push(1000, 4000), WIRE, coded=False)
    assert found.met_s == pytest.approx(1000 * BYTE)  # both begin at once: the second waits for the first
    arrived = 5000 * BYTE + 5e-6
    assert found.total_s == pytest.approx(arrived + 2 * BYTE + 5e-6, rel=1e-12)


def test_ports_of_unequal_rates_by_hand():
    """A frame is as fast as the slower end; the faster end is taken all along."""
    for rates in ([1.0, 9.0, 4.0], [4.0, 9.0, 1.0]):
        found = replay(Star(3, root=2), push(1000, 1), WIRE, switch(rates, 5e-6), coded=False, spans=True)
        first = next(one for one in found.carried if one.sender == 0 and one.port == 5)
        assert (first.start_s, first.end_s) == pytest.approx((5e-6, 5e-6 + 1000 * BYTE), rel=1e-9)


def test_a_shared_nic_takes_turns_and_does_not_hold_back_other_links():
    """Ranks 0 and 1 share a NIC outwards, to 2 and 3; rank 0's wire to 1 is its own."""
    slow, fast = Port("NIC", BYTE), Port("0 -> 1", BYTE)
    links = {(0, 2): Link(0.0, (0,), ()), (1, 2): Link(0.0, (0,), ()), (0, 1): Link(0.0, (1,), ())}
    topology = Topology(3, (slow, fast), links, "links", "by hand")

    @dataclass(frozen=True)
    class Sends(Schedule):
        name: ClassVar[str] = "sends"
        owners = (0, 0, 0)

        def actions(self, rank):
            for chunk, sender, receiver in ((0, 0, 2), (1, 0, 1), (2, 1, 2)):
                if rank == sender:
                    yield Action(Op.ENCODE, Phase(0), 0, chunk, 0, receiver, sender)
                    yield Action(Op.SEND, Phase(0), 0, chunk, 0, receiver, sender)
                if rank == receiver:
                    yield Action(Op.WAIT, Phase(0), 0, chunk, 0, sender, sender)

    schedule = Sends(3)
    frames = Frames.of((0, 0, s, r, c, 0, 1, 1, 1000) for c, s, r in ((0, 0, 2), (1, 0, 1), (2, 1, 2)))
    found = replay(schedule, frames, WIRE, topology, coded=False, spans=True)
    starts = {(one.sender, one.receiver): one.start_s for one in found.carried}
    assert starts == {(0, 2): 0, (0, 1): 0, (1, 2): 1000 * BYTE}
    only = Topology(3, (slow, fast), {pair: links[pair] for pair in ((0, 2), (1, 2))}, "links", "one less")
    with pytest.raises(ValueError, match="a link from rank 0 to 1, which the schedule uses, got none"):
        replay(schedule, frames, WIRE, only, coded=False)
    with pytest.raises(ValueError, match="a topology of 3 ranks, got 4"):
        replay(schedule, frames, WIRE, switch([1.0] * 4, 0.0))

    class Waits(Sends):
        def actions(self, rank):
            yield from super().actions(rank)
            if rank == 1:
                yield Action(Op.WAIT, Phase(0), 0, 0, 0, 0, 0)

    with pytest.raises(OscarError, match=r"ranks that wait for ever: \{1: .*fix the schedule"):
        replay(Waits(3), frames, WIRE, topology, coded=False)


def test_direct_takes_what_was_measured_for_it():
    """README's model: 36,055 values a chunk, 1.247 bits in a push and 2.914 in a pull, 100 Gb/s, 2 us."""
    bits = {1: 1.247, 8: 2.914}
    for subs, wanted in ((1, 16.53), (2, 14.97), (4, 14.21)):
        schedule = Direct(8, subs)
        frames = assumed_frames(schedule, 8 * 36055, lambda terms: bits[terms])
        assert time_of(schedule, frames, LinkModel()) * 1e6 == pytest.approx(wanted, abs=0.01)
    raw = assumed_frames(Direct(8), 8 * 36055, header_bytes=0)
    assert time_of(Direct(8), raw, LinkModel(), coded=False) * 1e6 == pytest.approx(165.53, abs=0.01)


@pytest.mark.parametrize("link", [LinkModel(), WIRE, CODED, ENGINES, NIC])
def test_one_rank_models_all_of_direct(link, draw):
    for _ in range(12):
        schedule = Direct(draw.randrange(1, 10), draw.randrange(1, 6))
        values, coded = schedule.nodes * draw.randrange(20_000), draw.random() < 0.7
        how = {"bits": lambda terms: 1.2 + 0.3 * terms, "header_bytes": 24}
        whole = replay(schedule, assumed_frames(schedule, values, **how), link, coded=coded)
        assert whole.met_s == 0
        assert equal_time(schedule, values, link, **how, coded=coded) == whole.total_s, schedule


@pytest.fixture
def short_cuts(monkeypatch):
    """Refuse to look at more than one rank."""
    for name in ("time_of", "assumed_frames"):
        monkeypatch.setattr(equal, name, lambda *_, **__: pytest.fail("all ranks are replayed"))


def test_equal_times_of_1024_ranks_are_those_of_one(short_cuts):
    for schedule in (Direct(1024), Ring(1024)):
        assert 0 < equal_time(schedule, 10**7, LinkModel()) < equal_time(schedule, 2 * 10**7, LinkModel())


def test_many_ranks_are_chosen_for_without_a_replay(short_cuts):
    many = [make_schedule(name, 256) for name in ("duplex", "hierarchical", "direct")]
    assert choose(many, 10**6, LinkModel(), bits=2.0) == "direct"


def test_the_fastest_is_chosen_and_the_network_decides_without_times():
    ways = [make_schedule(name, 8) for name in SCHEDULES]
    small = times(ways, 300_000, LinkModel(), bits=2.0)
    assert choose(ways, 300_000, LinkModel(), bits=2.0) == min(small, key=small.get) == "direct"
    assert list(small) == list(SCHEDULES)
    assert small == times(ways, 300_000, LinkModel(), switch([100.0] * 8, 2e-6), bits=2.0)
    ring = wires(8, {(i, (i + step) % 8): (100.0, 2e-6) for i in range(8) for step in (1, -1)})
    one_way = wires(8, {(i, (i + 1) % 8): (100.0, 2e-6) for i in range(8)})
    pairs = grouped(4, 2, inside=(200, 2e-6), between=(25, 2e-6))
    assert choose(ways, 300_000, LinkModel(), ring, 2.0) == "duplex"
    assert choose(ways, 300_000, LinkModel(), one_way, 2.0) == "ring"
    assert by_kind(None, 3, exact=True) == by_kind(switch([1.0] * 3, 0.0), 3, exact=True) == "direct"
    assert [by_kind(network, 2, exact=True) for network in (None, switch([1.0, 2.0], 0.0))] == 2 * [
        "exchange"
    ]
    assert by_kind(None, 2, exact=False) == "direct"
    assert [by_kind(ring, 8, exact=exact) for exact in (True, False)] == ["duplex", "ring"]
    assert by_kind(one_way, 8, exact=True) == "ring"
    assert by_kind(pairs, 8, exact=True) == "hierarchical"
    line = wires(3, {(0, 1): (1.0, 0.0), (1, 0): (1.0, 0.0), (1, 2): (1.0, 0.0), (2, 1): (1.0, 0.0)})
    with pytest.raises(ValueError, match=r"got none from rank 0 to 2; .*oscar schedule synth"):
        by_kind(line, 3, exact=True)
    with pytest.raises(ValueError, match=r"links of one of direct, ring.*oscar schedule synth"):
        choose([Direct(3), Ring(3)], 99, LinkModel(), line)


def test_a_switch_that_adds_by_hand():
    """Half a link up, decode and encode at the switch, half a link down, decode: whatever the nodes are."""
    for nodes in (2, 8):
        both_codecs = 4 * 0.5e-6
        expected = 2 * (1024 * BYTE / 100 + 1e-6) + both_codecs
        found = in_switch_time(nodes, 8000, LinkModel(), bits=1.0, header_bytes=24)
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("schedule", [Direct(8, 2), Hierarchical(8, group=4), Star(8)])
def test_other_schedules_scale_by_their_terms(schedule):
    frames = assumed_frames(schedule, 800_000, lambda terms: 2 + 0.5 * np.log2(terms))
    run = Measured(frames, schedule)
    assert run.values == 800_000
    assert run.law.slope() == pytest.approx(0.5, abs=0.01)
    assert run.law.bits_at(1, 64) == pytest.approx(5, abs=0.01)
    same, more = scale(run, [8, 32], link=LinkModel())
    assert same.time_s == pytest.approx(time_of(schedule, frames, LinkModel()), rel=1e-3)
    assert same.bits_per_value == pytest.approx(8 * frames.bytes / (14 * 800_000), rel=1e-3)
    assert more == scale(run, [32], link=LinkModel())[0]
    assert more.fp32_direct_s == pytest.approx(2 * 31 / 32 * 800_000 * 32 / 100e9 + 4e-6)


@pytest.mark.parametrize("schedule", [Direct(8), Ring(8), Boomerang(8)])
def test_one_of_many_is_near_all_of_them(schedule, monkeypatch):
    seed = np.random.default_rng(4)
    off = seed.uniform(0.9, 1.1, 8)
    rows = assumed_frames(schedule, 3_200_000, lambda terms: 1.3 if terms == 1 else 2.9).rows.copy()
    rows["bytes"] = rows["bytes"] * off[rows["chunk"]]
    law = Measured(Frames(rows), schedule).law
    exact = law.draw(PLAYED, 3_200_000, LinkModel(), generator(0, 64))
    monkeypatch.setattr("oscar.timeline.scale.PLAYED", 1)
    short = law.draw(PLAYED, 3_200_000, LinkModel(), generator(0, 64))
    assert short[:2] == exact[:2]
    assert short.time_s == pytest.approx(exact.time_s, rel=0.03)


@pytest.mark.parametrize("driven", [False, True])
@pytest.mark.parametrize("schedule", [Ring(8, 2), Direct(8, 2), Duplex(8, 2), Direct(8)])
def test_a_scaled_time_on_a_nic_is_the_measured_one(schedule, driven):
    """At the measured number of nodes; the next size takes hardly longer, on both sides of PLAYED, too."""
    nic = load_nic()
    link = LinkModel.of(coder=nic.model(), driver=nic.driver_model() if driven else None)
    frames = assumed_frames(schedule, 160_000, lambda terms: 2 + 0.5 * np.log2(terms))
    measured_s = time_of(schedule, frames, link)
    same, many, one_more = scale(Measured(frames, schedule), [8, PLAYED, PLAYED + 1], link=link)
    assert same.time_s == pytest.approx(measured_s, rel=0.03)
    assert one_more.time_s == pytest.approx(many.time_s, rel=0.08)


def test_a_boomerang_and_its_duplex_send_the_same_bytes():
    frames = assumed_frames(Boomerang(5, 2), range(0, 60_000, 10_000), lambda terms: 2 + terms)
    assert frames == assumed_frames(Duplex(5, 2), range(0, 60_000, 10_000), lambda terms: 2 + terms)
    with pytest.raises(ValueError, match="bounds of 5 chunks, got 3 bounds"):
        assumed_frames(Duplex(5), [0, 1, 2])


def test_half_of_a_call_is_refused_unless_it_is_the_all_gather():
    frames = assumed_frames(Ring(4), 4000, 2.0)
    first, second = (Frames(frames.rows[frames["phase"] == phase]) for phase in range(2))
    with pytest.raises(ValueError, match="got none"):
        replay(Ring(4), first, LinkModel())
    assert 0 < replay(Ring(4), second, LinkModel()).total_s < replay(Ring(4), frames, LinkModel()).total_s
    with pytest.raises(ValueError, match="frames of both phases"):
        Measured(second, Ring(4))
