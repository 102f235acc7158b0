"""Plans from sums in packets, as registers ask for them, against the host's plans."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest

from oscar.numerics.plans import block_costs
from oscar_hdl.nic.control.registers import BY_NAME, PLAN_EDGES
from oscar_hdl.nic.memory.planner import planner
from oscar_hdl.nic.memory.ports import STREAM_LANES
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.compiled import copy_of
from oscar_sim.driver.nic_driver import Script
from oscar_sim.seeds import dice, numbers
from support.plans import GRANULE, GRANULE_LOG2, edges, gradients, pieces

pytestmark = pytest.mark.usefixtures("seed")

BLOCKS_LOG2 = 6
MOST = 1 << (GRANULE_LOG2 + BLOCKS_LOG2)


class Bench:
    """A planner; scripts take a step each clock."""

    def __init__(self, rng: random.Random, pause: float) -> None:
        self.rng, self.pause = rng, pause
        self.clk, self.rst = bit(), bit(1)
        self.ports: dict[str, Any] = {
            "s_axis_sums": Stream(STREAM_BITS, keep=STREAM_BITS // 8), "segment": bit(), "issue": bit(),
            "order": word(32), "edge_index": word(4), "edge": word(16), "result": word(10), "cut": bit(),
            "refused": bit(), "wants": bit(),
        }  # fmt: skip
        self.coming: deque[tuple[int, int, bool]] = deque()
        self.offered = False
        self.refused = self.cuts = 0
        sizes = {"granule_log2": GRANULE_LOG2, "blocks_log2": BLOCKS_LOG2}
        make = partial(planner, self.clk, self.rst, **self.ports, **sizes)
        self.script: Any = iter(())
        self.simulator = copy_of("planner", make, self.clk, self._tick, [self.rst, self.ports])

    def _tick(self) -> None:
        sums = self.ports["s_axis_sums"]
        if not (self.offered and not sums.tready):
            self.offered = bool(self.coming) and self.rng.random() >= self.pause
            sums.tvalid.next = self.offered
            if self.offered:
                sums.tdata.next, sums.tkeep.next, sums.tlast.next = self.coming.popleft()
        self.refused += int(self.ports["refused"])
        self.cuts += int(self.ports["cut"])
        self.ended = next(self.script, "end") == "end"

    def run(self, script: Script) -> None:
        """Run a script to its end."""
        self.script, self.ended = script, False
        for _ in range(100_000):
            self.simulator.run(1)
            if self.ended:
                return
        raise TimeoutError("the planner does not go on")

    def reset(self) -> Script:
        """Reset it at once, and wait until it is ready."""
        self.rst.next = True
        self.coming.clear()
        self.ports["s_axis_sums"].tvalid.next = self.offered = False
        self.ports["segment"].next = self.ports["issue"].next = False  # a script may end within a write
        yield
        yield
        self.rst.next = False
        yield from self.ready()

    def ready(self) -> Script:
        """Wait while a command is under way."""
        for _ in range(6):
            yield
        while self.ports["result"][9]:
            yield

    def write(self, register: str, *, other: int = 0, **fields: int) -> Script:
        """Write PLAN_SEGMENT or PLAN_COMMAND. other: bits without a field."""
        name = {"PLAN_SEGMENT": "segment", "PLAN_COMMAND": "issue"}[register]
        self.ports["order"].next = BY_NAME[register].pack(**fields) | other
        self.ports[name].next = True
        yield
        self.ports[name].next = False
        self.ports["order"].next = self.rng.getrandbits(32)
        yield

    def packet(self, values: np.ndarray) -> None:
        """Let a packet come; lanes without a value hold anything."""
        lanes = STREAM_LANES
        words = -(-values.size // lanes)
        for n in range(words):
            part = values[lanes * n : lanes * (n + 1)].tolist()
            keep = (1 << 2 * len(part)) - 1
            part += [self.rng.getrandbits(16) for _ in range(lanes - len(part))]
            data = sum((v & 0xFFFF) << 16 * i for i, v in enumerate(part))
            self.coming.append((data, keep, n == words - 1))

    def taken(self) -> Script:
        """Wait until all packets are."""
        while self.coming or self.offered:
            yield
        yield

    def plan(self, values: np.ndarray, nodes: int) -> Script:
        """Pass sums in segments of any order, with others between that do not count; return the edges."""
        end = -1
        for begin, stop in pieces(self.rng, values.size):
            if begin != end or self.rng.random() < 0.3:
                yield from self.taken()
                if self.rng.random() < 0.3:
                    yield from self.write("PLAN_SEGMENT", first=self.rng.randrange(MOST), count=0)
                    self.packet(gradients(numbers(self.rng.randrange(1 << 30)), 9, "any"))
                    yield from self.taken()
                yield from self.write("PLAN_SEGMENT", first=begin, count=1)
            self.packet(values[begin:stop])
            end = stop
        yield from self.taken()
        if self.rng.random() < 0.5:  # no segment of the next iteration yet
            yield from self.write("PLAN_SEGMENT", first=0, count=0)
        yield from self.write("PLAN_COMMAND", nodes=nodes, blocks=-(-values.size // GRANULE), cut=1)
        yield from self.ready()

    def edges(self, nodes: int) -> Script:
        """Read the boundaries into `read`; None if chunks are equal."""
        self.read: list[int] | None = []
        for n in range(nodes - 1):
            self.ports["edge_index"].next = n
            yield
            yield
            self.read.append(int(self.ports["edge"]))
        if self.ports["result"][8]:
            self.read = None


@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_plans_of_the_host(pause: float) -> None:
    bench = Bench(dice(f"plans {pause}"), pause)
    draw = numbers(int(10 * pause))
    bench.run(bench.reset())
    for made, kind in enumerate(("layers", "zeros", "any", "zero", "ties")):
        values = MOST if kind == "any" else int(draw.integers(1, MOST))
        costs = np.zeros(-(-values // GRANULE), np.int64)
        for i in range(3):
            sums = np.zeros(values, np.int64) if kind == "zero" else gradients(draw, values, kind)
            nodes = int(draw.integers(1, PLAN_EDGES + 2))
            fresh = block_costs(sums, GRANULE) << 8
            costs = costs + ((fresh - costs) >> 1) if i else fresh
            bench.run(bench.plan(sums, nodes))
            bench.run(bench.edges(nodes))
            assert bench.read == edges(values, nodes, costs)
            assert bench.cuts == int(bench.ports["result"]) & 255 == 3 * made + i + 1
        bench.run(bench.write("PLAN_COMMAND", clear=1))
        bench.run(bench.ready())
    assert not bench.refused


@pytest.mark.parametrize("delay", [0, 1, 2, 3, 4, 9])
def test_a_packet_that_begins_as_a_plan_is_made_counts_whole(delay: int) -> None:
    """For this plan or the next: it begins some clocks behind the command, with the last value of a block."""
    bench, low, high = Bench(dice("next"), 0.0), GRANULE - 1, 6 * GRANULE + 3
    packet, rest = np.zeros(MOST, np.int64), np.zeros(MOST, np.int64)
    packet[low], packet[high - 1], rest[-1] = 1 << 14, 1 << 10, 1 << 9
    order = {"nodes": 6, "blocks": MOST // GRANULE, "cut": 1}

    def cut(values: np.ndarray) -> Script:
        yield from bench.write("PLAN_SEGMENT", first=MOST - 9, count=1)
        bench.packet(rest[-9:])
        yield from bench.taken()
        yield from bench.write("PLAN_SEGMENT", first=low, count=1)
        for _ in range(20):  # the splitter takes values again
            yield
        for clock, _ in enumerate(chain(bench.write("PLAN_COMMAND", **order), range(10))):
            if clock == delay:
                bench.packet(values)
            yield
        yield from bench.ready()
        yield from bench.edges(6)

    bench.run(bench.reset())
    bench.run(cut(packet[low:high]))
    with_it, without = (block_costs(sums, GRANULE) << 8 for sums in (rest + packet, rest))
    now = bench.read == edges(MOST, 6, with_it)
    assert now or bench.read == edges(MOST, 6, without)
    bench.run(bench.taken())
    bench.run(cut(packet[:0]))
    first, then = (with_it, without) if now else (without, with_it)
    assert bench.read == edges(MOST, 6, first + ((then - first) >> 1))


def test_values_beyond_the_last_do_not_count() -> None:
    bench = Bench(dice("beyond"), 0.0)
    sums = np.zeros(MOST, np.int64)
    sums[-3:] = 9
    bench.run(bench.reset())
    bench.run(bench.write("PLAN_SEGMENT", first=MOST - 3, count=1))
    bench.packet(np.full(9, 9))
    bench.packet(np.full(9, 9))
    bench.run(bench.taken())
    bench.run(bench.write("PLAN_COMMAND", nodes=3, blocks=MOST // GRANULE, cut=1))
    bench.run(bench.ready())
    bench.run(bench.edges(3))
    assert bench.read == edges(MOST, 3, block_costs(sums, GRANULE))


def test_what_is_no_command_is_refused() -> None:
    rng = dice("refused")
    bench = Bench(rng, 0.0)
    bench.run(bench.reset())
    good = {"nodes": 4, "blocks": 9, "cut": 1}
    wrong: list[dict[str, int]] = [
        {"nodes": 0}, {"nodes": PLAN_EDGES + 2}, {"blocks": 0}, {"blocks": (1 << BLOCKS_LOG2) + 1},
        {"clear": 1}, {"cut": 0}, {"other": 1 << 29}, {"other": 1 << 5},
    ]  # fmt: skip
    for n, fields in enumerate(wrong):
        bench.run(bench.write("PLAN_COMMAND", **(good | fields)))
        bench.run(bench.ready())
        assert bench.refused == n + 1, fields
    bench.run(bench.write("PLAN_SEGMENT", first=MOST, count=1))
    bench.run(bench.ready())
    assert bench.refused == len(wrong) + 1
    assert not bench.cuts
    for n, (first, second) in enumerate(((good, {"clear": 1}), ({"clear": 1}, good))):  # one is under way
        bench.run(bench.write("PLAN_COMMAND", **first))
        bench.simulator.run(12)
        bench.run(bench.write("PLAN_COMMAND", **second))
        bench.run(bench.ready())
        assert bench.refused == len(wrong) + 2 + n
    assert bench.cuts == 1


def test_a_reset_at_any_clock() -> None:
    rng, draw = dice("reset"), numbers(7)
    bench = Bench(rng, 0.2)
    bench.run(bench.reset())
    for _ in range(12):
        sums = gradients(draw, int(draw.integers(1, MOST)), "layers")
        bench.script = bench.plan(sums, 7)
        bench.simulator.run(rng.randrange(2500))
        bench.run(bench.reset())
        bench.packet(sums)  # counts only behind a PLAN_SEGMENT
        bench.run(bench.plan(sums, 5))
        bench.run(bench.edges(5))
        assert int(bench.ports["result"]) & 255 == 1
        assert bench.read == edges(sums.size, 5, block_costs(sums, GRANULE) << 8)
