"""Counts, histograms and tables of two clients at once, against the reference's arithmetic."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from myhdl import block, instance

from oscar_hdl.asc_tables import DROP, LOAD, MERGE, MERGE_ONLY, PRIOR, SAVE, asc_tables
from oscar_hdl.format2.params import COUNT_STEP
from oscar_hdl.format2.reference import frequencies, update
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import Pause, clock, never, randomly, simulate, sink
from oscar_sim.seeds import dice
from oscar_sim.tables_model import prior, reciprocal, zeros

DEC, ENC = 0, 1
BUILDS = (MERGE, PRIOR, LOAD)


class Client:
    """Ports of one client, and what the block must do for it."""

    def __init__(self, seed: int) -> None:
        self.cnt_valid, self.cnt_bank, self.req, self.bank, self.tbank, self.ack, self.tw_en, self.wipe = (
            bit() for _ in range(8)
        )
        self.cnt_addr, self.op, self.tw_addr = word(8), word(3), word(9)
        self.tw_f, self.tw_c, self.tw_rcp = word(12), word(12), word(18)
        self.rng = dice(seed)
        self.hist = prior()
        self.counts = [zeros(), zeros()]
        self.to_count: list[tuple[int, int]] = []  # bank, address
        self.written: list[tuple[int, ...]] = []
        self.clocks: list[int] = []
        self.load_words: list[int] = []
        self.counted = self.finished = False

    def table(self, tbank: int, with_rcp: bool) -> list[tuple[int, ...]]:
        """All table writes of a build."""
        out = []
        for q, row in enumerate(self.hist):
            below = 0
            for s, f in enumerate(frequencies(row)):
                out.append((tbank << 8 | q << 4 | s, f, below, *((reciprocal(f),) if with_rcp else ())))
                below += f
        return out


class Bench:
    """The block with two clients, each driven by a script (a generator of things to do)."""

    def __init__(self, pause: Pause = never) -> None:
        self.clk, self.rst, self.state_client = bit(), bit(), bit()
        self.clients = (Client(1), Client(2))
        self.to_load, self.saved = Stream(10), Stream(10)
        self.state_words: list[tuple[int, bool]] = []
        self.pause = pause

    def run(self, scripts: tuple[Callable[[Bench, int], Any], ...], limit: int = 200_000) -> int:
        """Run the scripts to their ends; return the clocks."""
        dec, enc = self.clients

        @block
        def top():
            dut = asc_tables(
                self.clk, self.rst,
                dec.cnt_valid, dec.cnt_addr, dec.cnt_bank, dec.req, dec.op, dec.bank, dec.tbank, dec.ack,
                enc.cnt_valid, enc.cnt_addr, enc.cnt_bank, enc.wipe, enc.req, enc.op, enc.bank, enc.tbank,
                enc.ack,
                self.state_client, self.to_load, self.saved,
                dec.tw_en, dec.tw_addr, dec.tw_f, dec.tw_c,
                enc.tw_en, enc.tw_addr, enc.tw_f, enc.tw_c, enc.tw_rcp,
            )  # fmt: skip

            @instance
            def watch():
                while True:
                    yield self.clk.posedge
                    for c in self.clients:
                        if c.tw_en:
                            rcp = (int(c.tw_rcp),) if c is enc else ()
                            c.written.append((int(c.tw_addr), int(c.tw_f), int(c.tw_c), *rcp))

            @instance
            def count():  # at most every second clock
                while True:
                    yield self.clk.posedge
                    for c in self.clients:
                        c.cnt_valid.next = False
                        c.cnt_addr.next = c.rng.randrange(256)
                        if c.to_count and not c.counted and not self.pause():
                            bank, address = c.to_count.pop()
                            c.cnt_valid.next, c.cnt_bank.next, c.cnt_addr.next = True, bank, address
                            c.counts[bank][address >> 4][address & 15] += COUNT_STEP
                            c.counted = True
                        else:
                            c.counted = False

            @instance
            def load():  # words of whichever client is served
                while True:
                    yield self.clk.posedge
                    words = self.clients[int(self.state_client)].load_words
                    if self.to_load.tvalid and self.to_load.tready:
                        words.pop(0)
                    held = self.to_load.tvalid and not self.to_load.tready
                    self.to_load.tvalid.next = bool(words) and (bool(held) or not self.pause())
                    if words:
                        self.to_load.tdata.next = words[0]

            @instance
            def drive_dec():
                yield from scripts[DEC](self, DEC)
                dec.finished = True

            @instance
            def drive_enc():
                yield from scripts[ENC](self, ENC)
                enc.finished = True

            kept = sink(self.clk, self.rst, self.saved, self.state_words, self.pause)
            return dut, watch, count, load, drive_dec, drive_enc, kept, clock(self.clk)

        return simulate(top, self.clk, until=lambda: dec.finished and enc.finished, limit=limit)

    def request(self, who: int, op: int, *, bank: int = 0, tbank: int = 0, hist: Any = None):
        """Ask for an operation and check all it does."""
        c = self.clients[who]
        c.written.clear()
        c.req.next, c.op.next, c.bank.next, c.tbank.next = True, op, bank, tbank
        if op in (MERGE, MERGE_ONLY, SAVE):
            update(c.hist, c.counts[bank])
        elif op in (PRIOR, LOAD):
            c.hist = prior() if op == PRIOR else [row[:] for row in hist]
        c.counts[bank] = zeros()
        if op in (PRIOR, LOAD):
            c.counts = [zeros(), zeros()]
        if op == LOAD:
            c.load_words[:] = [h for row in hist for h in row]
        clocks = 0
        while True:
            yield self.clk.posedge
            clocks += 1
            if c.ack:
                break
        c.req.next = False
        c.clocks.append(clocks)
        assert c.written == (c.table(tbank, who == ENC) if op in BUILDS else [])
        assert not c.load_words
        if op == SAVE:
            words = [h for row in c.hist for h in row]
            assert self.state_words == [(h, i == 255) for i, h in enumerate(words)]
            self.state_words.clear()
        yield self.clk.posedge
        assert not c.ack


def skewed(rng: random.Random, size: int) -> list[int]:
    """Addresses as of real values: few contexts, symbols near a level, long runs of one address."""
    out: list[int] = []
    while len(out) < size:
        q = min(15, int(rng.expovariate(0.3)))
        if rng.random() < 0.1:
            out += [q << 4 | rng.randrange(16)] * rng.randrange(1, 120)
        else:
            out.append(q << 4 | min(15, max(0, q + int(rng.gauss(0, 2)))))
    return out[:size]


def some_hist(rng: random.Random) -> list[list[int]]:
    """Histograms as they can be: sums of 63 to 1023, with zeros and ties for the largest."""
    hist = []
    for _ in range(16):
        kind = rng.randrange(4)
        if kind == 0:
            row = [0] * 16
            row[rng.randrange(16)] = rng.choice([63, 1023])
        elif kind == 1:
            row = [rng.choice([0, 40, 63]) for _ in range(16)]
        elif kind == 2:
            row = [63] * 16
        else:
            row = [int(rng.expovariate(0.05)) for _ in range(16)]
        while sum(row) > 1023:
            row = [h >> 1 for h in row]
        row[rng.randrange(16)] += max(0, 63 - sum(row))
        hist.append(row)
    return hist


def life(operations: list[int], *, counts: int) -> Callable[[Bench, int], Any]:
    """A client that counts and asks for operations, and counts into the other bank meanwhile where it may."""

    def script(bench: Bench, who: int):
        c, head = bench.clients[who], 0
        yield from bench.request(who, PRIOR, tbank=1)
        for number, op in enumerate(operations):
            c.to_count[:] = [(head, address) for address in skewed(c.rng, counts)]
            while c.to_count:
                yield bench.clk.posedge
            if op in (MERGE, MERGE_ONLY, SAVE, DROP):
                c.to_count[:] = [(1 - head, address) for address in skewed(c.rng, 2000)]
            yield from bench.request(who, op, bank=head, tbank=number & 1, hist=some_hist(c.rng))
            c.to_count.clear()
            head = 1 - head

    return script


@pytest.mark.parametrize("pauses", [0.0, 0.3])
def test_two_clients_that_do_everything(pauses: float) -> None:
    bench = Bench(randomly(pauses) if pauses else never)
    rng = dice(3)
    every = [MERGE, MERGE_ONLY, DROP, PRIOR, LOAD, SAVE]
    scripts = [life(rng.sample(every, 6) + rng.choices(every, k=size), counts=60) for size in (6, 0)]
    bench.run((scripts[0], scripts[1]))


def test_counts_of_a_whole_block_halve_twice() -> None:
    def script(bench: Bench, who: int):
        c = bench.clients[who]
        yield from bench.request(who, LOAD, hist=some_hist(c.rng))
        same = [(3 << 4) + 15] * 1000 + [3 << 4, (3 << 4) + 1] * 500 + [255] * 48
        c.to_count[:] = [(1, address) for address in same]
        while c.to_count:
            yield bench.clk.posedge
        yield from bench.request(who, MERGE, bank=1)
        assert sum(c.hist[3]) > 500
        yield from bench.request(who, SAVE, bank=0)

    Bench().run((script, script))


@pytest.mark.parametrize("after", [5, 137, 700])
def test_reset_in_the_middle(after: int) -> None:
    bench = Bench(randomly(0.2))
    dec, enc = bench.clients

    def decoder(bench: Bench, who: int):
        dec.to_count[:] = [(0, 7)] * 50
        dec.req.next, dec.op.next = True, PRIOR
        for _ in range(after):
            yield bench.clk.posedge
        dec.to_count.clear()
        enc.to_count.clear()
        dec.req.next, enc.req.next, bench.rst.next = False, False, True
        yield bench.clk.posedge
        bench.rst.next = False
        dec.cnt_valid.next = enc.cnt_valid.next = False
        yield bench.clk.posedge
        signs = [dec.tw_en, enc.tw_en, dec.ack, enc.ack, bench.saved.tvalid, bench.to_load.tready]
        assert not any(signs)
        bench.state_words.clear()
        yield from life([MERGE, SAVE], counts=40)(bench, who)

    def encoder(bench: Bench, who: int):
        enc.req.next, enc.op.next = True, SAVE  # waits for the decoder
        enc.to_count[:] = [(0, 9)] * 400
        while not bench.rst:
            yield bench.clk.posedge
        yield bench.clk.posedge
        yield from life([LOAD, SAVE], counts=40)(bench, who)

    bench.run((decoder, encoder))


def test_clocks_of_an_operation() -> None:
    bench = Bench()
    limits = {MERGE: 840, PRIOR: 840, LOAD: 840, MERGE_ONLY: 704, SAVE: 704, DROP: 704}

    def script(bench: Bench, who: int):
        c = bench.clients[who]
        while who == ENC and not bench.clients[DEC].finished:
            yield bench.clk.posedge
        yield from bench.request(who, PRIOR)
        for op, limit in limits.items():
            if op in (MERGE, MERGE_ONLY, SAVE):
                c.to_count[:] = [(1, 0)] * 1500
            for _ in range(c.rng.randrange(8)):
                yield bench.clk.posedge
            yield from bench.request(who, op, hist=prior())
            c.to_count.clear()
            assert c.clocks[-1] <= (2896 if who == ENC and op in BUILDS else limit)

    bench.run((script, script))


def test_a_constant_block_leaves_nothing() -> None:
    """Its symbols lie in both banks: DROP clears one while those in the other are wiped; counting goes on."""
    bench = Bench()
    enc = bench.clients[ENC]

    def encoder(bench: Bench, who: int):
        yield from bench.request(who, PRIOR)
        for number, symbol in enumerate((0, 15, 4, 4, 9)):
            head = number & 1
            constant = [(1 - head, q << 4 | symbol) for q in range(16) for _ in range(q % 3)]
            enc.to_count[:] = constant + [(head, address) for address in skewed(enc.rng, 100)]  # from the end
            while enc.to_count:
                yield bench.clk.posedge
            for _ in range(8):
                yield bench.clk.posedge
            enc.wipe.next, enc.cnt_bank.next = True, 1 - head
            yield bench.clk.posedge
            enc.wipe.next = False
            for row in enc.counts[1 - head]:
                row[symbol] = 0
            asked = bench.request(who, DROP, bank=head)
            for clocks, _ in enumerate(asked):
                if clocks == 40:  # now nothing is being wiped
                    enc.to_count[:] = [(1 - head, address) for address in skewed(enc.rng, 150)]
                yield bench.clk.posedge
            while enc.to_count:
                yield bench.clk.posedge
            yield from bench.request(who, SAVE, bank=1 - head)
            yield from bench.request(who, SAVE, bank=head)

    def decoder(bench: Bench, who: int):
        yield from life([MERGE, DROP, SAVE], counts=60)(bench, who)

    bench.run((decoder, encoder))
