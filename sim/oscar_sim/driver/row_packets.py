"""Packets of rows, as an oscar_nic takes and gives them (docs/registers.md, "Words of streams")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oscar_hdl.coder.rows import FrameRows
from oscar_hdl.nic.memory.bank_ports import STREAM_LANES
from oscar_hdl.nic.memory.side_in import DISTANCES_AT
from oscar_hdl.nic.ports import COUNT_AT, ENTRY_AT, MADE_AT, STREAM_BITS

WORD_BYTES = STREAM_BITS // 8
DISTANCE_BITS = 3


def words_of(data: np.ndarray) -> list[int]:
    """Return words of a stream; data: any type, C order, whole words."""
    raw = data.tobytes()
    return [int.from_bytes(raw[at : at + WORD_BYTES], "little") for at in range(0, len(raw), WORD_BYTES)]


def value_words(rows: FrameRows) -> list[int]:
    """Return ceil(count / 8) words of eight values of 16 bits, 0 behind the last."""
    flat = np.zeros(-(-rows.count // STREAM_LANES) * STREAM_LANES, "<i2")
    flat[: rows.count] = rows.values.reshape(-1)[: rows.count].astype("<i2")
    return words_of(flat)


def side_bytes(headers: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return (rows, 16) bytes: a word for each row, its header, and its distances in three bits each.

    headers: (rows,) uint16; distances: (rows, 32) uint8.
    """
    bits = np.zeros((headers.size, STREAM_BITS), np.uint8)
    bits[:, :16] = headers[:, None].astype(np.uint16) >> np.arange(16, dtype=np.uint16) & 1
    places = np.arange(DISTANCE_BITS, dtype=np.uint8)
    bits[:, DISTANCES_AT:] = (distances[:, :, None] >> places & 1).reshape(len(bits), -1)
    return np.packbits(bits, axis=1, bitorder="little")


def side_words(rows: FrameRows) -> list[int]:
    """Return a word for each row: its header, and its distances in three bits each."""
    return words_of(side_bytes(rows.headers, rows.distances))


def packet_start(row: int, count: int, entry: int | None = None) -> int:
    """Return a packet's first word: `count` values from a row on, for an entry of a list if one is given."""
    made = 0 if entry is None else 1 << MADE_AT | entry << ENTRY_AT
    return row | count << COUNT_AT | made


def values_of(words: Sequence[int], count: int) -> np.ndarray:
    """Return the int16 values of words that were read."""
    raw = b"".join(word.to_bytes(WORD_BYTES, "little") for word in words)
    return np.frombuffer(raw, "<i2")[:count].copy()
