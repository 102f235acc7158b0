"""Random heads through an attention unit: any numbers, gaps and back-pressure, packets that are wrong."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oscar_hdl.attention.packets import query_packet, result_packet, row_packet
from oscar_hdl.attention.ports import QUERY, TOO_FEW, TOO_MANY
from oscar_hdl.attention.query_store import ROWS_AT, WORDS_AT
from oscar_hdl.attention.twin import LANES, LEAST_SHIFT, LEAST_WORDS, MOST_ROWS, MOST_WORDS, attend
from oscar_sim.frames import Generator
from oscar_sim.units import faults
from oscar_sim.verilator import Model

HARNESS = Path(__file__).parent / "verilator" / "attention_unit.cpp"
HEADS = 40  # of a batch
SHARES = (0, 0, 0.1, 0.5)
RESETS, WRONG = 0.3, 0.15  # shares of batches, of heads


class _Words(ctypes.Structure):  # struct Words of attention_unit.cpp
    _fields_ = (("data", ctypes.c_void_p), ("last", ctypes.c_void_p), ("count", ctypes.c_uint64))


class _Heads(ctypes.Structure):  # struct Heads
    _fields_ = (
        ("queries", _Words), ("rows", _Words), ("results", _Words), ("idle", ctypes.c_uint32),
        ("busy", ctypes.c_uint32), ("refuse", ctypes.c_uint32), ("reset_at", ctypes.c_int64),
    )  # fmt: skip


@dataclass(frozen=True)
class HeadPackets:
    """What a head is given and has to answer; refused: its answer is a reason."""

    query: np.ndarray
    rows: np.ndarray
    result: np.ndarray
    refused: bool


@dataclass(frozen=True)
class Stalls:
    """Shares of 65,536 clocks: queries idle, rows idle, results are not taken; reset_at: a clock, or -1."""

    queries: int = 0
    rows: int = 0
    results: int = 0
    reset_at: int = -1


class AttentionUnit:
    """A converted attention_unit under Verilator."""

    def __init__(self) -> None:
        self.model = Model("attention_unit", harness=HARNESS)
        self._run = self.model.library.attention_unit_run
        self._run.restype = ctypes.c_uint64
        self._run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64,
                              ctypes.c_void_p, ctypes.c_void_p]  # fmt: skip

    def run(self, heads: Sequence[HeadPackets], stalls: Stalls, seed: int) -> tuple[int, list[str]]:
        """Run heads from a reset on; return clocks, and what was wrong."""
        wanted, ends = _stream([head.result for head in heads])
        got = np.zeros(wanted.size + 99, np.uint64), np.zeros(wanted.size + 99, np.uint8)
        given = [_stream([head.query for head in heads]), _stream([head.rows for head in heads])]
        told = [_Words(data.ctypes.data, last.ctypes.data, data.size) for data, last in (*given, got)]
        batch = _Heads(*told, stalls.queries, stalls.results, stalls.rows, stalls.reset_at)
        bits, refused = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        clocks = self._run(
            self.model.handle, ctypes.addressof(batch), seed, wanted.size, bits.ctypes.data,
            refused.ctypes.data,
        )  # fmt: skip
        result = [text] if (text := faults(int(bits[0]))) else []
        count = batch.results.count
        if count != wanted.size:
            result.append(f"{count} words of results, not {wanted.size}")
        size = min(count, wanted.size)
        differ = (got[0][:size] != wanted[:size]) | (got[1][:size] != ends[:size])
        if differ.any():
            at = int(np.argmax(differ))
            starts = np.cumsum([head.result.size for head in heads])
            result.append(f"result {int(np.searchsorted(starts, at, 'right'))} of {len(heads)} differs")
        bad = sum(head.refused for head in heads)
        if not result and int(refused[0]) != bad:
            result.append(f"counts {int(refused[0])} heads as refused, not {bad}")
        return int(clocks), result


def _stream(packets: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of packets, and which are the last of one."""
    last = np.zeros(sum(packet.size for packet in packets), np.uint8)
    last[np.cumsum([packet.size for packet in packets]) - 1] = 1
    return np.concatenate(packets).astype(np.uint64), last


def _numbers(rng: np.random.Generator, rows: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a query, keys and values: of any size, at their limits, rising, with one row above all."""
    shape = rows, width
    if (kind := str(rng.choice(["even", "small", "limits", "rising", "above"]))) == "limits":
        ends = np.array([-128, -128, 127, 0], np.int8)
        return rng.choice(ends[:2], width), rng.choice(ends, shape), rng.choice(ends, shape)
    most = 128 if kind == "even" else int(rng.integers(1, 60))
    query = rng.integers(-most, most, width).astype(np.int8)
    keys = rng.integers(-most, most, shape).astype(np.int8)
    if kind == "rising":
        keys = np.sort(keys, axis=0)
    elif kind == "above":
        keys[int(rng.integers(rows))] = query
    return query, keys, rng.integers(-128, 128, shape).astype(np.int8)


def _wrong(rng: np.random.Generator, query: np.ndarray, rows: np.ndarray) -> HeadPackets:
    """Return a head whose query, or whose rows, are not as they should be."""
    query, reason = query.copy(), QUERY
    kind = int(rng.integers(0, 5))
    fields = int(query[0])
    if kind == 0:
        words = int(rng.choice([*range(LEAST_WORDS), *range(MOST_WORDS + 1, 32)]))
        query[0] = np.uint64(fields & ~(31 << WORDS_AT) | words << WORDS_AT)
    elif kind == 1:
        count = int(rng.choice([0, rng.integers(MOST_ROWS + 1, 2 * MOST_ROWS)]))
        query[0] = np.uint64(fields & (1 << ROWS_AT) - 1 | count << ROWS_AT)
    elif kind == 2:
        query = np.resize(query, int(rng.choice([n for n in range(1, 40) if n != query.size])))
    elif kind == 3:
        rows, reason = rows[: int(rng.integers(1, rows.size))], TOO_FEW
    else:
        rows, reason = np.resize(rows, rows.size + int(rng.integers(1, 60))), TOO_MANY
    return HeadPackets(query, rows, np.array([reason], np.uint64), refused=True)


def random_head(rng: np.random.Generator, most_rows: int, *, wrong: float = 0.0) -> HeadPackets:
    """Return a head of up to so many rows; wrong: the share of those that are to be refused."""
    width = LANES * int(rng.integers(LEAST_WORDS, MOST_WORDS + 1))
    rows = int(rng.choice([1, 2, rng.integers(1, 1 + min(40, most_rows)), rng.integers(1, most_rows + 1)]))
    query, keys, values = _numbers(rng, rows, width)
    mantissa, shift = int(rng.integers(0, 1 << 16)), LEAST_SHIFT + int(rng.integers(0, 32))
    packets = query_packet(query, rows, mantissa, shift), row_packet(keys, values)
    if rng.random() < wrong:
        return _wrong(rng, *packets)
    result = result_packet(attend(query, keys, values, mantissa, shift))
    return HeadPackets(*packets, result, refused=False)


def attended(unit: AttentionUnit, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch of random heads through a unit; return what was wrong."""
    rng = generate.rng
    most_rows = max(1, min(MOST_ROWS, generate.largest // (LANES * MOST_WORDS)))
    heads = [random_head(rng, most_rows, wrong=WRONG) for _ in range(HEADS)]
    words = sum(head.rows.size for head in heads)
    reset_at = int(rng.integers(0, words + 500 * HEADS)) if rng.random() < RESETS else -1
    shares = [int(65536 * rng.choice(SHARES)) for _ in range(3)]
    clocks, result = unit.run(heads, Stalls(*shares, reset_at), seed)
    tally["clocks"] += clocks
    tally["blocks"] += len(heads)
    tally["values"] += words * LANES
    tally["resets"] += reset_at >= 0
    tally["refused"] += sum(head.refused for head in heads)
    tally["hangs"] += sum("hangs" in fault for fault in result)
    tally["mismatches"] += len(result)
    return result
