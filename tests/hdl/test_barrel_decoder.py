"""The barrel decoder against the reference: values, sums, counts, refusals, whatever memory and bytes do."""

from __future__ import annotations

import random

import pytest

from oscar.coding.asc.model import Rows
from oscar.coding.asc.params import TABLE_ROWS
from oscar_sim.seeds import dice
from support.barrel_decoder_bench import BarrelDecoderBench, Decoding, check
from support.decoder_block import DecodedBlock, random_block, random_freq, random_local

pytestmark = pytest.mark.usefixtures("seed")


def ready_bench(rng: random.Random, **chances: float) -> tuple[BarrelDecoderBench, list[Rows]]:
    """Return a bench with two banks of tables, in which all symbols are possible."""
    bench = BarrelDecoderBench(rng, **chances)
    tables = [random_freq(rng, 15) for _ in range(2)]
    for bank in range(2):
        bench.load(tables[bank], bank)
    return bench, tables


def decoding(rng: random.Random, tables: list[Rows], count: int, **kind: float) -> Decoding:
    """Return a random block of one of the banks, and local values."""
    found = random_block(rng, count, **kind)
    block = DecodedBlock(found.values, found.positions, tables[found.bank], seeds=found.seeds)
    block.bank, block.thinning = found.bank, found.thinning
    return Decoding(block, block.data, random_local(rng, block) if rng.random() < 0.7 else {})


def check_all(bench: BarrelDecoderBench) -> None:
    """Compare all results and counts with the reference."""
    for each in bench.decoded:
        check(each)
    for bank in range(2):
        wanted: dict[tuple[int, int], int] = {}
        for each in bench.decoded:
            for key, n in each.block.counts().items() if each.block.bank == bank else ():
                wanted[key] = wanted.get(key, 0) + n
        got = {(q, s): n for q in range(TABLE_ROWS) for s, n in enumerate(bench.counted[bank][q]) if n}
        assert got == wanted, bank


def test_blocks_take_turns_and_equal_the_reference() -> None:
    rng = dice("barrel decoder")
    bench, tables = ready_bench(rng, no_memory=rng.choice((0, 0.5)), no_bytes=rng.choice((0, 0.2, 0.8)))
    sizes = [1, rng.randrange(2, 33), rng.randrange(33, 500), rng.randrange(1025, 1500)]
    bench.decode([decoding(rng, tables, rng.choice(sizes)) for _ in range(14)])
    assert len(bench.decoded) == 14
    check_all(bench)
