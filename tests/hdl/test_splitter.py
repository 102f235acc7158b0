"""Boundaries over several iterations, against the plans of the host."""

from __future__ import annotations

import numpy as np
import pytest
from myhdl import block, instance

from oscar.numerics.plans import block_costs
from oscar_hdl.nic.memory.splitter import splitter
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.seeds import dice, numbers
from support.bench import Pause, clock, never, randomly, simulate, sink
from support.plans import GRANULE, GRANULE_LOG2, edges, gradients, pieces

pytestmark = pytest.mark.usefixtures("seed")

BLOCK_BITS = 6


def run(iterations: list[tuple[bool, int, np.ndarray]], seed: int, pause: Pause = never, reset: bool = False):
    """Pass sums (clear before?, nodes, values); return what the block says after each: edges, or None."""
    clk, rst, clear, finish, equal, done = (bit() for _ in range(6))
    nodes, blocks, seg_start = word(5), word(BLOCK_BITS + 1), word(BLOCK_BITS + GRANULE_LOG2)
    s_axis, m_axis = Stream(16), Stream(16)
    rng = dice(seed)
    taken: list[tuple[int, bool]] = []
    said: list[list[int] | None] = []

    @block
    def top():
        dut = splitter(
            clk, rst, clear, nodes, blocks, seg_start, s_axis, finish, m_axis, equal, done,
            granule_log2=GRANULE_LOG2,
        )  # fmt: skip

        @instance
        def drive():
            yield clk.posedge
            if reset:  # in the middle of everything
                for _ in range(300):
                    clear.next, finish.next = rng.random() < 0.01, rng.random() < 0.01
                    s_axis.tvalid.next, s_axis.tdata.next, blocks.next, nodes.next = True, 77, 3, 2
                    yield clk.posedge
            clear.next, finish.next, s_axis.tvalid.next, rst.next = False, False, False, True
            yield clk.posedge
            rst.next = False
            taken.clear()
            for fresh, count, values in iterations:
                if fresh:
                    clear.next = True
                    yield clk.posedge
                    clear.next = False
                yield clk.posedge
                nodes.next, blocks.next = count, -(-values.size // GRANULE)
                for begin, end in pieces(rng, values.size):
                    for i in range(begin, end):
                        while pause():
                            s_axis.tvalid.next = False
                            yield clk.posedge
                        s_axis.tvalid.next = True
                        s_axis.tdata.next = int(values[i]) & 0xFFFF
                        s_axis.tlast.next = i == end - 1
                        seg_start.next = i if i == begin else rng.randrange(1 << len(seg_start))
                        yield clk.posedge
                        while not s_axis.tready:
                            yield clk.posedge
                s_axis.tvalid.next, finish.next = False, True
                yield clk.posedge
                finish.next = False
                while not done:
                    yield clk.posedge
                assert [last for _, last in taken] == [i == len(taken) - 1 for i in range(len(taken))]
                said.append(None if equal else [edge for edge, _ in taken])
                taken.clear()

        return dut, drive, sink(clk, rst, m_axis, taken, pause), clock(clk)

    simulate(top, clk, until=lambda: len(said) == len(iterations), limit=400_000)
    return said


def expected(iterations: list[tuple[bool, int, np.ndarray]]) -> list[list[int] | None]:
    """What the host says."""
    said, costs = [], np.zeros(0, np.int64)
    for clear, nodes, values in iterations:
        fresh = block_costs(values, GRANULE) << 8
        costs = fresh if clear else costs + ((fresh - costs) >> 1)
        said.append(edges(values.size, nodes, costs))
    return said


@pytest.mark.parametrize("kind", ["any", "layers", "zeros", "ties"])
def test_as_the_host_plans(kind: str) -> None:
    rng = numbers(len(kind))
    iterations = []
    for gradient in range(8):
        values = int(rng.integers(1, GRANULE << BLOCK_BITS)) if gradient else GRANULE << BLOCK_BITS
        nodes = int(rng.integers(1, 17))
        iterations += [(i == 0, nodes, gradients(rng, values, kind)) for i in range(3)]
    zero = np.zeros(100, np.int64)
    iterations += [(True, 4, zero), (False, 4, zero), (False, 4, gradients(rng, 100, kind))]
    assert run(iterations, seed=1) == expected(iterations)


def test_gaps_back_pressure_and_reset() -> None:
    rng = numbers(9)
    iterations = [(i == 0, 16, gradients(rng, 333, "layers")) for i in range(4)]
    assert run(iterations, seed=2, pause=randomly(0.4), reset=True) == expected(iterations)


def test_one_block_that_costs_all() -> None:
    values = np.zeros(GRANULE << BLOCK_BITS, np.int64)
    values[77], values[78] = -32768, 1
    iterations = [(True, nodes, values) for nodes in range(1, 17)]
    assert run(iterations, seed=3) == expected(iterations)
