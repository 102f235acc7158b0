"""What the compiled twin relies on beyond plain integers: vectors of twelve, exact floats, ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.decode_kernels import count_below
from oscar.numerics import simd as lanes


@njit
def quotients(x: Any, f: Any, out: Any) -> None:
    for o in range(0, len(x), 12):
        at = np.uint64(o)
        lanes.store(out, at, lanes.quotient(lanes.load(x, at), lanes.load(f, at)))


@njit
def lengths(x: Any, out: Any) -> None:
    for o in range(0, len(x), 12):
        lanes.store(out, np.uint64(o), lanes.bit_lengths(lanes.load(x, np.uint64(o))))


@njit
def ranks(rows: Any, row: int, out: Any) -> None:
    for slot in range(4096):
        out[slot] = count_below(rows, np.uint64(16 * row), np.uint32(slot))


def test_division_in_single_precision_is_exact_at_every_step() -> None:
    k = np.arange(1, 4097, dtype=np.int32)
    out = np.zeros(12 * -(-2 * 4096 // 12), np.int32)
    for f in range(
        1, 4097
    ):  # the quotient is monotone: right on both sides of every multiple, right everywhere
        x = np.zeros_like(out)
        x[:4096], x[4096:8191] = k * f - 1, k[:-1] * f
        quotients(x, np.full(out.size, f, np.int32), out)
        np.testing.assert_array_equal(out[:8191], np.concatenate([k - 1, k[:-1]]))


def test_bit_lengths_come_from_exponents() -> None:
    x = np.arange(4104, dtype=np.int32)
    out = np.zeros_like(x)
    lengths(x, out)
    assert out.tolist() == [int(v).bit_length() for v in x]


def test_a_symbol_is_how_many_thresholds_lie_below_its_slot() -> None:
    rng = np.random.default_rng(0)
    ends = np.sort(rng.choice(np.arange(1, 4096), 15, replace=False))
    rows = np.concatenate([np.zeros(16), ends - 1, [4095]]).astype(np.int16)
    out = np.zeros(4096, np.int64)
    ranks(rows, 1, out)
    np.testing.assert_array_equal(out, np.searchsorted(ends, np.arange(4096), side="right"))
