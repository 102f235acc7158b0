"""The barrel decoder against the reference: values, sums, counts, refusals, whatever memory and bytes do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from needs import needs
from oscar.coding.asc.model import Rows
from oscar.coding.asc.params import TABLE_ROWS
from oscar_sim.seeds import dice
from support.barrel_decoder_bench import DecoderBench, Decoding, Trace, check
from support.converted import compare_verilog
from support.decoder_block import DecodedBlock, RawBlock, random_block, random_freq, random_local

pytestmark = pytest.mark.usefixtures("seed")


def ready_bench(
    rng: random.Random, trace: Trace | None = None, **chances: float
) -> tuple[DecoderBench, list[Rows]]:
    """Return a bench with two banks of tables, in which all symbols are possible."""
    bench = DecoderBench(rng, **chances)
    bench.trace = trace
    bench.reset()
    tables = [random_freq(rng, 15) for _ in range(2)]
    for bank in range(2):
        bench.load(tables[bank], bank)
    return bench, tables


def decoding(
    rng: random.Random, tables: list[Rows], count: int, *, raw: float = 0.2, **kind: float
) -> Decoding:
    """Return a random block of one of the banks, and local values; raw: how likely it is a raw one."""
    drawn = random_block(rng, count, **kind)
    if rng.random() < raw:
        block: DecodedBlock = RawBlock(drawn.values, drawn.positions, tables[drawn.bank])
    else:
        block = DecodedBlock(drawn.values, drawn.positions, tables[drawn.bank], seeds=drawn.seeds)
    block.bank = drawn.bank
    return Decoding(block, block.data, random_local(rng, block) if rng.random() < 0.7 else {})


def check_all(bench: DecoderBench) -> None:
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


def test_a_block_waits_for_its_bytes_and_others_go_on() -> None:
    rng = dice("decoder wait")
    bench, tables = ready_bench(rng)
    long, short = decoding(rng, tables, 1100, zero=0.0), decoding(rng, tables, 100)
    bench.held = long
    bench.queue += [long, short]
    bench.sim.run(1500)
    assert (long.done, short.done) == (False, True)
    bench.held = None
    bench.decode([])
    check_all(bench)


def damage(rng: random.Random, block: DecodedBlock, kind: str) -> bytes:
    """Return other bytes of a block, 96 or more."""
    data = bytearray(block.data)
    if kind == "bits":
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "states":
        data[-rng.randrange(1, 97)] = rng.randrange(256)
    elif kind == "short":
        del data[: min(rng.randrange(1, 40), len(data) - 96)]
    elif kind == "long":
        data[:0] = rng.randbytes(rng.choice((1, 2, 15, 16, 17, 700)))
    elif kind == "seeds":
        block.seeds = rng.randrange(6)
    return bytes(data)


def test_damaged_blocks_are_refused_where_the_reference_refuses_them() -> None:
    rng = dice("decoder damage")
    bench, tables = ready_bench(rng, no_memory=rng.choice((0, 0.3)), no_bytes=rng.choice((0, 0.3)))
    kinds = ("bits", "states", "short", "long", "seeds", "none")
    wanted = []
    for kind in rng.sample(kinds * 4, 4 * len(kinds)):
        each = decoding(rng, tables, rng.randrange(1, 200), zero=0.1, raw=0)  # a receiver checks raw ones
        each.data = damage(rng, each.block, kind)
        wanted.append((each, each.block.damaged(each.data)))
    bench.decode([each for each, _ in wanted])
    for each, refused in wanted:
        assert each.bad == refused
        if not refused:
            check(each)


def test_a_reset_forgets_all_blocks() -> None:
    rng = dice("decoder reset")
    bench, tables = ready_bench(rng, no_bytes=0.3, no_memory=0.3)
    for _ in range(3):
        bench.queue += [decoding(rng, tables, rng.randrange(1, 300)) for _ in range(9)]
        bench.sim.run(rng.randrange(1, 500))
        bench.reset()
        bench.decode([decoding(rng, tables, rng.randrange(1, 200)) for _ in range(3)])
        check_all(bench)


def test_verilog_does_the_same_in_every_clock(tmp_path: Path) -> None:
    needs("iverilog")
    rng = dice("decoder verilog")
    trace: Trace = []
    bench, tables = ready_bench(rng, trace, no_memory=0.2, no_bytes=0.2)
    bench.decode([decoding(rng, tables, 100)])
    warm = len(trace)  # combinational processes do not run before one of their inputs changes
    bench.decode([decoding(rng, tables, rng.randrange(1, 1100)) for _ in range(6)])
    bench.queue += [decoding(rng, tables, 300) for _ in range(3)]
    bench.sim.run(200)
    bench.reset()
    bench.decode([decoding(rng, tables, 70)])
    compare_verilog("barrel_decoder", bench.ports(), trace, tmp_path, warm)
