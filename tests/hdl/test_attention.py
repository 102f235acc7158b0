"""attention_unit: its twin is near exact attention, and the RTL gives what the twin gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.planning.offload import AttentionUnits
from oscar_hdl.attention.attention_unit import attention_unit
from oscar_hdl.attention.packets import query_packet, read_result, result_packet, row_packet
from oscar_hdl.attention.twin import ERROR, MOST_ROWS, attend, attend_many, merged, scale_of
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.attention_stress import AttentionUnit, HeadPackets, Stalls, random_head
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice, numbers

pytestmark = pytest.mark.usefixtures("seed")
KINDS = ("even", "peaked", "rising", "sink")


def exact(q: Any, k: Any, v: Any, octaves: float) -> Any:
    """Return attention in float64 of (n, d), (n, t, d), (n, t, d)."""
    scores = (k.astype(float) @ q.astype(float)[:, :, None])[:, :, 0] * octaves
    weights = 2.0 ** (scores - scores.max(axis=1, keepdims=True))
    return ((weights / weights.sum(axis=1, keepdims=True))[:, None] @ v.astype(float))[:, 0]


def heads(rng: np.random.Generator, kind: str, n: int, rows: int) -> tuple[Any, Any, Any, float]:
    """Return queries, keys, values and the octaves of a unit of a score, of n heads that look like `kind`."""
    q, k = (
        np.clip(np.rint(rng.normal(0, 30, s)), -128, 127).astype(np.int8) for s in ((n, 64), (n, rows, 64))
    )
    v = rng.integers(-128, 128, (n, rows, 64)).astype(np.int8)
    if kind == "rising":
        k = np.sort(k, axis=1)
    if kind == "sink":  # one row weighs much, all others little, and differ from it
        k[:, 0], v[:, 1:] = q, np.where(v[:, 1:] < 0, -128, 127)
    return q, k, v, (8 if kind == "peaked" else 1) * np.log2(np.e) / (900 * 8)


def test_the_error_is_below_its_bound_over_a_million_rows() -> None:
    rng, rows, worst = numbers(1), 0, 0.0
    for kind in KINDS:
        for count, n in ((64, 1000), (512, 200), (2048, 50)):
            q, k, v, octaves = heads(rng, kind, n, count)
            mantissa, shift = scale_of(octaves)
            out, _, _ = attend_many(q, k, v, np.full(n, mantissa), np.full(n, shift))
            worst = max(worst, np.abs(out / 256 - exact(q, k, v, octaves)).max())
            rows += n * count
    assert rows > 1_000_000
    assert 0.01 < worst < ERROR


def test_the_worst_case_is_near_the_bound() -> None:
    """Two rows of equal weight but for a fraction that is just below the next one in the table."""
    q, k = np.zeros(64, np.int8), np.zeros((2, 64), np.int8)
    q[0], k[1, 0], v = 1, 127, np.array([[-128], [127]], np.int8).repeat(64, axis=1)
    mantissa, shift = scale_of(0.99 / 256 / 127)
    out = attend(q, k, v, mantissa, shift).as_floats()
    error = np.abs(out - exact(q[None], k[None], v[None], mantissa * 2.0 ** -(shift + 8))[0]).max()
    assert 0.16 < error < ERROR


def test_parts_of_a_context_are_merged() -> None:
    q, k, v, octaves = heads(numbers(2), "even", 1, 300)
    mantissa, shift = scale_of(octaves)
    cuts = np.sort(numbers(3).choice(np.arange(1, 300), 3, replace=False))
    both = zip(np.split(k[0], cuts), np.split(v[0], cuts), strict=True)
    parts = [attend(q[0], keys, values, mantissa, shift) for keys, values in both]
    assert np.abs(merged(parts) - exact(q, k, v, octaves)[0]).max() < ERROR
    assert np.array_equal(merged(parts[:1]), parts[0].as_floats())


def test_what_a_unit_does_not_take_is_refused() -> None:
    row = np.zeros((1, 64), np.int8)
    for wrong in (0.0, -1.0, np.inf, 1.0, 2.0**-50):
        with pytest.raises(ValueError, match="factor"):
            scale_of(wrong)
    for width in (56, 68, 136):
        with pytest.raises(ValueError, match="128 values"):
            attend(row[0, :1].repeat(width), *(row[:, :1].repeat(width, axis=1),) * 2, 1, 15)
    with pytest.raises(ValueError, match="do not belong together"):
        attend(row[0], row, row.repeat(2, axis=0), 1, 15)


def streamed(given: list[HeadPackets], idle: float, busy: float) -> list[list[int]]:
    """Return the results that MyHDL's block gives, as packets."""
    clk, rst, refused, rng = bit(), bit(), word(16), dice(4)
    queries, rows, result = Stream(64), Stream(64), Stream(64)
    top = attention_unit(clk, rst, queries, rows, result, refused)
    waiting = [
        [(int(x), n == len(packet) - 1) for packet in packets for n, x in enumerate(packet)]
        for packets in ([head.query for head in given], [head.rows for head in given])
    ]
    got: list[list[int]] = [[]]

    def each() -> None:
        for stream, words in zip((queries, rows), waiting, strict=True):
            if stream.tvalid and stream.tready:
                stream.tvalid.next = False
            if (not stream.tvalid or stream.tready) and words and rng.random() >= idle:
                stream.tdata.next, stream.tlast.next = words.pop(0)
                stream.tvalid.next = True
        if result.tvalid and result.tready:
            got[-1].append(int(result.tdata))
            if result.tlast:
                got.append([])
        result.tready.next = rng.random() >= busy

    simulator = CycleSimulator(top, clk, each)
    while len(got) <= len(given):
        simulator.run(100)
        assert simulator.clocks < 40_000
    assert int(refused) == sum(head.refused for head in given)
    return got[:-1]


def test_the_unit_gives_what_its_twin_gives_whatever_the_pauses() -> None:
    given = [random_head(numbers(5 + n), 12, wrong=0.3 * n) for n in range(3)]
    wanted = [head.result.tolist() for head in given]
    assert streamed(given, 0, 0) == streamed(given, 0.4, 0.4) == wanted


@pytest.mark.parametrize("value", [-128, 127])
def test_sums_hold_the_longest_head(value: int) -> None:
    """All rows weigh most, and all values are at a limit: sums of 56 bits and a total of 48."""
    needs("verilator", "g++", "make")
    q, k = np.zeros(64, np.int8), np.zeros((MOST_ROWS, 64), np.int8)
    q[0], k[:, 0] = 64, 2
    mantissa, shift = scale_of(255.1 / 256 / 128)
    v = np.full((MOST_ROWS, 64), value, np.int8)
    wanted = attend(q, k, v, mantissa, shift)
    assert wanted.total >= MOST_ROWS * 0xFF4E << 16
    assert set(wanted.values.tolist()) == {256 * value}
    packets = query_packet(q, MOST_ROWS, mantissa, shift), row_packet(k, v), result_packet(wanted)
    _, found = AttentionUnit().run([HeadPackets(*packets, refused=False)], Stalls(), 1)
    assert found == []


def test_the_planner_has_the_clocks_of_the_rtl() -> None:
    needs("verilator", "g++", "make")
    unit, rng = AttentionUnit(), numbers(7)
    for words, rows in ((8, 3), (8, 93), (8, 94), (16, 94), (11, 200)):
        row = np.zeros((rows, 8 * words), np.int8)
        packets = query_packet(row[0], rows, 1, 15), row_packet(row, row)
        head = HeadPackets(*packets, result_packet(attend(row[0], row, row, 1, 15)), refused=False)
        few, many = int(rng.integers(2, 4)), int(rng.integers(4, 7))
        clocks = [unit.run([head] * n, Stalls(), 1)[0] for n in (few, many)]
        assert clocks[1] - clocks[0] == (many - few) * AttentionUnits.clocks(rows, 8 * words)


def test_results_are_read_as_they_are_given() -> None:
    q, k, v, octaves = heads(numbers(6), "sink", 1, 9)
    wanted = attend(q[0], k[0], v[0], *scale_of(octaves))
    got = read_result(result_packet(wanted))
    assert (got.top, got.total) == (wanted.top, wanted.total)
    assert np.array_equal(got.values, wanted.values)
    with pytest.raises(ValueError, match="refused a head: too few rows"):
        read_result(np.array([2], np.uint64))
