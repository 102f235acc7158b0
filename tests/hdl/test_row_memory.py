"""row_memory: rows are where units look for them, whoever loads, adds, clears and reads meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from needs import needs
from oscar_hdl.coder.rows import FrameRows, descriptors, frame_rows
from oscar_hdl.coder.unit.ports import THREADS
from oscar_sim.seeds import dice
from support.bank_units import BLOCK, ROWS
from support.bench import run_until
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
    rng = dice(f"memory {banks}")
    bench = ready_bench(rng, banks)
    width, space = rng.randrange(3, 17), 8 * banks - 1
    for _ in range(1 if banks > 2 else 2):
        bench.come = rng.choice((0.5, 0.9, 1.0))
        loads, clears = rng.randrange(1, banks + 2), rng.randrange(1, banks + 2)
        stills = rng.randrange(1, min(3 * banks, space - loads - clears - 1) + 1)
        sizes = [1, loads, clears, stills]
        sizes.append(8 * banks - sum(sizes) - rng.randrange(2))
        raw_out, load, clear, still, added = parts_of(rng, bench, [max(1, n) for n in sizes])
        ask_units(rng, bench, [*range(still, still + stills), raw_out], [*range(added, added + sizes[4])])
        packed = rng.randrange(1, 1025)
        bench.pack_raw(BLOCK * raw_out, packed, width)
        bench.load(BLOCK * load, random_rows(rng, some_values(rng, loads)))
        for counts in (True, False):
            count = some_values(rng, stills)
            bench.counts.next = counts
            bench.sim.run(1)
            bench.unload(BLOCK * still, count)
            kinds = bench.held(BLOCK * still, -(-count // 32))[1]
            assert bench.largest(BLOCK * still, count) >= (kinds >> 7).max()
        run_until(bench.sim, lambda: bench.commands["side"].idle)
        bench.clear(BLOCK * clear, some_values(rng, clears))
        bench.wait()
        bench.check_packed(BLOCK * raw_out, packed, width)
        bench.unload(0, bench.blocks * 1024)


@BANKS
def test_a_loader_and_decoders_add_to_the_same_rows(banks: int) -> None:
    """No add is lost, descriptors are those of the sums, and what was cleared counts as 0."""
    rng = dice(f"memory adds {banks}")
    bench = ready_bench(rng, banks)
    for _ in range(2):
        blocks = rng.randrange(1, 2 * banks + 1)
        first = rng.randrange(bench.blocks - blocks)
        for unit in bench.units:
            unit.shared = set(range(ROWS))
            unit.busy = rng.choice((0.3, 0.8, 1.0))
        rows = random_rows(rng, some_values(rng, blocks))
        bench.come = 1.0
        if rng.random() < 0.5:
            bench.clear(BLOCK * first, rows.count)
        else:  # rows of zeros with the distances and means of what is to come
            bench.load(
                BLOCK * first,
                replace(rows, values=0 * rows.values, classes=0 * rows.classes, sizes=0 * rows.sizes),
            )
        bench.wait()
        bench.come = rng.choice((0.5, 0.9, 1.0))
        added = list(range(first, first + blocks))
        ask_units(rng, bench, [bench.blocks - 1], added)
        if rng.random() < 0.5:
            bench.start("unload", 0, 999)
        bench.sim.run(rng.randrange(1, 300))
        for _ in range(2):  # the next packet is given as soon as the one before has ended
            bench.add(BLOCK * first, rows)
            run_until(bench.sim, lambda: bench.commands["values"].idle)
        bench.wait()
        bench.unload(0, bench.blocks * 1024)
        kinds = bench.held(BLOCK * first, BLOCK * blocks)[1]
        assert bench.largest(BLOCK * first, 1024 * blocks) == (kinds >> 7).max()


@BANKS
def test_only_the_rows_that_are_asked_for_are_cleared(banks: int) -> None:
    rng = dice(f"memory clear {banks}")
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
    rng = dice(f"memory top {banks}")
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
        run_until(bench.sim, lambda: not bench.queues[bench.in_side])
        bench.sim.run(rng.choice((1, 2, 3, 40)))
        assert bench.largest(first, count) == rows.tops.max()
        bench.wait()
        assert bench.largest(first, count) == rows.tops.max()


def test_a_row_takes_four_clocks() -> None:
    """Each way, of each bank; eight rows of each bank are cleared in as many."""
    rng = dice("memory clocks")
    bench = ready_bench(rng, 2)
    took = []
    for blocks in (2, 4):
        rows, clocks = random_rows(rng, blocks * 1024), []
        ask_units(rng, bench, [6, 7], [8, 9])
        for move in (
            partial(bench.load, 0, rows), partial(bench.start, "unload", 0, rows.count),
            partial(bench.clear, 0, rows.count), partial(bench.add, 0, rows),
        ):  # fmt: skip
            bench.sim.run(-bench.sim.clocks % 4)
            began = bench.sim.clocks
            move()
            run_until(bench.sim, lambda: all(command.idle for command in bench.commands.values()))
            clocks.append(bench.sim.clocks - began)
        bench.wait()
        took.append(clocks)
    assert [long - short for short, long in zip(*took, strict=True)] == [4 * 32, 4 * 32, 16, 4 * 32]


@pytest.mark.parametrize("count", [1024, 231])
def test_a_raw_block_is_packed_at_its_pace(count: int) -> None:
    """It takes 1.3 clocks a value, while all others are at work."""
    rng = dice("memory raw")
    bench = ready_bench(rng, 2)
    began = bench.sim.clocks
    bench.pack_raw(BLOCK, count, 16)
    ask_units(rng, bench, [2, 3], [4, 5])
    bench.load(BLOCK * 8, random_rows(rng, 8 * 1024))
    run_until(bench.sim, lambda: bench.encode.idle)
    assert bench.sim.clocks - began < 150 + 1.3 * count
    bench.wait()
    bench.check_packed(BLOCK, count, 16)
    bench.unload(0, bench.blocks * 1024)


def test_a_reset_forgets_all_but_rows() -> None:
    rng = dice("memory reset")
    bench = ready_bench(rng, 2)
    for _ in range(3):
        ask_units(rng, bench, [0, 1], [2, 3])
        bench.pack_raw(5 * BLOCK, 1000, 16)
        bench.load(6 * BLOCK, random_rows(rng, 1500))
        bench.start("unload", 0, 2000)
        bench.sim.run(rng.randrange(1, 3000))
        bench.reset()
        bench.load(0, random_rows(rng, bench.blocks * 1024))
        bench.wait()
    bench.unload(0, bench.blocks * 1024)


def test_a_packet_of_one_row_is_read_in_any_phase() -> None:
    """The row is asked for in the first clock in which it may be, or later."""
    bench = ready_bench(dice("memory one row"), 1)
    rows = random_rows(dice("memory one row's values"), 14)
    bench.load(0, rows)
    bench.wait()
    for phase in range(4):
        run_until(bench.sim, lambda phase=phase: bench.phase % 4 == phase, limit=4)
        bench.unload(0, 14)


def test_a_packet_that_adds_describes_no_row_of_the_one_before_it() -> None:
    """Rows that were replaced keep the descriptors of their side rows, also if a packet that adds is next."""
    bench = ready_bench(dice("memory replaces, then adds"), 2)
    held, new = frame_rows(np.zeros(2048)), frame_rows(np.full(2048, 200))
    for _ in range(3):
        bench.load(0, held)
        bench.wait()
        bench.queues[bench.in_values].extend(bench.lines.value_words(0, new))
        bench.start("values", 0, 2048, adds=False)
        run_until(bench.sim, lambda: bench.commands["values"].idle)
        bench.add(2 * BLOCK, new)
        bench.wait()
        assert not np.any(bench.read(0, 2048)[1])


@pytest.mark.parametrize("adds", [True, False])
def test_a_reset_describes_no_row_whose_sums_were_not_written(adds: bool) -> None:
    """A loader is under way; `adds` of its command may be high in a reset, whatever the packet was."""
    rng, bench = dice(f"memory reset of a loader {adds}"), MemoryBench(dice("memory rows"), 2)
    bench.reset()
    held, new = frame_rows(np.ones(2048)), frame_rows(np.full(2048, 200))
    for clocks in (60, 61, 62, 63, rng.randrange(60, 130)):
        bench.load(0, held)
        bench.wait()
        bench.queues[bench.in_values].extend(bench.lines.value_words(0, new))
        bench.start("values", 0, 2048, adds=adds)
        bench.sim.run(clocks)
        bench.commands["values"].adds.next = True
        bench.reset()
        values, kinds = bench.read(0, 2048)
        rows, changed = np.reshape(values, (64, 32)), np.array(kinds) != kinds[-1]
        assert kinds[-1] == descriptors(held.values)[-1]
        assert (rows[-1] == 1).all()
        assert (rows == 200 + adds).any()
        assert (rows[changed] == 201).all()
        assert changed.any() == adds


def test_verilog_does_the_same_in_every_clock(tmp_path: Path) -> None:
    needs("iverilog")
    rng, trace = dice("memory verilog"), Trace()
    bench = MemoryBench(rng, 2, trace)
    bench.reset()
    warm = len(trace)  # combinational processes do not run before one of their inputs changes
    bench.load(0, random_rows(rng, 8 * 1024))
    bench.wait()
    ask_units(rng, bench, [0, 1], [2, 3])
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
        "oscar_hdl.flow.placement.parts:row_memory", (inputs, [("outputs", gives)]), trace, tmp_path, warm,
        units=2, **bench.parameters,
    )  # fmt: skip
