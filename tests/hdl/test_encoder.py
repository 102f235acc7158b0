"""The encoding unit against the reference: bytes, entries, counts, whatever memory and takers do."""

from __future__ import annotations

import random

import pytest

from oscar.coding.asc.params import TABLE_ROWS
from oscar_sim.encoder_bench import Bench, Block, check, random_table
from oscar_sim.seeds import dice

KINDS = ("noise", "dead", "constant", "wide", "single", "nearly constant", "sparse", "steps")


def values_of(kind: str, count: int, rng: random.Random) -> list[int]:
    """Return values of a kind."""
    scale = rng.choice((0.3, 1, 2, 5, 20, 60))
    noise = [max(-191, min(191, round(rng.gauss(0, scale)))) for _ in range(count)]
    if kind == "constant":
        return [rng.choice((0, 7, -1, 150, -32768))] * count
    if kind == "single":
        return [0] * (count - 1) + [rng.choice((1, -1, -32768, 32767))]
    if kind == "nearly constant":
        values = [rng.choice((0, 3, -1, 1000))] * count
        values[rng.randrange(count)] += 1
        return values
    if kind == "wide":
        return [rng.randrange(-1 << bits, 1 << bits) for bits in rng.choices(range(16), k=count)]
    if kind == "steps":  # rows of all widths
        widths = rng.choices(range(16), k=count // 32 + 1)
        return [rng.randrange(-1 << widths[i >> 5], 1 << widths[i >> 5]) for i in range(count)]
    if kind == "sparse":
        noise = [rng.choice((0, 0, 0, 0, 1, -1)) for _ in range(count)]
    if kind in ("dead", "sparse"):
        for size, share in ((1024, 0.4), (32, rng.random())):
            for at in range(0, count, size):
                if rng.random() < share:
                    noise[at : at + size] = [0] * len(noise[at : at + size])
    return noise


def random_block(kind: str, count: int, tables: list, rng: random.Random) -> Block:
    """Return a block of a kind."""
    base, spread, bank = rng.randrange(16), rng.choice((0, 1, 6)), rng.randrange(2)
    positions = [max(0, min(15, base + rng.randint(-spread, spread))) for _ in range(count)]
    return Block(values_of(kind, count, rng), positions, tables[bank], rng.randrange(3), bank)


def ready_bench(rng: random.Random, **chances: float) -> tuple[Bench, list]:
    """Return a bench with two banks of tables."""
    bench = Bench(rng, **chances)
    tables = [random_table(rng) for _ in range(2)]
    for bank in range(2):
        bench.load(tables[bank], bank)
    return bench, tables


def check_all(bench: Bench, blocks: list[Block]) -> None:
    """Compare all results, bytes and counts with the reference."""
    streams = iter(bench.streams)
    for block, result in zip(blocks, bench.results, strict=True):
        check(block, result, None if result.constant else next(streams))
    assert next(streams, None) is None
    counts = [block.counts() for block in blocks]
    for q in range(TABLE_ROWS):
        assert bench.counted[q] == [sum(c) for c in zip(*(count[q] for count in counts), strict=True)], q


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_equal_the_reference(kind: str) -> None:
    rng = dice(f"encoder {kind}")
    bench, tables = ready_bench(
        rng,
        no_memory=rng.choice((0, 0.5, 0.97)),
        no_grant=rng.choice((0, 0.3)),
        no_ready=rng.choice((0, 0.2, 0.8)),
    )
    sizes = (1, rng.randrange(2, 33), rng.randrange(33, 500), rng.randrange(1025, 1500))
    blocks = [random_block(kind, size, tables, rng) for size in rng.sample(sizes, 4)]
    bench.code(blocks)
    check_all(bench, blocks)


def test_dense_blocks_take_a_clock_a_value() -> None:
    rng = dice("encoder dense")
    bench, tables = ready_bench(rng)
    blocks = [random_block("noise", 3072, tables, rng) for _ in range(2)]
    for block in blocks:
        block.thinning = 2
    begins = bench.sim.clocks
    bench.code(blocks)
    check_all(bench, blocks)
    assert 2 * 3072 / (bench.done_at - begins) > 0.94


def test_a_block_of_128_groups_is_passed_over() -> None:
    rng = dice("encoder big")
    bench, tables = ready_bench(rng)
    values = [0] * (1 << 17)
    for _ in range(6):
        values[rng.randrange(len(values))] = rng.randrange(1, 30000)
    blocks = [Block(values, [rng.randrange(16) for _ in values], tables[0], 1)]
    bench.code(blocks)
    check_all(bench, blocks)
    assert bench.sim.clocks < 40000


def test_bytes_wait_for_a_taker() -> None:
    rng = dice("encoder wait")
    bench, tables = ready_bench(rng, no_ready=1.0)
    blocks = [random_block("wide", 2600, tables, rng)]
    bench.queue += blocks
    bench.sim.run(6000)
    assert not bench.results
    bench.no_ready = 0.5
    bench.code([], results=1)
    check_all(bench, blocks)


def test_a_reset_forgets_the_block() -> None:
    rng = dice("encoder reset")
    bench, tables = ready_bench(rng, no_ready=0.3)
    for _ in range(6):
        kind = rng.choice(KINDS)
        bench.queue.append(random_block(kind, rng.randrange(1, 500), tables, rng))
        bench.sim.run(rng.randrange(1, 400))
        bench.reset()
        blocks = [random_block(rng.choice(KINDS), rng.randrange(1, 200), tables, rng)]
        bench.code(blocks)
        check_all(bench, blocks)
        bench.sim.run(rng.randrange(64))


def test_wrong_descriptors_are_bad_and_end() -> None:
    rng = dice("encoder bad")
    bench, tables = ready_bench(rng, no_memory=0.5)
    for _ in range(4):
        block = random_block("steps", rng.randrange(64, 1500), tables, rng)
        for row in block.rows:
            row.row_class = rng.randrange(16)
        bench.forget()
        bench.code([block])
        result = bench.results[0]
        assert result.constant or len(bench.streams[0]) == result.size
        assert result.bad == block.impossible(result.seeds)
    bench.forget()
    blocks = [random_block("dead", 700, tables, rng)]
    bench.code(blocks)
    check_all(bench, blocks)
