"""barrel_memory: rows are where units look for them, whoever loads, adds, clears and reads meanwhile."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from needs import needs
from oscar_hdl.coder.barrel.ports import THREADS
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_sim.seeds import dice
from support.bank_units import BLOCK
from support.converted import compare_verilog
from support.memory_bench import MemoryBench, Trace

pytestmark = pytest.mark.usefixtures("seed")

BANKS = pytest.mark.parametrize("banks", [1, 2, 4])


def random_rows(rng: random.Random, count: int) -> FrameRows:
    """Return a frame, of whose rows some are 0."""
    r = np.random.default_rng(rng.getrandbits(32))
    values = r.integers(-300, 300, count) * np.repeat(r.random(-(-count // 32)) < 0.6, 32)[:count]
    return frame_rows(values, r.integers(0, 16, count))


def ready_bench(rng: random.Random, banks: int) -> MemoryBench:
    """Return a bench whose memory is loaded."""
    bench = MemoryBench(rng, banks)
    bench.reset()
    bench.load(0, random_rows(rng, bench.blocks * 1024))
    bench.wait()
    return bench


def parts_of(rng: random.Random, bench: MemoryBench, sizes: list[int]) -> list[int]:
    """Return first blocks of parts of memory of so many blocks, in any order and side by side."""
    order = list(range(len(sizes)))
    rng.shuffle(order)
    at, firsts = rng.randrange(bench.blocks - sum(sizes) + 1), [0] * len(sizes)
    for part in order:
        firsts[part] = at
        at += sizes[part]
    return firsts


def some_values(rng: random.Random, blocks: int) -> int:
    """Return a number of values that takes so many blocks."""
    return blocks * 1024 - rng.choice((0, rng.randrange(1024)))


def ask_units(rng: random.Random, bench: MemoryBench, still: list[int], added: list[int]) -> None:
    """Have all threads encode blocks of `still` and add to those of `added` that are in their bank."""
    for number, unit in enumerate(bench.units):
        for thread in range(THREADS):
            sources = [block // bench.banks * BLOCK for block in still if block % bench.banks == number]
            targets = [block // bench.banks * BLOCK for block in added if block % bench.banks == number]
            if sources:
                first = rng.choice(sources)
                live = np.flatnonzero(unit.rows.kinds[first : first + BLOCK] & 15).tolist()
                unit.begin("source", thread, first, [(0, True, True), *((row, False, True) for row in live)])
            if targets:
                rows = sorted(rng.sample(range(BLOCK), rng.randrange(1, BLOCK)), reverse=True)
                todo = [(0, True, True), *((row, False, True) for row in rows)]
                unit.begin("position", thread, rng.choice(targets), todo)


@BANKS
def test_all_at_once(banks: int) -> None:
    rng = dice(f"barrel memory {banks}")
    bench = ready_bench(rng, banks)
    width, space = rng.randrange(3, 17), 8 * banks - 2
    for _ in range(1 if banks > 2 else 2):
        bench.come = rng.choice((0.5, 0.9, 1.0))
        loads, clears = rng.randrange(1, banks + 2), rng.randrange(1, banks + 2)
        stills = rng.randrange(1, min(3 * banks, space - loads - clears - 1) + 1)
        sizes = [1, 1, loads, clears, stills]
        sizes.append(8 * banks - sum(sizes) - rng.randrange(2))
        raw_in, raw_out, load, clear, still, added = parts_of(rng, bench, [max(1, n) for n in sizes])
        ask_units(rng, bench, [*range(still, still + stills), raw_out], [*range(added, added + sizes[5])])
        new = random_rows(rng, some_values(rng, 1)).values.reshape(-1)
        new = new[: rng.randrange(1, 1025)] >> max(0, 10 - width)
        bench.add_raw(BLOCK * raw_in, new, width)
        packed = rng.randrange(1, 1025)
        bench.pack_raw(BLOCK * raw_out, packed, width)
        bench.load(BLOCK * load, random_rows(rng, some_values(rng, loads)))
        for _ in range(2):
            count = some_values(rng, stills)
            bench.unload(BLOCK * still, count)
            kinds = bench.held(BLOCK * still, -(-count // 32))[1]
            assert bench.largest(BLOCK * still, count) >= (kinds >> 7).max()
        while not bench.commands["side"].idle:
            bench.sim.run(1)
        bench.clear(BLOCK * clear, some_values(rng, clears))
        bench.wait()
        bench.check_packed(BLOCK * raw_out, packed, width)
        bench.unload(0, bench.blocks * 1024)


@BANKS
def test_only_the_rows_that_are_asked_for_are_cleared(banks: int) -> None:
    rng = dice(f"barrel memory clear {banks}")
    bench = ready_bench(rng, banks)
    for blocks in (1, 1, 2, rng.randrange(2, 6), rng.randrange(2, 8)):
        first = rng.randrange(bench.blocks - blocks + 1) * BLOCK
        count = blocks * 1024 - rng.choice((0, 0, rng.randrange(1024), 1024 - rng.randrange(1, 300)))
        bench.clear(first, count)
        bench.wait()
        bench.unload(0, bench.blocks * 1024)
        bench.load(first, random_rows(rng, blocks * 1024))
        bench.wait()


@BANKS
def test_the_largest_symbol_is_that_of_the_frame_alone(banks: int) -> None:
    """Asked for as soon as the frame's rows are taken: those behind them still have symbols from before."""
    rng = dice(f"barrel memory top {banks}")
    bench = MemoryBench(rng, banks)
    bench.reset()
    bench.load(0, frame_rows(np.full(bench.blocks * 1024, 200)))
    bench.wait()
    bench.come = 0.8
    for blocks in (1, 1, rng.randrange(2, 8), rng.randrange(1, 8)):
        first = rng.randrange(bench.blocks - blocks + 1) * BLOCK
        count = (blocks - 1) * 1024 + rng.randrange(1, 1025)
        values = np.zeros(count, np.int64)
        values[rng.randrange(count)] = rng.choice((-1, 1)) * rng.randrange(200)
        rows = frame_rows(values)
        bench.load(first, rows)
        while bench.queues[bench.in_side]:
            bench.sim.run(1)
        bench.sim.run(rng.choice((1, 2, 3, 40)))
        assert bench.largest(first, count) == rows.tops.max()
        bench.wait()
        assert bench.largest(first, count) == rows.tops.max()


def test_a_row_takes_four_clocks() -> None:
    """Each way; eight rows of each bank are cleared in as many."""
    rng = dice("barrel memory clocks")
    bench = ready_bench(rng, 2)
    took = []
    for blocks in (2, 4):
        rows, clocks = random_rows(rng, blocks * 1024), []
        ask_units(rng, bench, [6, 7], [8, 9])
        for move in (
            partial(bench.load, 0, rows), partial(bench.start, "unload", 0, rows.count),
            partial(bench.clear, 0, rows.count),
        ):  # fmt: skip
            bench.sim.run(-bench.sim.clocks % 4)
            began = bench.sim.clocks
            move()
            while not all(command.idle for command in bench.commands.values()):
                bench.sim.run(1)
            clocks.append(bench.sim.clocks - began)
        bench.wait()
        took.append(clocks)
    assert [long - short for short, long in zip(*took, strict=True)] == [4 * 64, 4 * 64, 16]


@pytest.mark.parametrize("count", [1024, 231])
def test_raw_units_keep_their_pace(count: int) -> None:
    """A raw block takes two clocks a value to add, and 1.3 to pack, while all others are at work."""
    rng = dice("barrel memory raw")
    bench = ready_bench(rng, 2)
    values = np.random.default_rng(rng.getrandbits(32)).integers(1, 100, count)
    began = bench.sim.clocks
    ended: dict[str, int] = {}
    bench.add_raw(0, values, 8)
    bench.pack_raw(BLOCK, count, 16)
    ask_units(rng, bench, [2, 3], [4, 5])
    bench.load(BLOCK * 8, random_rows(rng, 8 * 1024))
    while len(ended) < 2:
        bench.sim.run(1)
        for name in ("decode", "encode"):
            if getattr(bench, name).idle:
                ended.setdefault(name, bench.sim.clocks - began)
    assert ended["decode"] < 280 + 2 * count
    assert ended["encode"] < 300 + 1.3 * count  # while a header is read, it waits
    bench.wait()
    bench.check_packed(BLOCK, count, 16)
    bench.unload(0, bench.blocks * 1024)


def test_a_reset_forgets_all_but_rows() -> None:
    rng = dice("barrel memory reset")
    bench = ready_bench(rng, 2)
    for _ in range(3):
        ask_units(rng, bench, [0, 1], [2, 3])
        bench.add_raw(4 * BLOCK, np.arange(1024) % 9, 5)
        bench.pack_raw(5 * BLOCK, 1000, 16)
        bench.load(6 * BLOCK, random_rows(rng, 1500))
        bench.start("unload", 0, 2000)
        bench.sim.run(rng.randrange(1, 3000))
        bench.reset()
        bench.load(0, random_rows(rng, bench.blocks * 1024))
        bench.wait()
    bench.add_raw(0, np.arange(900) % 11, 5)
    bench.wait()
    bench.unload(0, bench.blocks * 1024)


def test_verilog_does_the_same_in_every_clock(tmp_path: Path) -> None:
    needs("iverilog")
    rng, trace = dice("barrel memory verilog"), Trace()
    bench = MemoryBench(rng, 2, trace)
    bench.reset()
    warm = len(trace)  # combinational processes do not run before one of their inputs changes
    bench.load(0, random_rows(rng, 8 * 1024))
    bench.wait()
    ask_units(rng, bench, [0, 1], [2, 3])
    bench.add_raw(4 * BLOCK, np.arange(300) % 9, 5)
    bench.pack_raw(5 * BLOCK, 200, 16)
    bench.come = 0.8
    bench.load(6 * BLOCK, random_rows(rng, 1500))
    bench.unload(0, 2000)
    bench.largest(0, 3000)
    bench.clear(5 * BLOCK, 1333)
    bench.wait()
    takes, gives = (range(sum(len(one) or 1 for one in side)) for side in (bench.takes, bench.gives))
    inputs = [("rst", bench.rst), ("inputs", takes)]
    compare_verilog(
        "oscar_hdl.flow.placement.parts:barrel_memory", (inputs, [("outputs", gives)]), trace, tmp_path, warm,
        units=2, **bench.parameters,
    )  # fmt: skip
