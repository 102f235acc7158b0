"""Neighbour states and contexts, against docs/format2.md in plain integers."""

from __future__ import annotations

import pytest
from myhdl import block, instance

from oscar_hdl.asc_context import asc_context
from oscar_hdl.format2.params import CONTEXT_MAP, LANES, NEIGHBOUR_SHIFT, WEIGHT
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.bench import clock, simulate
from oscar_sim.seeds import dice

SEEN = 4  # clocks after which an update counts
LATENCY = 2  # of a query

Op = tuple[int, int, int, bool]  # lane, class, symbol, and whether the neighbour state is 0 before


def contexts(ops: list[Op]) -> list[int]:
    """Context of each value."""
    states, out = [0] * LANES, []
    for lane, position, s, zero in ops:
        if zero:
            states[lane] = 0
        out.append(CONTEXT_MAP[position << 4 | states[lane].bit_length()])
        states[lane] += (WEIGHT[s] - states[lane]) >> NEIGHBOUR_SHIFT
    return out


def run(ops: list[Op], delay: int, idle: float) -> list[int]:
    """What the block says when each symbol is known `delay` clocks after its query."""
    clk, u_valid, u_zero, q_zero = bit(), bit(), bit(), bit()
    u_lane, u_sym, q_lane, q_class, q_ctx = (word(4) for _ in range(5))
    rng = dice(3)
    said: list[int] = []

    @block
    def top():
        dut = asc_context(clk, u_valid, u_lane, u_sym, u_zero, q_lane, q_class, q_zero, q_ctx)

        @instance
        def drive():
            updates: dict[int, Op] = {}
            queries: set[int] = set()
            todo, at = list(reversed(ops)), 0
            while len(said) < len(ops):
                u_valid.next, u_lane.next, u_sym.next = False, rng.randrange(16), rng.randrange(16)
                q_lane.next, q_class.next, q_zero.next = rng.randrange(16), rng.randrange(16), False
                if todo and rng.random() >= idle:
                    op = todo.pop()
                    q_lane.next, q_class.next, q_zero.next = op[0], op[1], op[3]
                    updates[at + delay] = op
                    queries.add(at + LATENCY)
                if at in updates:
                    lane, _, s, zero = updates.pop(at)
                    u_valid.next, u_lane.next, u_sym.next, u_zero.next = True, lane, s, zero
                yield clk.posedge
                if at in queries:
                    said.append(int(q_ctx))
                at += 1

        return dut, drive, clock(clk)

    simulate(top, clk, until=lambda: len(said) == len(ops), limit=20 * len(ops) + 100)
    return said


def walk(seed: int, size: int) -> list[Op]:
    """Symbols that wander through all levels, classes that follow; some lanes start again now and then."""
    rng = dice(seed)
    level, ops = 0.0, []
    for i in range(size):
        level = min(15.0, max(0.0, level + rng.uniform(-0.2, 0.2)))
        s = min(15, max(0, round(level + rng.gauss(0, 1))))
        zero = i < LANES or i // LANES % 40 == 7
        ops.append((i % LANES, rng.choice([0, 3, 4, 15, s, rng.randrange(16)]), s, zero))
    return ops


@pytest.mark.parametrize(("delay", "idle"), [(0, 0.0), (0, 0.5), (LANES - SEEN, 0.0), (LANES - SEEN, 0.3)])
def test_follows_the_contract(delay: int, idle: float) -> None:
    ops = walk(delay, 2400)
    assert run(ops, delay, idle) == contexts(ops)


def test_ends_of_the_state() -> None:
    # Up to where it settles, down to 0, one symbol at a time; every class at both ends.
    ops = [(i % LANES, i // LANES % 16, 15 if i < 60 * LANES else 0, i < LANES) for i in range(140 * LANES)]
    assert run(ops, 0, 0.0) == contexts(ops)
