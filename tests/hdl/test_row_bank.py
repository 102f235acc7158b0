"""row_bank: what is loaded is where units look for it, sums are exact, all ports at once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.coder.unit.ports import THREADS
from oscar_sim.seeds import dice
from support.bank_units import BLOCK, ROWS
from support.barrel_pair_bench import Carried, PairBench
from support.decoder_block import random_freq
from support.encoder_block import SentBlock
from support.row_bank_bench import BankBench

pytestmark = pytest.mark.usefixtures("seed")


def random_rows(rng: random.Random, count: int) -> FrameRows:
    """Return a frame, of whose rows some are 0."""
    r = np.random.default_rng(rng.getrandbits(32))
    values = r.integers(-300, 300, count) * np.repeat(r.random(-(-count // 32)) < 0.6, 32)[:count]
    return frame_rows(values, r.integers(0, 16, count))


def block_requests(rng: random.Random, *, live: list[int], down: bool) -> list[tuple[int, bool, bool]]:
    """Return what a unit asks of a block: its header, rows, and turns without a row in between."""
    rows = [(row, False, True) for row in (live[::-1] if down else live)]
    out = [(0, True, True)]
    for row in rows:
        out += [(rng.randrange(BLOCK), False, False)] * (rng.random() < 0.1) + [row]
        out += [(0, True, True)] * (rng.random() < 0.1)
    return out


def ready_bench(rng: random.Random) -> BankBench:
    """Return a bench whose memory is loaded."""
    bench = BankBench(rng)
    bench.reset()
    bench.busy = 1.0
    bench.give(0, random_rows(rng, ROWS * 32))
    bench.wait()
    return bench


def test_all_ports_at_once() -> None:
    rng = dice("bank")
    bench = ready_bench(rng)
    for _ in range(3):
        bench.busy = rng.choice((0.3, 0.8, 1.0))
        places = [BLOCK * n for n in range(ROWS // BLOCK)]
        rng.shuffle(places)
        still, added, loaded, cleared = places[:3], places[3:6], places[6], places[7]
        for thread in range(THREADS):
            first = rng.choice(still)
            live = np.flatnonzero(bench.rows.kinds[first : first + BLOCK] & 15).tolist()
            bench.begin("source", thread, first, block_requests(rng, live=live, down=False))
            rows = sorted(rng.sample(range(BLOCK), rng.randrange(1, BLOCK)))
            # Three threads or so have the same block: their adds to a row follow one another.
            bench.begin("position", thread, rng.choice(added), block_requests(rng, live=rows, down=True))
        bench.give(loaded, random_rows(rng, rng.randrange(1, 1025)))
        bench.clear(cleared, rng.randrange(1, BLOCK + 1))
        bench.reads.extend(first + row for first in still for row in range(BLOCK))
        bench.sim.run(rng.randrange(1, 200))
        for first in still:
            at, words = first + 8 * rng.randrange(3), rng.randrange(1, 3)
            assert bench.largest(at, words) == (bench.rows.kinds[at : at + 8 * words] >> 7).max()
        bench.wait()
        bench.check_read()
        bench.reads.extend(range(ROWS))
        bench.wait()
        bench.check_read()


def test_rows_that_are_cleared_read_as_zeros() -> None:
    rng = dice("bank clear")
    bench = ready_bench(rng)
    bench.clear(0, 2 * BLOCK)
    bench.wait()
    some, more = (sorted(rng.sample(range(BLOCK), 20)) for _ in range(2))
    bench.begin("position", 3, 0, block_requests(rng, live=some, down=True))
    bench.begin("position", 5, BLOCK, block_requests(rng, live=some, down=True))
    bench.wait()
    bench.begin("position", 3, 0, block_requests(rng, live=more, down=True))
    bench.begin("position", 4, 0, block_requests(rng, live=more, down=True))
    bench.reads.extend(range(BLOCK, ROWS))
    bench.wait()
    bench.reads.extend(range(ROWS))
    bench.wait()
    bench.check_read()


def test_a_row_under_way_waits_and_others_go_on() -> None:
    """A lone row is answered in the next turn; one whose sums are on their way twelve turns behind those."""
    rng = dice("bank order")
    bench = ready_bench(rng)
    row = rng.randrange(BLOCK)
    answers: list[tuple[int, int]] = []

    def run(name: str, todo: list[tuple[int, int]]) -> list[int]:
        """Return clocks of answers to requests: thread, row."""
        answers.clear()
        for thread, at in todo:
            bench.begin(name, thread, 0, [(at, False, True)])
        end = bench.sim.clocks + 60_000
        while any(a.todo or a.open for a in bench.units.askers[name]):
            assert bench.sim.clocks < end, "a request is not answered"
            bench.sim.run(1)
            port = getattr(bench, name)
            if port.given:
                answers.append((bench.sim.clocks, int(port.given_thread)))
        bench.wait()
        return [clock for clock, _ in sorted(answers)]

    same, other = run("position", [(0, row), (1, row)]), run("source", [(0, row), (1, row)])
    assert same[1] - same[0] == 48
    assert other[1] - other[0] < 48
    apart = run("position", [(thread, (row + thread) % BLOCK) for thread in range(THREADS)])
    assert apart[-1] - apart[0] <= 4 * 40


def test_a_reset_forgets_requests() -> None:
    rng = dice("bank reset")
    bench = ready_bench(rng)
    for _ in range(3):
        for thread in range(THREADS):
            requests = block_requests(rng, live=list(range(BLOCK)), down=True)
            bench.begin("position", thread, 0, requests)
            bench.begin("source", thread, BLOCK, requests)
        bench.sim.run(rng.randrange(1, 300))
        bench.reset()
        bench.busy = 1.0
        bench.give(0, random_rows(rng, 2 * BLOCK * 32))
        bench.wait()
    bench.begin("position", 0, 0, block_requests(rng, live=list(range(BLOCK)), down=True))
    bench.reads.extend(range(BLOCK, ROWS))
    bench.wait()
    bench.check_read()


def test_blocks_go_from_memory_to_bytes_and_back_into_sums() -> None:
    """Five blocks are encoded at once, then added to two others, three of them to the same rows at once."""
    rng = dice("bank pair")
    r = np.random.default_rng(rng.getrandbits(32))
    bench = PairBench(rng)
    bench.reset()
    bench.busy = 1.0
    table = random_freq(rng, 15)
    bench.tables(table)
    size = BLOCK * 32
    positions = np.clip(rng.randrange(12) + r.integers(-1, 4, size), 0, 15)
    values = np.rint(r.normal(0, rng.choice((1, 4, 30)), (7, size))).astype(np.int64)
    values *= np.repeat(r.random((7, size // 32)) < 0.6, 32, axis=1)
    values[:, 0] |= 1  # no block of zeros
    for n, block in enumerate(values):
        bench.give(BLOCK * n, frame_rows(block, positions))
    bench.until(lambda: not (bench.loads or bench.sides))
    carried = [Carried(BLOCK * n, size) for n in range(5)]
    bench.to_code += carried
    bench.until(lambda: all(c.done and c.data is not None for c in carried))
    for n, one in enumerate(carried):
        _, data = SentBlock(values[n].tolist(), positions.tolist(), table).expected()
        assert one.data == data
    targets = [BLOCK * (5 if n < 3 else 6) for n in range(5)]
    bench.to_add += zip(carried, targets, strict=True)
    bench.until(lambda: not (bench.to_add or bench.adding))
    assert not bench.bad
    for n, sums in ((5, values[[0, 1, 2, 5]].sum(axis=0)), (6, values[[3, 4, 6]].sum(axis=0))):
        for row in range(BLOCK):
            bench.rows.add(BLOCK * n + row, sums[32 * row : 32 * row + 32] & 0xFFFF)
    bench.reads.extend(range(BLOCK * 7))
    bench.until(lambda: not (bench.reads or bench.shown))
    bench.check_read()
