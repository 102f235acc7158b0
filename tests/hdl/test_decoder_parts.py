"""Blocks of the decoder that the encoder has, too, or that are simple enough to be tried with every input."""

from __future__ import annotations

import pytest

from oscar.coding.asc.model import class_of, symbol_of
from oscar.coding.asc.params import BASE, LIMIT, WIDE_SHIFT
from oscar_hdl.coder.decode.seed_symbol import seed_symbol
from oscar_hdl.coder.decode.sum_rows import sum_sizes
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")


def run(
    top: object, clk: object, inputs: list, outputs: list, items: list[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Give inputs an item a clock; return outputs of each clock, from that of the first item on."""
    seen: list[tuple[int, ...]] = []
    feed = iter(items)

    def each() -> None:
        seen.append(tuple(int(s) for s in outputs))
        for signal, value in zip(inputs, next(feed, items[-1]), strict=True):
            signal.next = value

    CycleSimulator(top, clk, each).run(len(items) + 10)
    return seen[1:]


@pytest.mark.parametrize("clocks", [2, 3, 15, 16])
def test_delays(clocks: int) -> None:
    rng = dice("delays")
    clk, phase, data, delayed = bit(), word(5), word(9), word(9)
    items = [(n & 31, rng.randrange(512)) for n in range(60)]
    seen = run(lane_delay(clk, phase, data, delayed, clocks), clk, [phase, data], [delayed], items)
    assert seen[clocks:50] == [(value,) for _, value in items[: 50 - clocks]]
    with pytest.raises(ValueError, match="2 to 16"):
        lane_delay(clk, phase, data, delayed, 17)


def test_symbols_of_seeds() -> None:
    clk, value, symbol, low_bits = bit(), word(16), word(4), word(2)
    items, expected = [], []
    for code, shift in enumerate((0, *WIDE_SHIFT)):
        for high in range(1 - LIMIT, LIMIT):
            number = max(-32768, min(32767, high << shift | (high * 5 & ((1 << shift) - 1))))
            items.append((number & 0xFFFF, code))
            expected.append((symbol_of(number, shift)[0],))
    seen = run(seed_symbol(clk, value, low_bits, symbol), clk, [value, low_bits], [symbol], items)
    assert seen[6 : 6 + len(items)] == expected


def test_classes_sizes_and_symbols_of_rows() -> None:
    rng = dice("row classes")
    edges = sorted({base - d for base in (*BASE[1:], LIMIT) for d in (0, 1)} | {7, 8, 15, 16, 255, 256, 257})
    edges += [LIMIT + d << k for k in WIDE_SHIFT for d in (-1, 0)] + [20000]
    rows = []
    for largest in (*edges, *edges, 32768):
        k = rng.choice([0, 1, largest])
        row = [rng.randint(-k, k) for _ in range(32)]
        row[rng.randrange(32)] = rng.choice([largest, -largest, -largest - 1, largest - 1])
        rows.append([max(-32768, min(32767, v)) for v in row])
    rows.append([1] * 31 + [-1])
    clk, phase, totals = bit(), word(4), word(128)
    outputs = [word(4), word(3), word(4)]
    eights = [row[at : at + 8] for row in rows for at in (0, 8, 16, 24)]
    words = [sum((v & 0xFFFF) << 16 * i for i, v in enumerate(eight)) for eight in eights] + [0] * 12
    items = [((n + 2) % 16, lanes) for n, lanes in enumerate(words)]  # the first one in clock 30 of a turn
    seen = run(sum_sizes(clk, phase, totals, *outputs), clk, [phase, totals], outputs, items)
    for n, row in enumerate(rows):
        fits = next(
            i for i, b in enumerate((3, 4, 5, 8, 16), 1) if all(-(1 << b - 1) <= v < 1 << b - 1 for v in row)
        )
        symbol = symbol_of(min(max(map(abs, row)), LIMIT - 1), 0)[0]
        wanted = class_of(row, 0, 0), fits if any(row) else 0, symbol
        assert seen[4 * n + 12] == wanted, row
