"""The rANS encoder against the reference: words in order, states, bubbles, two banks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from myhdl import block, instance

from oscar_hdl.format2.reference import frequencies, push_all
from oscar_hdl.rans_encoder import rans_encoder
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.bench import clock, simulate
from oscar_sim.seeds import dice
from oscar_sim.tables_model import reciprocal

WORD_CLOCKS, STATE_CLOCKS = 5, 15
Table = list[list[int]]  # frequencies of 16 contexts
Symbols = list[tuple[int, int]]  # context and symbol of each value, in decoding order


class Bench:
    """The encoder, a driver that obeys `slot`, and a monitor that knows the latencies."""

    def __init__(self, seed: int) -> None:
        self.rng = dice(seed)
        self.clk, self.rst, self.tw_en = bit(), bit(), bit()
        self.tw_addr, self.tw_f, self.tw_c, self.tw_rcp = word(9), word(12), word(12), word(18)
        self.slot, self.valid, self.bank, self.ctx, self.sym = word(4), bit(), bit(), word(4), word(4)
        self.first, self.final = bit(), bit()
        self.word_valid, self.word, self.word_end = bit(), word(12), bit()
        self.state_valid, self.lane, self.state = bit(), word(4), word(24)
        self.words: list[list[int]] = [[]]
        self.states: list[list[tuple[int, int]]] = [[]]
        self.done = False

    @block
    def dut(self, script: Any) -> Any:
        """Run `script`, a generator that yields once for each clock."""
        dut = rans_encoder(
            self.clk, self.rst, self.tw_en, self.tw_addr, self.tw_f, self.tw_c, self.tw_rcp, self.slot,
            self.valid, self.bank, self.ctx, self.sym, self.first, self.final,
            self.word_valid, self.word, self.word_end, self.state_valid, self.lane, self.state,
        )  # fmt: skip

        @instance
        def drive():
            for _ in script:
                yield self.clk.posedge
                self.rst.next, self.valid.next, self.tw_en.next = False, False, False
                for signal in (self.bank, self.first, self.final):
                    signal.next = self.rng.random() < 0.5
                self.ctx.next, self.sym.next = self.rng.randrange(16), self.rng.randrange(16)
            for _ in range(STATE_CLOCKS + 2):
                yield self.clk.posedge
                self.valid.next = False
            self.done = True

        @instance
        def watch():
            taken = [(None, False)] * (STATE_CLOCKS + 1)  # slot and final of this clock and those before
            while True:
                yield self.clk.posedge
                now = (int(self.slot), bool(self.final)) if self.valid else (None, False)
                taken = [now, *taken[:-1]]
                slot, final = taken[WORD_CLOCKS]
                if self.word_valid:
                    assert slot is not None, "a word of no symbol"
                    self.words[-1].append(int(self.word))
                assert bool(self.word_end) == (final and slot == 0)
                if self.word_end:
                    self.words.append([])
                slot, final = taken[STATE_CLOCKS]
                assert bool(self.state_valid) == final
                if self.state_valid:
                    assert self.lane == slot
                    self.states[-1].append((int(self.lane), int(self.state)))
                    if slot == 0:
                        self.states.append([])
                if self.rst:
                    taken = [(None, False)] * (STATE_CLOCKS + 1)

        return dut, drive, watch, clock(self.clk)

    def write(self, bank: int, table: Table) -> Any:
        """Write a bank, a row a clock."""
        for q, row in enumerate(table):
            for s, f in enumerate(row):
                yield from self.write_row(bank, q, s, f, sum(row[:s]))

    def write_row(self, bank: int, q: int, s: int, f: int, c: int) -> Any:
        """Write one row of a table beside whatever else happens in this clock."""
        self.tw_en.next, self.tw_addr.next = True, bank << 8 | q << 4 | s
        self.tw_f.next, self.tw_c.next, self.tw_rcp.next = f, c, reciprocal(f)
        yield

    def code(self, bank: int, symbols: Symbols, bubbles: float = 0.0, other: Table | None = None) -> Any:
        """Code a block, last value first, and meanwhile write the table `other` into the other bank."""
        n = len(symbols)
        rows = [(q, s) for q in range(16) for s in range(16)] if other else []
        for i in reversed(range(n)):
            while True:
                take = self.slot_next() == i % 12 and self.rng.random() >= bubbles
                if rows:
                    q, s = rows.pop()
                    self.tw_en.next, self.tw_addr.next = True, (1 - bank) << 8 | q << 4 | s
                    f, c = other[q][s], sum(other[q][:s])
                    self.tw_f.next, self.tw_c.next, self.tw_rcp.next = f, c, reciprocal(f)
                if take:
                    break
                yield
            self.valid.next, self.bank.next = True, bank
            self.ctx.next, self.sym.next = symbols[i]
            self.first.next, self.final.next = i >= n - 12, i < 12
            yield

    def slot_next(self) -> int:
        """The slot of the clock that is being prepared."""
        return 11 if self.rst else (int(self.slot) - 1) % 12

    def run(self, script: Any, limit: int = 60_000) -> None:
        """Simulate to the end of the script."""

        @block
        def top():
            return self.dut(script)

        simulate(top, self.clk, until=lambda: self.done, limit=limit)


def model(table: Table, symbols: Symbols) -> tuple[list[int], list[tuple[int, int]]]:
    """Words in the order in which they are pushed, and the states as they come out."""
    coded = [(i % 12, table[q][s], sum(table[q][:s])) for i, (q, s) in enumerate(symbols)]
    words, states = push_all(coded)
    return words[::-1], [(lane, states[lane]) for lane in reversed(range(min(12, len(symbols))))]


def random_table(rng: random.Random) -> Table:
    """Contexts from flat to one symbol of 4,081; every frequency class, 1 among them."""
    table = [frequencies([1023] + [0] * 15), frequencies([0] * 15 + [1023])]
    while len(table) < 16:
        sharp = rng.choice([1, 2, 8, 100])
        hist = [rng.randrange(1, 400) // sharp ** rng.randrange(3) for _ in range(16)]
        scale = max(1, -(-sum(hist) // 1023))
        hist = [h // scale for h in hist]
        table.append(frequencies(hist if sum(hist) >= 63 else [h + 4 for h in hist]))
    assert min(map(min, table)) == 1
    assert max(map(max, table)) == 4081
    return table


def random_symbols(rng: random.Random, n: int, table: Table) -> Symbols:
    """Likely symbols and unlikely ones."""
    contexts = [rng.randrange(16) for _ in range(n)]
    return [
        (q, rng.randrange(16) if rng.random() < 0.3 else rng.choices(range(16), table[q])[0])
        for q in contexts
    ]


@pytest.mark.parametrize("bubbles", [0.0, 0.4])
def test_blocks_one_behind_the_other_on_alternating_banks(bubbles: float) -> None:
    bench, rng = Bench(5), dice(6)
    tables = [random_table(rng) for _ in range(13)]
    sizes = [700, 1, 2, 5, 11, 12, 13, 23, 24, 25, 300, 1023]
    blocks = [random_symbols(rng, n, tables[i]) for i, n in enumerate(sizes)]

    def script() -> Any:
        yield from bench.write(0, tables[0])
        for i, symbols in enumerate(blocks):
            if sizes[i] >= 300:  # long enough to write the other bank meanwhile
                yield from bench.code(i & 1, symbols, bubbles, tables[i + 1])
            else:
                yield from bench.code(i & 1, symbols, bubbles)
                yield from bench.write(1 - i & 1, tables[i + 1])

    bench.run(script())
    for i, symbols in enumerate(blocks):
        assert (bench.words[i], bench.states[i]) == model(tables[i], symbols), f"block {i}"
    assert len(bench.words) == len(blocks) + 1


def test_back_to_back_without_a_gap() -> None:
    bench, rng = Bench(1), dice(2)
    tables = [random_table(rng), random_table(rng)]
    blocks = [random_symbols(rng, n, tables[i & 1]) for i, n in enumerate([120, 12, 24, 1, 12, 48, 3, 36])]

    def script() -> Any:
        yield from bench.write(0, tables[0])
        yield from bench.write(1, tables[1])
        for i, symbols in enumerate(blocks):
            yield from bench.code(i & 1, symbols)

    bench.run(script())
    for i, symbols in enumerate(blocks):
        assert (bench.words[i], bench.states[i]) == model(tables[i & 1], symbols), f"block {i}"


def test_a_frequency_of_one_pushes_a_zero_first() -> None:
    bench, table = Bench(1), [frequencies([63] + [0] * 15)] * 16
    symbols = [(3, 15)] * 12

    def script() -> Any:
        yield from bench.write(1, table)
        yield from bench.code(1, symbols)

    bench.run(script())
    assert bench.words[0] == [0] * 12
    assert bench.states[0] == [(lane, 1 << 12 | 4095) for lane in reversed(range(12))]


def test_bubbles_of_many_laps_keep_the_states_while_tables_change() -> None:
    bench, rng = Bench(3), dice(4)
    old, new = random_table(rng), random_table(rng)
    symbols = random_symbols(rng, 240, old)

    def script() -> Any:
        yield from bench.write(0, new)
        yield from bench.write(1, old)
        coding = bench.code(1, symbols)
        for clocks, _ in enumerate(coding):
            yield
            if clocks % 100 == 50:  # rewrite the very bank that the bubbles read
                for _ in range(4):
                    yield
                yield from bench.write(1, new)
                yield from bench.write(1, old)

    bench.run(script())
    assert (bench.words[0], bench.states[0]) == model(old, symbols)


def test_nothing_of_before_a_reset_comes_out_after_it() -> None:
    bench, rng = Bench(8), dice(9)
    table = random_table(rng)
    blocks = [random_symbols(rng, n, table) for n in (12, 24, 100, 40)]

    def script() -> Any:
        yield from bench.write(0, table)
        for symbols in blocks:
            for clocks, _ in enumerate(bench.code(0, symbols)):
                yield
                if clocks == 30:
                    break
            bench.rst.next = True
            yield
            bench.words[:], bench.states[:] = [[]], [[]]
        yield from bench.code(0, blocks[2], 0.1)

    bench.run(script())
    assert (bench.words[0], bench.states[0]) == model(table, blocks[2])


def test_the_estimate_is_the_quotient_or_one_less() -> None:
    # All f, on both sides of every multiple; what the block feeds its multiplier and takes from it.
    q = np.arange(1, 4096, dtype=np.int64)
    for f in range(1, 4097):
        drop, power = (0, 18) if f <= 64 else (3, 21) if f <= 512 else (6, 21)
        for y in (q * f, q * f + f - 1):
            estimate = ((y >> drop) * reciprocal(f)) >> power
            assert (y >> drop).max() < 1 << 18
            assert ((estimate == q) | (estimate == q - 1)).all()
    assert reciprocal(4096) == 1 << 15  # of a bubble, exact
