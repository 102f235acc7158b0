"""receiver with frames of the host's coder: every block's bytes reach its unit, and nothing wrong gets in."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from oscar_sim.receiver_bench import Bench, blocks_of

from oscar.coding.asc import AscParams, Encoder
from oscar_sim.seeds import dice


def draw(rng: random.Random, count: int, kind: str) -> np.ndarray:
    """Return values of 16 bits that blocks of that kind are made of."""
    r = np.random.default_rng(rng.getrandbits(64))
    if kind == "constant":
        return np.full(count, rng.choice([0, 0, 1, -1, -32768, 32767, rng.randrange(-9999, 9999)]))
    if kind == "raw":
        bits = rng.randrange(1, 16)
        return r.integers(-(1 << bits), 1 << bits, count)
    return np.rint(r.laplace(0, 2.0 ** rng.uniform(-2, 7), count)).clip(-32768, 32767)


def values_of(rng: random.Random, count: int, size: int) -> np.ndarray:
    """Return values whose blocks are of all kinds."""
    kinds = [rng.choice(["coded", "coded", "coded", "raw", "constant"]) for _ in range(0, count, size)]
    parts = [draw(rng, min(size, count - n * size), kind) for n, kind in enumerate(kinds)]
    return np.concatenate(parts).astype(np.int16)


def encode(rng: random.Random, count: int, log2: int, encoder: Any = None, **fields: int) -> bytes:
    """Return a frame."""
    encoder = encoder or Encoder(AscParams(block_log2=log2))
    return encoder.encode(values_of(rng, count, 1 << log2), step=fields.pop("step", 3), width=16, **fields)


@pytest.mark.parametrize(
    ("units", "gaps", "speed", "depth"), [(4, 0.0, 1.0, 512), (4, 0.3, 0.3, 16), (1, 0.1, 1.0, 8), (6, 0.0, 0.5, 16)]
)
def test_blocks_reach_their_units(units: int, gaps: float, speed: float, depth: int):
    rng = dice(f"receiver {units} {speed}")
    bench = Bench(rng, units=units, gaps=gaps, speed=speed, depth=depth, store_log2=11)
    encoders = [Encoder(AscParams(block_log2=log2)) for log2 in (10, 11, 12)]
    for n in range(4):
        at = rng.randrange(3)
        count = rng.choice([1, 31, 1024, rng.randrange(1, 6000), rng.randrange(1, 6000)])
        frame = encode(rng, count, 10 + at, encoders[at], chunk=rng.getrandbits(16), sub=rng.getrandbits(8))
        bench.send(frame)
        tables, blocks = blocks_of(frame, units)
        assert bench.receive(frame, load=at, save=at + 3, fresh=rng.getrandbits(1)) == 0
        assert {k: bench.built[-1][k] for k in tables} == tables
        assert sorted(map(repr, bench.finished)) == sorted(map(repr, blocks))
        assert [repr((b.unit, b.base)) for b in bench.given] == [repr((b.unit, b.base)) for b in blocks]
        assert {shared[:2] for shared in bench.shared} <= {(n & 1, n & 1)}
        assert bench.learns[-1][2:] == (at + 3, n & 1)
        bench.finished.clear()
        bench.given.clear()
        bench.shared.clear()
    assert not bench.bads
