"""The barrel encoder against the reference: bytes, entries, counts, whatever memory and takers do."""

from __future__ import annotations

import random

import pytest

from oscar.coding.asc.params import TABLE_ROWS
from oscar_sim.seeds import dice
from support.barrel_encoder_bench import EncoderBench, check
from support.encoder_block import SentBlock, random_table

pytestmark = pytest.mark.usefixtures("seed")

KINDS = ("noise", "dead", "constant", "wide", "nearly constant", "sparse", "steps")


def values_of(kind: str, count: int, rng: random.Random) -> list[int]:
    """Return values of a kind."""
    scale = rng.choice((0.3, 1, 2, 5, 20, 60))
    values = [max(-191, min(191, round(rng.gauss(0, scale)))) for _ in range(count)]
    if kind == "constant":
        return [rng.choice((0, 7, -1, 150, -32768))] * count
    if kind == "nearly constant":
        values = [rng.choice((0, 3, -1, 1000))] * count
        values[rng.randrange(count)] += 1
    if kind == "wide":
        return [rng.randrange(-1 << bits, 1 << bits) for bits in rng.choices(range(16), k=count)]
    if kind == "steps":  # rows of all widths
        widths = rng.choices(range(16), k=count // 32 + 1)
        return [rng.randrange(-1 << widths[i >> 5], 1 << widths[i >> 5]) for i in range(count)]
    if kind == "sparse":
        values = [rng.choice((0, 0, 0, 0, 1, -1)) for _ in range(count)]
    if kind in ("dead", "sparse"):
        for size, share in ((1024, 0.4), (32, rng.random())):
            for at in range(0, count, size):
                if rng.random() < share:
                    values[at : at + size] = [0] * len(values[at : at + size])
    return values


def ready_bench(rng: random.Random, **chances: float) -> tuple[EncoderBench, list]:
    """Return a bench with two banks of tables."""
    bench = EncoderBench(rng, **chances)
    tables = [random_table(rng) for _ in range(2)]
    for bank in range(2):
        bench.load(tables[bank], bank)
    return bench, tables


def random_block(kind: str, count: int, tables: list, rng: random.Random) -> SentBlock:
    """Return a block of a kind."""
    base, spread, bank = rng.randrange(16), rng.choice((0, 1, 6)), rng.randrange(2)
    positions = [max(0, min(15, base + rng.randint(-spread, spread))) for _ in range(count)]
    return SentBlock(values_of(kind, count, rng), positions, tables[bank], bank)


def check_all(bench: EncoderBench) -> None:
    """Compare all results, bytes and counts with the reference."""
    for coded in bench.coded:
        check(coded)
    for bank in range(2):
        counts = [c.block.counts() for c in bench.coded if c.block.bank == bank]
        for q in range(TABLE_ROWS):
            wanted = [sum(c) for c in zip(*(count[q] for count in counts), strict=True)] or [0] * 16
            assert bench.counted[bank][q] == wanted, (bank, q)


def test_a_block_longer_than_its_buffer_waits_and_others_go_on() -> None:
    rng = dice("encoder wait")
    bench, tables = ready_bench(rng, no_ready=1.0)
    long = SentBlock([rng.randrange(-30000, 30000) for _ in range(2048)], [6] * 2048, tables[0])
    short = random_block("noise", 100, tables, rng)
    bench.queue += [long, short]
    bench.sim.run(3000)
    assert [c.done for c in bench.coded] == [False, True]
    bench.no_ready = 0.3
    bench.code([])
    check_all(bench)


def test_a_reset_forgets_all_blocks() -> None:
    rng = dice("encoder reset")
    bench, tables = ready_bench(rng, no_ready=0.3, no_memory=0.3)
    for _ in range(3):
        bench.queue += [random_block(rng.choice(KINDS), rng.randrange(1, 300), tables, rng) for _ in range(9)]
        bench.sim.run(rng.randrange(1, 400))
        bench.reset()
        bench.code([random_block(rng.choice(KINDS), rng.randrange(1, 200), tables, rng) for _ in range(3)])
        check_all(bench)


def test_wrong_descriptors_are_bad_and_end() -> None:
    rng = dice("encoder bad")
    bench, tables = ready_bench(rng)
    blocks = [random_block("steps", rng.randrange(64, 600), tables, rng) for _ in range(4)]
    for block in blocks:
        for row in block.rows:
            row.row_class = rng.randrange(16)
    bench.code(blocks)
    for coded in bench.coded:
        assert coded.bad == coded.block.impossible(coded.seeds)
        assert coded.constant or len(coded.data or b"") == coded.size
    bench.coded.clear()
    bench.counted = [[[0] * 16 for _ in range(TABLE_ROWS)] for _ in range(2)]
    bench.code([random_block("dead", 300, tables, rng)])
    check_all(bench)
