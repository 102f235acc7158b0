"""quantiser: floats become the host's integers, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from needs import needs
from oscar.numerics.quantiser import MAX_BITS, MIN_BITS
from oscar.numerics.saturation import rounded
from oscar_hdl.flow.placement import parts
from oscar_hdl.nic.memory.ports import STREAM_LANES, FloatFormat
from oscar_hdl.nic.memory.quantiser import LATENCY, quantiser
from oscar_hdl.nic.ports import (
    BFLOAT16,
    FLOAT32,
    LEAST_EXPONENT,
    LEAST_WIDTH,
    MOST_WIDTH,
    NO_STEP,
    STREAM_BITS,
)
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.compiled import copy_of
from oscar_sim.seeds import dice
from oscar_sim.verilator import Model

pytestmark = pytest.mark.usefixtures("seed")

NOT_FINITE = -0x8000
# Zeros, Inf, NaN, the largest float, the least normal one, the largest denormal one, the least one.
ODD = 0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x7F7FFFFF, 0x00800000, 0x807FFFFF, 1
Integers = tuple[np.ndarray, np.ndarray]
Run = Callable[[np.ndarray, int, int, int], Integers]  # words u32 [n, 4], format, exponent, bits


def floats(rng: np.random.Generator, exponent: int, bits: int, count: int) -> np.ndarray:
    """Return float32: any bits, around steps, ties and the limit, denormals, zeros, NaN, Inf."""
    raw = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    limit = (1 << bits - 1) - 1
    near = rng.standard_normal(count) * np.exp2(rng.integers(-3, bits + 1, count))
    ties = rng.integers(-limit - 2, limit + 3, count) + 0.5 * rng.integers(-1, 2, count)
    by_step = np.where(rng.random(count) < 0.5, near, ties).astype(np.float32)
    with np.errstate(over="ignore"):
        steps = np.ldexp(by_step, np.int32(exponent))
        shaken = np.nextafter(steps, np.float32(rng.choice([-np.inf, np.inf])))
    signs = rng.integers(0, 2, count, dtype=np.uint32) << 31
    small = (rng.integers(0, 1 << 24, count, dtype=np.uint32) | signs).view(np.float32)
    odd = rng.choice(np.array(ODD, np.uint32), count).view(np.float32)
    kinds = np.stack([raw, steps, steps, shaken, small, odd])
    return kinds[rng.integers(0, len(kinds), count), np.arange(count)]


def expected(values: np.ndarray, exponent: int, bits: int) -> Integers:
    """Return the host's integers, NOT_FINITE where a value is NaN or Inf, and which of both or saturated."""
    finite = np.isfinite(values)
    integers, whole = rounded(np.where(finite, values, 0), np.int32(exponent), (1 << bits - 1) - 1, None)
    return np.where(finite, integers, NOT_FINITE), ~finite | (integers != whole)


def compare(run: Run, rng: np.random.Generator, words: int, exponent: int, bits: int) -> None:
    """Compare both formats with the host."""
    values = floats(rng, exponent, bits, 4 * words)
    integers, marks = run(values.view(np.uint32).reshape(-1, 4), FLOAT32, exponent, bits)
    wanted = expected(values, exponent, bits)
    np.testing.assert_array_equal(integers.reshape(-1), wanted[0])
    np.testing.assert_array_equal(marks.reshape(-1), wanted[1])
    upper = floats(rng, exponent, bits, 8 * words).view(np.uint32) >> 16
    integers, marks = run(upper.astype("<u2").view(np.uint32).reshape(-1, 4), BFLOAT16, exponent, bits)
    wanted = expected((upper << 16).astype(np.uint32).view(np.float32), exponent, bits)
    np.testing.assert_array_equal(integers.reshape(-1), wanted[0])
    np.testing.assert_array_equal(marks.reshape(-1), wanted[1])


def exponents(rng: np.random.Generator, count: int) -> list[int]:
    """Return exponents of steps, the outermost among them."""
    ends = LEAST_EXPONENT, LEAST_EXPONENT + 1, 105, 112, 120, 127, NO_STEP
    return [*ends, *rng.integers(LEAST_EXPONENT, 121, count).tolist()]


def early_of(words: int, form: int) -> np.ndarray:
    """Return in which clocks the first four of eight float32 are there."""
    late = np.arange(words + LATENCY) - LATENCY
    return (form == FLOAT32) & (late >= 0) & (late % 2 == 0)


def results(data: np.ndarray, marks: np.ndarray, words: int, form: int) -> Integers:
    """Return integers and marks of what a run saw, u8 [clocks, 16] and u8 [clocks]."""
    each = slice(LATENCY + (form == FLOAT32), LATENCY + words, 1 + (form == FLOAT32))
    integers = np.ascontiguousarray(data[each]).view("<i2")
    return integers, (marks[each, None] >> np.arange(STREAM_LANES) & 1).astype(bool)


def test_the_block_gives_the_integers_of_the_host() -> None:
    rng = np.random.default_rng(dice("quantiser").getrandbits(32))
    clk, data, early, how = bit(), word(STREAM_BITS), bit(), FloatFormat()
    integers, marks = word(STREAM_BITS), word(STREAM_LANES)
    ports = [data, early, how, integers, marks]
    sim = copy_of(
        "quantiser", lambda: quantiser(clk, *ports, bank=0), clk, lambda: None, ports
    )  # fmt: skip

    def run(words: np.ndarray, form: int, exponent: int, bits: int) -> Integers:
        how.format.next, how.base.next = form, exponent + 150
        how.least.next, how.limit.next = 25 - bits, (1 << bits - 1) - 1
        seen = []
        for n, first in enumerate(early_of(len(words), form)):
            data.next = int.from_bytes(words[min(n, len(words) - 1)].tobytes(), "little")
            early.next = bool(first)
            sim.run(1)
            seen.append((int(integers).to_bytes(16, "little"), int(marks)))
        raw, marked = zip(*seen, strict=True)
        data_seen = np.frombuffer(b"".join(raw), np.uint8).reshape(-1, 16)
        return results(data_seen, np.array(marked), len(words), form)

    assert (LEAST_WIDTH, MOST_WIDTH) == (MIN_BITS, MAX_BITS)
    for exponent in exponents(rng, 3):
        compare(run, rng, 40, exponent, int(rng.integers(8, 17)))


def test_converted_rtl_gives_the_integers_of_the_host() -> None:
    needs("verilator", "g++", "make")
    rng = np.random.default_rng(dice("quantiser converted").getrandbits(32))
    model = Model(f"{parts.__name__}:quantiser")

    def run(words: np.ndarray, form: int, exponent: int, bits: int) -> Integers:
        model["packet_format"], model["packet_limit"] = form, (1 << bits - 1) - 1
        model["packet_base"], model["packet_least"] = exponent + 150, 25 - bits
        padded = np.concatenate([words, words[:LATENCY]])
        seen = model.run({"data": padded, "early": early_of(len(words), form)}, ["integers", "marks"])
        return results(seen["integers"].view(np.uint8), seen["marks"], len(words), form)

    for exponent in exponents(rng, 60):
        compare(run, rng, 4000, exponent, int(rng.integers(8, 17)))
