"""Frames of format 4 taken apart for the units of a NIC: rows, tables, blocks, and what each counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.coding.asc.params import (
    BASE,
    CODED,
    DIRECTORY_BYTES,
    FLUSH_BYTES,
    GROUP,
    GROUP_ROWS,
    LANES,
    MASK_BYTES,
    NARROW_CLASS,
    PREFIX_BYTES,
    SAMPLE,
    SENT_ROW_BYTES,
    SYMBOLS,
    TABLE_ROWS,
    VALUE_ROWS,
    WIDE_SHIFT,
    AscParams,
    context_of,
    count_step,
    counted_lane,
    group_cycle,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.errors import FrameError
from oscar_hdl.coder.rows import LEAST_DISTANCE, MOST_DISTANCE, FrameRows, frame_rows

COUNTS = TABLE_ROWS * 16
TABLE_BITS = 50  # of TableWrites.data
ENTRY = np.dtype([
    ("kind", "u4"), ("seeds", "u4"), ("first", "u4"), ("last", "u4"), ("size", "u4"), ("at", "u4"),
    ("bits", "u4"), ("value", "i4"), ("count", "u4"),
])  # fmt: skip


@dataclass(frozen=True)
class CodedFrame:
    """A frame of values of up to 16 bits, and all that a NIC makes of it.

    payload: whole; entries: of the directory (ENTRY), `at` in the payload; freq: (32, 16), of the frame's
    tables; counts: (blocks, 512), what tables learn from each block; before: the tables' state.
    """

    rows: FrameRows
    positions: np.ndarray
    log2: int
    last: int
    payload: np.ndarray
    entries: np.ndarray
    freq: np.ndarray
    counts: np.ndarray
    before: TableState

    def span(self, block: int) -> slice:
        """Return the rows of a block."""
        size = 1 << (self.log2 - 5)
        return slice(block * size, min((block + 1) * size, self.rows.means.size))

    def bytes_of(self, block: int) -> np.ndarray:
        """Return the bytes of a block."""
        entry = self.entries[block]
        return self.payload[int(entry["at"]) : int(entry["at"]) + int(entry["size"])]


class Coder:
    """Codes frames as a sender does; `sent_rows` only where a sender of software is to be had."""

    def __init__(self, *, log2: int = 12, sent_rows: bool = False) -> None:
        self.params = AscParams(block_log2=log2, sent_rows=sent_rows)
        self.coder = CompiledCoder(self.params, 1)

    def encode(self, values: np.ndarray, positions: np.ndarray, state: TableState) -> CodedFrame:
        """Return the frame of 1-D `values`, int16; `state` learns."""
        rows, before = frame_rows(values, positions), state.copy()
        payload = np.frombuffer(
            self.coder.encode(np.ascontiguousarray(values, np.int16), positions, 16, state), np.uint8
        ).copy()
        prefix = int(payload[0]) | int(payload[1]) << 8
        at = PREFIX_BYTES
        if prefix >> 10 & 1:
            mask = int.from_bytes(payload[at : at + MASK_BYTES].tobytes(), "little")
            at += MASK_BYTES + SENT_ROW_BYTES * mask.bit_count()
        log2 = prefix & 31
        entries = directory(payload, at, rows.count, log2)
        return CodedFrame(
            rows, positions, log2, prefix >> 11 & 15, payload, entries, self.coder.memory.freq.copy(),
            counted(rows, log2), before,
        )  # fmt: skip

    def decode_block(
        self, frame: CodedFrame, block: int, data: bytes, *, seeds: int, first: int, last: int
    ) -> np.ndarray | None:
        """Return what a block of `frame` is with other bytes and groups; None if a decoder refuses it.

        Raises ValueError for what the directory's check would refuse before. Sent rows are not known here.
        """
        count = int(frame.entries[block]["count"])
        if (
            not FLUSH_BYTES <= len(data) < 2 * count
            or seeds > 5
            or not first <= last
            or last * GROUP >= count
        ):
            raise ValueError("no decoder would be given this block")
        entry = CODED | seeds << 2 | first << 5 | last << 12 | len(data) << 24
        payload = (max(10, min(17, frame.log2)) | frame.last << 11).to_bytes(2, "little")
        payload += entry.to_bytes(DIRECTORY_BYTES, "little") + bytes(data)
        rows = frame.span(block)
        begin = rows.start * LANES
        out = np.zeros(count, np.int16)
        try:
            self.coder.decode(
                memoryview(payload), count, frame.positions[begin : begin + count], 16, frame.before.copy(),
                out, None,
            )  # fmt: skip
        except FrameError:
            return None
        return out


def directory(payload: np.ndarray, at: int, count: int, log2: int) -> np.ndarray:
    """Return the entries of a payload's blocks."""
    number = -(-count >> log2)
    raw = payload[at : at + DIRECTORY_BYTES * number].reshape(number, DIRECTORY_BYTES).astype(np.uint64)
    words = sum(raw[:, i] << np.uint64(8 * i) for i in range(DIRECTORY_BYTES))
    entries = np.zeros(number, ENTRY)
    for name, low, bits in (
        ("kind", 0, 2),
        ("seeds", 2, 3),
        ("first", 5, 7),
        ("last", 12, 7),
        ("size", 24, 24),
    ):
        entries[name] = words >> np.uint64(low) & np.uint64((1 << bits) - 1)
    entries["bits"] = words >> np.uint64(2) & np.uint64(63)
    entries["value"] = (words >> np.uint64(16) & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    entries["size"][entries["kind"] == 2] = 0
    entries["at"] = at + DIRECTORY_BYTES * number + np.cumsum(entries["size"]) - entries["size"]
    entries["count"] = np.minimum(1 << log2, count - (np.arange(number) << log2))
    return entries


@cache
def _contexts() -> np.ndarray:
    """Return contexts by class, distance and mean; distances are what they were clamped to."""
    table = np.zeros((16, MOST_DISTANCE - LEAST_DISTANCE + 1, 16), np.int64)
    for (row_class, distance, mean), _ in np.ndenumerate(table):
        if row_class:
            table[row_class, distance, mean] = context_of(row_class, mean + distance + LEAST_DISTANCE, mean)
    return table


def counted(rows: FrameRows, log2: int) -> np.ndarray:
    """Return what tables learn from each block of a frame, (blocks, 512)."""
    number = -(-rows.count >> log2)
    total, at = rows.means.size, np.arange(rows.means.size)
    block = at >> (log2 - 5)
    classes = rows.classes.astype(np.int64)
    live = np.add.reduceat((classes > 0).astype(np.int64), np.arange(0, total, GROUP_ROWS))
    steps = np.array([count_step(rows.count, n) for n in range(GROUP_ROWS + 1)])[live]
    counts = np.zeros((number, COUNTS), np.int64)
    of_classes = (live > 0)[at // GROUP_ROWS]
    where = (VALUE_ROWS + np.minimum(7, rows.means.astype(np.int64))) << 4 | classes
    row, group = at % GROUP_ROWS, at // GROUP_ROWS % group_cycle(log2)
    of_classes &= row % SAMPLE == group
    np.add.at(counts, (block[of_classes], where[of_classes]), SAMPLE)
    step = steps[at // GROUP_ROWS]
    taken = np.flatnonzero((classes > 0) & ((row // SAMPLE + group) % step == 0))
    if not taken.size:
        return counts
    shift = np.array([0] * (NARROW_CLASS + 1) + list(WIDE_SHIFT))[classes[taken]]
    high = np.abs(rows.values[taken].astype(np.int64) >> shift[:, None])
    symbols = np.searchsorted(BASE, high, "right") - 1
    contexts = _contexts()[classes[taken, None], rows.distances[taken], rows.means[taken, None]]
    index = block[taken, None] * COUNTS + (contexts << 4 | symbols)
    weight = np.broadcast_to(SAMPLE * step[taken, None], index.shape)
    first = np.array([counted_lane(int(j), int(g)) for j, g in zip(row[taken], group[taken], strict=True)])
    there = (np.arange(LANES) - first[:, None]) % SAMPLE == 0
    there &= taken[:, None] * LANES + np.arange(LANES) < rows.count
    flat = np.bincount(index[there], weight[there], minlength=counts.size).astype(np.int64)
    return counts + flat.reshape(counts.shape)


def table_writes(freq: np.ndarray, bank: int) -> np.ndarray:
    """Return what a frame's tables are written with, in order: data, address << TABLE_BITS."""
    c = np.zeros((TABLE_ROWS, SYMBOLS + 1), np.uint64)
    np.cumsum(freq, axis=1, out=c[:, 1:])
    c &= np.uint64(1023)
    data = sum(c[:, i : SYMBOLS - 3 + i : 4] << np.uint64(10 * i) for i in range(5))
    address = np.arange(COUNTS // 4, dtype=np.uint64) | np.uint64(bank << 7)
    return data.reshape(-1) | address << np.uint64(TABLE_BITS)


def table_words(freq: Sequence[Sequence[int]], bank: int) -> list[tuple[int, int]]:
    """Return the same as addresses and data."""
    writes = table_writes(np.array(freq), bank).tolist()
    return [(word >> TABLE_BITS, word & (1 << TABLE_BITS) - 1) for word in writes]
