"""Values out of symbols and the raw stream, against the reference's arithmetic."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from myhdl import block, instance

from oscar_hdl.format2.params import BASE, EXTRA
from oscar_hdl.format2.reference import symbol
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.value_rebuild import value_rebuild
from oscar_sim.bench import Pause, clock, never, randomly, simulate, sink
from oscar_sim.seeds import dice

LATENCY = 17  # of a decoder, from a symbol's issue to the symbol


@dataclass
class Block:
    """A block's values and how they are sent; `spare`: raw words too many (or, negative, too few)."""

    values: list[int]
    kind: str
    shift: int = 0
    width: int = 16
    spare: int = 0
    symbols: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        mask, bits, size = (1 << self.width) - 1, 0, 0
        self.symbols = [0] * len(self.values)
        if self.kind == "fixed":
            bits, size = self.values[0] & 0xFFFF, 16
        elif self.kind == "raw":
            for i, v in enumerate(self.values):
                bits |= (v & mask) << (i * self.width)
            size = self.width * len(self.values)
        else:
            self.symbols = []
            for v in self.values:
                m = abs(v)
                u = ((m - 1) >> self.shift) + 1 if m else 0
                s = symbol(u)
                self.symbols.append(s)
                if s:
                    low = (m - 1) & ((1 << self.shift) - 1)
                    bits |= (int(v < 0) | low << 1 | (u - BASE[s]) << (1 + self.shift)) << size
                    size += 1 + self.shift + EXTRA[s]
        words = (size + 15) // 16
        self.words = [(bits >> (16 * i)) & 0xFFFF for i in range(words + self.spare)]


def run(blocks: list[Block], *, gaps: Pause = never, stalls: Pause = never, cut: int = 0) -> int:
    """Send the blocks as one frame and check what comes; return the clocks of all blocks.

    cut: reset after so many clocks, and begin again.
    """
    clk, rst, start, coded, fixed, issue, room, sym_valid, final = (bit() for _ in range(9))
    raw_valid, raw_end, raw_pop, drained, idle, raw_exact, empty, fits = (bit() for _ in range(8))
    shift, width, sym, raw_data, raw_high = word(4), word(5), word(4), word(16), word(8)
    m_axis = Stream(16)
    taken: list[tuple[int, bool]] = []
    expected = [v & 0xFFFF for b in blocks for v in b.values]
    state = {"clocks": 0, "done": False, "flush": True}

    @block
    def top():
        dut = value_rebuild(
            clk, rst, start, coded, fixed, shift, width, issue, room, sym_valid, sym, final,
            raw_valid, raw_data, raw_end, raw_pop, drained, idle, empty, raw_exact, fits, raw_high, m_axis,
        )  # fmt: skip

        words: deque[int] = deque()

        @instance
        def raw():
            while True:
                yield clk.posedge
                if state["flush"]:
                    words.clear()
                    raw_valid.next = raw_end.next = False
                    continue
                if raw_valid and raw_pop:
                    words.popleft()
                    raw_valid.next = False
                some = bool(words) and not (raw_valid and not raw_pop) and not gaps()
                if some or (raw_valid and not raw_pop):
                    raw_valid.next, raw_data.next = True, words[0]
                raw_end.next = not words

        @instance
        def drive():
            clocks = 0
            for round_ in range(2 if cut else 1):
                rst.next = True
                state["flush"] = True
                yield clk.posedge
                rst.next = False
                taken.clear()
                final.next = False
                for number, b in enumerate(blocks):
                    coded.next, fixed.next = b.kind == "coded", b.kind == "fixed"
                    shift.next, width.next = b.shift, b.width
                    state["flush"] = True
                    yield clk.posedge
                    start.next = True
                    yield clk.posedge
                    start.next, state["flush"] = False, False
                    words.extend(b.words)
                    way: deque[tuple[int, int]] = deque()  # due, symbol
                    left, sent = deque(b.symbols), False
                    while left or way or sent or not drained:  # `drained` is from before what was sent
                        final.next = number == len(blocks) - 1 and not left
                        sent = bool(left) and bool(room) and not gaps()
                        issue.next = sent
                        if sent:
                            way.append((LATENCY if b.kind == "coded" else 0, left.popleft()))
                        arrived = bool(way) and way[0][0] == 0
                        sym_valid.next = arrived
                        if arrived:
                            sym.next = way.popleft()[1]
                        way = deque((max(0, due - 1), s) for due, s in way)
                        yield clk.posedge
                        clocks += 1
                        issue.next = sym_valid.next = False
                        if cut and round_ == 0 and clocks == cut:
                            break
                    if cut and round_ == 0 and clocks == cut:
                        break
                    yield clk.posedge
                    while not (drained and idle):
                        yield clk.posedge
                    if b.kind != "fixed":
                        assert bool(raw_exact) == (b.spare == 0)
                    else:
                        assert fits
                    if b.kind == "raw":
                        assert int(raw_high).bit_length() == max(
                            0, max(abs(v) for v in b.values).bit_length() - 8
                        )
            while not empty:
                yield clk.posedge
            assert len(taken) == len(expected)
            state["clocks"], state["done"] = clocks, True

        return dut, raw, drive, sink(clk, rst, m_axis, taken, stalls), clock(clk)

    simulate(top, clk, until=lambda: state["done"], limit=200_000)
    assert [v for v, _ in taken] == expected
    assert [last for _, last in taken] == [False] * (len(expected) - 1) + [True]
    return state["clocks"]


def draw(rng: random.Random, n: int, width: int) -> list[int]:
    """Values of all sizes, both ends of the range among them."""
    top = (1 << (width - 1)) - 1
    values = [rng.randint(-1, 1) * (rng.randint(0, top) >> rng.randrange(width)) for _ in range(n)]
    return [*values, top, -top - 1, 0, -1, min(1, top), -top]


def mixture(seed: int) -> list[Block]:
    """Blocks of all kinds, shifts and widths, one after another."""
    rng = dice(seed)
    blocks = []
    for width in (1, 2, 8, 9, 12, 15, 16):
        for shift in rng.sample(range(16), 3):
            blocks.append(Block(draw(rng, rng.randrange(40), width), "coded", shift, width))
        blocks.append(Block(draw(rng, rng.randrange(30), width), "raw", 3, width))
        value = rng.choice([-1, 0, -(1 << (width - 1)), (1 << (width - 1)) - 1])
        blocks.append(Block([value] * rng.randrange(1, 20), "fixed", 0, width))
    return blocks


@pytest.mark.parametrize(("gaps", "stalls"), [(0, 0), (0.4, 0), (0, 0.5), (0.3, 0.3)])
def test_all_kinds_of_blocks(gaps: float, stalls: float) -> None:
    run(mixture(int(10 * gaps + stalls)), gaps=randomly(gaps, 3), stalls=randomly(stalls, 4))


def test_every_shift_and_symbol() -> None:
    blocks = []
    for shift in range(16):
        sizes = [((BASE[s] - 1) << shift) + 1 for s in range(1, 16)]
        values = [v for m in sizes for v in (m, -m, m + (1 << shift) - 1) if -0x8000 <= v < 0x8000]
        blocks.append(Block([0, *values], "coded", shift))
    run(blocks)


@pytest.mark.parametrize("cut", [40, 90, 333])
def test_reset_at_any_time(cut: int) -> None:
    run(mixture(cut), gaps=randomly(0.2), stalls=randomly(0.3), cut=cut)


def test_raw_stream_too_long_or_too_short() -> None:
    rng = dice(5)
    blocks = []
    for spare in (1, 0, 2, 0):
        blocks.append(Block([100] * 16 + [0] * rng.randrange(3), "coded", 0, 16, spare))
        blocks.append(Block([3] * 5, "coded", 0, 16, spare))
        blocks.append(Block([0] * 5, "coded", 0, 16, spare))
    blocks.append(Block([1] * 3, "coded", 0, 16, -1))
    run(blocks)


def test_one_value_per_clock() -> None:
    rng = dice(6)
    small = Block([rng.randint(-3000, 3000) for _ in range(900)], "coded", 6, 16)
    raw = Block([rng.randint(-0x8000, 0x7FFF) for _ in range(900)], "raw", 6, 16)
    assert run([small]) < 900 + LATENCY + 20
    assert run([raw]) < 900 + 20
    escapes = Block([rng.choice([-9000, 9000]) for _ in range(200)], "coded", 4, 16)
    assert run([escapes]) < 2 * 200 + LATENCY + 20
