"""link_tables: every frequency, histogram entry and checksum is the reference's, whatever the tables hold."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest

from oscar.coding.asc import AscParams
from oscar.coding.asc.model import frequencies, learn
from oscar.coding.asc.params import SAMPLE
from oscar.coding.asc.state import TableState
from oscar_hdl.coder.ports import BANKS, COUNT_BITS, CountChain, TablesPort, TableWrites
from oscar_hdl.coder.tables.link_tables import EARLY, link_tables
from oscar_hdl.coder.tables.row_ratio import PLACES, RECIPROCALS
from oscar_hdl.streams.bundles import bit
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

PARAMS = AscParams()
ROWS, SYMBOLS = range(32), range(16)
LAG = 5  # clocks from a pair's address to its totals
BUILD, LEARN = 164, 282  # clocks; learning has the way through the chain, too
Hist = list[list[int]]


def find(top: Any, name: str) -> Any:
    """Return the instance of a block inside another."""
    return next(b for b in top.subs if getattr(b, "func", None) is not None and b.func.__name__ == name)


class Bench:
    """link_tables with a chain of counts in Python."""

    def __init__(self, rng: random.Random, *, encoding: bool, sets: int = 4, chain: int = 3) -> None:
        self.rng, self.encoding = rng, encoding
        self.clk, self.rst, self.port = bit(), bit(), TablesPort()
        self.request, self.answer = CountChain(), CountChain()
        self.tables = TableWrites()
        top = link_tables(
            self.clk, self.rst, self.port, self.tables, self.request, self.answer, encoding=encoding,
            sets=sets,
        )  # fmt: skip
        store = find(top, "set_store").symdict
        self.memory, self.checksums = store["memory"], store["checksums"]
        self.counts = [[0] * 512 for _ in range(BANKS)]
        self.way: deque[tuple[int, int, int]] = deque([(0, 0, 0)] * chain)
        self.totals: deque[int] = deque([0] * LAG)
        self.writes: dict[int, int] = {}
        self.under_way: dict[str, int] = {}
        self.clocks: dict[str, int] = {}
        self.steps: deque[Any] = deque()
        self.top, self.simulator = top, CycleSimulator(top, self.clk, self.each)

    def each(self) -> None:
        """Do what the neighbours do in a clock."""
        request, answer = self.request, self.answer
        address = int(request.address)
        self.way.append((int(request.valid), address, int(request.bank)))
        valid, address, bank = self.way.popleft()
        answer.valid.next, answer.address.next, answer.bank.next = bool(valid), address, bank
        pair = slice(2 * address, 2 * address + 2)
        noise = self.rng.getrandbits(2 * COUNT_BITS)
        self.totals.append(packed(self.counts[bank][pair], COUNT_BITS) if valid else noise)
        if valid:
            self.counts[bank][pair] = [0] * 2
        answer.totals.next = self.totals.popleft()
        if self.tables.enable:
            assert int(self.tables.address) not in self.writes
            self.writes[int(self.tables.address)] = int(self.tables.data)
        for name, done in (("build", "built"), ("learn", "learnt")):
            if getattr(self.port, done) and not getattr(self.port, name):  # with it, of the one before
                self.clocks[name] = self.simulator.clocks - self.under_way.pop(name)
        if self.steps:
            self.steps.popleft()()

    def strobe(self, name: str, **fields: int) -> None:
        """Give a command."""
        assert name not in self.under_way
        self.under_way[name] = self.simulator.clocks + 2
        for field, value in fields.items():
            getattr(self.port, field).next = value
        signal = getattr(self.port, name)
        self.steps += [lambda: setattr(signal, "next", True), lambda: setattr(signal, "next", False)]
        self.simulator.run(2)

    def wait(self, name: str, limit: int = 4000) -> int:
        """Return the clocks of a command when it is done."""
        end = self.simulator.clocks + limit
        while name in self.under_way:
            self.simulator.run(1)
            assert self.simulator.clocks < end
        return self.clocks[name]

    def do(self, name: str, **fields: int) -> int:
        """Give a command and wait for it."""
        self.strobe(name, **fields)
        return self.wait(name)

    def reset(self) -> None:
        """Reset for a clock, the chain too."""
        self.way = deque([(0, 0, 0)] * len(self.way))
        self.steps += [lambda: setattr(self.rst, "next", True), lambda: setattr(self.rst, "next", False)]
        self.simulator.run(2)

    def put(self, number: int, hist: Hist) -> None:
        """Write a histogram and its checksum."""

        def write() -> None:
            self.checksums[number].next = checksum(hist)
            for at in range(128):
                quad = hist[at >> 2][4 * (at & 3) : 4 * (at & 3) + 4]
                self.memory[number << 7 | at].next = packed(quad, 16)

        self.steps.append(write)
        self.simulator.run(1)

    def get(self, number: int) -> Hist:
        """Return a histogram."""
        return [
            [int(self.memory[number << 7 | q << 2 | s >> 2]) >> 16 * (s & 3) & 0xFFFF for s in SYMBOLS]
            for q in ROWS
        ]

    def query(self, number: int, fresh: bool = False) -> int:
        """Return the checksum of a set."""
        self.port.query.next, self.port.query_fresh.next = number, fresh
        self.simulator.run(3)
        return int(self.port.checksum)

    def rows(self, bank: int) -> Hist:
        """Return the frequencies that were written, after a check of everything else in the tables."""
        for field in ("bank", "load", "last", "fresh"):  # the last quads come behind `built` all the same
            getattr(self.port, field).next = self.rng.randrange(2)
        end = self.simulator.clocks + EARLY[self.encoding]
        while len(self.writes) < 128 and self.simulator.clocks < end:
            self.simulator.run(1)
        return [self.table_row(bank, q) for q in ROWS]

    def table_row(self, bank: int, q: int) -> list[int]:
        c = []
        for n in range(4):
            word = self.writes.pop(bank << 7 | q << 2 | n)
            c += [word >> 10 * i & 1023 for i in range(4)]
            behind = word >> 40
            assert n == 3 or behind == self.writes[bank << 7 | q << 2 | n + 1] & 1023
        assert (c[0], behind) == (0, 0)
        return [b - a for a, b in zip(c, [*c[1:], 1024], strict=True)]


def packed(numbers: list[int], bits: int) -> int:
    """Return numbers as one, the first lowest."""
    return sum(n << bits * i for i, n in enumerate(numbers))


def row(rng: random.Random, most: int = 65_535) -> list[int]:
    """Return a row of a histogram, often an extreme one; its sum is `most` at most."""
    kind = rng.randrange(7)
    if kind == 0:
        return [0] * 16
    if kind == 1:
        return rng.sample([most, *[0] * 15], 16)
    if kind == 2:
        return [rng.choice((0, 1, 1, 2)) for _ in SYMBOLS]
    if kind == 3:
        return [most // 16] * 16
    share = rng.choice((70, 200, 5000, most))
    weights = [rng.expovariate(1) ** rng.choice((1, 4)) for _ in SYMBOLS]
    entries = [int(share * w / sum(weights)) for w in weights]
    if kind == 4:
        entries[rng.randrange(16)] = entries[rng.randrange(16)] = (
            max(entries) if sum(entries) * 3 < most else 0
        )
    return entries


def histogram(rng: random.Random) -> Hist:
    return [row(rng) for _ in ROWS]


def checksum(hist: Hist) -> int:
    return TableState(np.array(hist, np.int64)).checksum(PARAMS)


def test_reciprocals_give_every_ratio_of_a_small_row():
    """All sums below 2^10 with all numbers of impossible symbols; a larger sum leaves 16 bits to divide."""
    for divisor, factor in list(enumerate(RECIPROCALS))[2:]:
        assert factor < 1 << PLACES
        for numerator in range(1024 - 16, 1024):
            assert numerator * factor >> PLACES - 16 == (numerator << 16) // divisor


def test_a_build_is_cut_short_where_another_of_its_bank_is_asked_for():
    """The second one ends as if there were no first, also if it is asked for in the clock of its end."""
    rng = dice("anew")
    bench = Bench(rng, encoding=True)
    bench.simulator.run(1300)  # counts of all banks are taken first
    whole = BUILD - EARLY[True]
    some = [rng.randrange(whole) for _ in range(5)]
    for frame, later in enumerate((whole - 3, whole - 2, whole - 1, *some)):
        hist, bank, last = histogram(rng), frame % BANKS, rng.randrange(16)
        bench.put(1, hist)
        bench.strobe("build", load=1, fresh=False, last=rng.randrange(16), bank=bank)
        bench.simulator.run(later)
        bench.under_way.pop("build", None)
        bench.strobe("build", load=1, fresh=False, last=last, bank=bank)
        bench.under_way["build"] = bench.simulator.clocks  # the first one's end may have come meanwhile
        bench.writes.clear()
        assert bench.wait("build") <= whole
        assert bench.rows(bank) == [frequencies(hist[q], q, last) for q in ROWS], frame
        assert not bench.writes


def test_a_build_that_waits_cuts_nothing_short():
    """The one before, of another bank, is written to its end, also if one that waits is asked for twice."""
    rng = dice("waits")
    bench = Bench(rng, encoding=True)
    bench.simulator.run(1300)
    whole = BUILD - EARLY[True]
    for frame, later in enumerate((0, EARLY[True] - 8, rng.randrange(EARLY[True] - 8))):
        hist, bank, last = histogram(rng), 2 * frame % BANKS, rng.randrange(16)
        bench.put(1, hist)
        bench.strobe("build", load=1, fresh=False, last=last, bank=bank)
        assert bench.wait("build") <= whole
        for other in (rng.randrange(16), last):
            bench.strobe("build", load=1, fresh=False, last=other, bank=bank + 1)
            bench.under_way.pop("build")
            bench.simulator.run(later if other != last else 0)
        bench.under_way["build"] = bench.simulator.clocks
        bench.wait("build")
        for each in (bank, bank + 1):
            assert bench.rows(each) == [frequencies(hist[q], q, last) for q in ROWS], (frame, each)


def learnt(hist: list[int], counts: list[int]) -> list[int]:
    """Return a histogram row after a frame; each symbol that was counted stands for SAMPLE."""
    return learn(hist, [SAMPLE * n for n in counts])


def counted(rng: random.Random) -> Hist:
    """Return counts, some rows with the most there can be."""
    counts = [row(rng, rng.choice((1 << 16, (1 << 13) - 1, 1 << 13, (1 << 15) - 1))) for _ in ROWS]
    return [[0] * 16 if rng.random() < 0.3 else entries for entries in counts]


@pytest.mark.parametrize("encoding", [False, True])
def test_frames_overlap(encoding: bool):
    """The next frame's tables are built before, while or after a frame is learnt, as its sets allow."""
    rng = dice("frames")
    bench = Bench(rng, encoding=encoding, chain=rng.randrange(1, 20))
    prior = TableState.initial().hist.tolist()
    assert bench.query(0, True) == checksum(prior)
    states: dict[int, Hist] = {number: histogram(rng) for number in rng.sample(range(4), 2)}
    for number, hist in states.items():
        bench.put(number, hist)
    before: dict[str, Any] = {}  # the frame that is built, and not learnt
    both = 0
    for frame in range(200):
        if frame >= 9 and both:
            break
        bank, last, load = frame % BANKS, rng.randrange(16), rng.choice([*states, *states, 0])
        fresh = load not in states or rng.random() < 0.2
        save, saved = rng.choice((load, rng.randrange(4))), before.get("save")
        if before:
            if ahead := rng.random() < 0.3 and (fresh or load != saved):
                bench.query(load, fresh)
                assert bench.port.steady
                bench.strobe("build", load=load, save=save, fresh=fresh, last=last, bank=bank)
                bench.simulator.run(rng.randrange(200))
            bench.strobe("learn", count_bank=(bank - 1) % BANKS, forget=before["forget"])
            if not before["forget"]:
                states[saved] = [learnt(h, c) for h, c in zip(before["hist"], before["counts"], strict=True)]
        else:
            ahead = False
        if not ahead:
            bench.simulator.run(rng.choice((1, rng.randrange(200))))
            bench.query(load, fresh)  # the learning may end meanwhile
            assert fresh or load != saved or "learn" not in bench.under_way or not bench.port.steady
            end = bench.simulator.clocks + 1000
            while not bench.port.steady:
                assert load == saved
                assert bench.simulator.clocks < end
                bench.simulator.run(1)
            assert bench.query(load, fresh) == checksum(prior if fresh else states[load])
            both += "learn" in bench.under_way
            bench.strobe("build", load=load, save=save, fresh=fresh, last=last, bank=bank)
        for name, most in (("build", BUILD), ("learn", LEARN + len(bench.way))):
            assert frame < 1 or name not in bench.under_way or bench.wait(name) <= most
        bench.wait("build")
        hist = prior if fresh else states[load]
        assert bench.rows(bank) == [frequencies(hist[q], q, last) for q in ROWS]
        assert not bench.writes
        for number, kept in states.items():
            assert bench.get(number) == kept
            assert number == save or bench.query(number) == checksum(kept)
        assert not before or not any(bench.counts[(bank - 1) % BANKS])
        before = {"save": save, "hist": hist, "counts": counted(rng), "forget": rng.random() < 0.2}
        bench.counts[bank] = [n for entries in before["counts"] for n in entries]
    assert both


def test_a_bank_is_built_behind_its_learning():
    """Learning reads what the bank was built from; a build that is asked for meanwhile waits for that."""
    rng = dice("behind")
    bench = Bench(rng, encoding=True, chain=rng.randrange(1, 20))
    hist, other = histogram(rng), histogram(rng)
    bench.put(1, hist)
    bench.put(2, other)
    bench.do("build", load=1, save=0, fresh=0, last=15, bank=0)
    for frame in range(8):
        bench.rows(0)
        counts = counted(rng)
        bench.counts[0] = [n for entries in counts for n in entries]
        bench.strobe("learn", count_bank=0)
        bench.simulator.run(rng.choice((frame, rng.randrange(350))))
        bench.strobe("build", load=2 - frame % 2, save=0, fresh=0, last=15, bank=0)
        bench.wait("build")
        bench.wait("learn")
        assert bench.get(0) == [learnt(h, c) for h, c in zip((hist, other)[frame % 2], counts, strict=True)]


def test_reset_at_any_clock():
    rng = dice("reset")
    bench = Bench(rng, encoding=False)
    for _ in range(4):
        hist, counts = histogram(rng), counted(rng)
        bench.counts = [[n for entries in counts for n in entries] for _ in range(BANKS)]
        for name in rng.choice((["build"], ["learn"], ["build", "learn"])):
            bench.strobe(name, bank=0, count_bank=1)
        bench.simulator.run(rng.choice((rng.randrange(600), rng.randrange(600, 1000))))
        bench.reset()
        bench.under_way.clear()
        bench.put(2, hist)
        bench.simulator.run(rng.choice((0, 1, 20, 400)))
        bench.writes.clear()
        assert bench.query(2) == int(bench.checksums[2])
        assert bench.port.steady
        bench.do("build", load=2, fresh=False, last=15, bank=0)
        assert bench.rows(0) == [frequencies(hist[q], q, 15) for q in ROWS]
        assert bench.counts == [[0] * 512] * BANKS
        assert bench.get(2) == hist
