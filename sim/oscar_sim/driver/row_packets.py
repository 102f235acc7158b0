"""Packets of rows, as an oscar_nic takes and gives them (docs/reference/registers.md, "Words of streams")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oscar.coding.asc.params import LANES
from oscar_hdl.coder.rows import FrameRows
from oscar_hdl.nic.memory.ports import STREAM_LANES
from oscar_hdl.nic.memory.side_in import DISTANCES_AT
from oscar_hdl.nic.ports import (
    ADDS_AT,
    BFLOAT16,
    COUNT_AT,
    ENTRY_AT,
    EXPONENT_AT,
    EXPONENT_BITS,
    FORMAT_AT,
    MADE_AT,
    NO_STEP,
    STREAM_BITS,
    TENSOR_AT,
    WIDTH_AT,
)

WORD_BYTES = STREAM_BITS // 8  # of a bank
ROW_WORDS = 4
DISTANCE_BITS = 3


@dataclass(frozen=True)
class Quantised:
    """How a packet of floats is quantised: to integers of `bits` bits in steps of 2^exponent.

    format: BFLOAT16 or FLOAT32. exponent: None, the tensor has no step: all values become 0.
    """

    format: int
    exponent: int | None
    bits: int
    tensor: int = 0

    @property
    def head(self) -> int:
        """What the packet's first word says of it."""
        exponent = (NO_STEP if self.exponent is None else self.exponent) & ((1 << EXPONENT_BITS) - 1)
        kind = self.format << FORMAT_AT | self.bits << WIDTH_AT
        return kind | exponent << EXPONENT_AT | self.tensor << TENSOR_AT


@dataclass(frozen=True)
class Lines:
    """How packets of a NIC of several banks have rows: a line of blocks side by side, a row of each a step.

    block: rows of a block. A packet that has rows of several banks begins a block.
    """

    banks: int = 1
    block: int = 32

    def places(self, first: int, rows: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Return step and bank of each row of a packet, and its steps."""
        number = np.arange(rows)
        if self.banks == 1:
            return number, np.zeros_like(number), rows
        if first % self.block:
            raise ValueError(f"a packet begins a block of {self.block} rows, got row {first}")
        block = first // self.block + number // self.block
        line = block // self.banks - block[0] // self.banks
        step = line * self.block + number % self.block
        alone = rows <= self.block or block[-1] % self.banks == 0
        steps = step[-1] + 1 if alone else (line[-1] + 1) * self.block
        return step, block % self.banks, int(steps)

    def in_words(self, first: int, rows: np.ndarray) -> np.ndarray:
        """Return words of all banks, uint8 [words, bytes]; rows: uint8 [rows, words of a row, bytes]."""
        step, bank, steps = self.places(first, len(rows))
        words = np.zeros((steps, rows.shape[1], self.banks, rows.shape[2]), np.uint8)
        words[step, :, bank] = rows
        return words.reshape(steps * rows.shape[1], -1)

    def in_rows(self, first: int, rows: int, words: np.ndarray, each: int) -> np.ndarray:
        """Return rows of words that were read, uint8 [rows, each, bytes]; words of the last step may lack."""
        step, bank, steps = self.places(first, rows)
        whole = np.zeros((steps * each, words.shape[1]), np.uint8)
        whole[: len(words)] = words
        result: np.ndarray = whole.reshape(steps, each, self.banks, -1)[step, :, bank]
        return result

    def value_bytes(self, first: int, values: np.ndarray, dtype: str = "<i2") -> np.ndarray:
        """Return a packet's words of values, uint8 [words, bytes]; dtype: of two or four bytes."""
        flat = np.zeros(-(-values.size // LANES) * LANES, dtype)
        flat[: values.size] = values
        times = flat.itemsize // 2  # words of the stream for a word of eight values
        words = self.in_words(first, flat.view(np.uint8).reshape(-1, times * ROW_WORDS, WORD_BYTES))
        return words[: len(words) - times * self.spare(first, values.size)]

    def float_bytes(self, first: int, values: np.ndarray, how: Quantised) -> np.ndarray:
        """Return a packet's words of float32, or of their upper halves (BFLOAT16), uint8 [words, bytes]."""
        if how.format == BFLOAT16:
            return self.value_bytes(first, values.view(np.uint32) >> 16, "<u2")
        return self.value_bytes(first, values, "<f4")

    def float_words(self, first: int, values: np.ndarray, how: Quantised) -> list[int]:
        """Return a packet's words of floats, behind its first."""
        return words_of(self.float_bytes(first, values, how))

    def spare(self, first: int, count: int) -> int:
        """Return the words of the last step in which no bank has a value of a packet."""
        rows = -(-count // LANES)
        step, _, steps = self.places(first, rows)
        alone = np.count_nonzero(step == steps - 1) == 1 and step[-1] == steps - 1
        return ROW_WORDS - 1 - (count - 1) % LANES // STREAM_LANES if alone else 0

    def value_words(self, first: int, rows: FrameRows) -> list[int]:
        """Return a packet's words of values, behind its first."""
        return words_of(self.value_bytes(first, rows.values.reshape(-1)[: rows.count]))

    def side_words(self, first: int, rows: FrameRows) -> list[int]:
        """Return a packet's words of headers and distances, behind its first."""
        return words_of(self.in_words(first, side_bytes(rows.headers, rows.distances)[:, None]))

    def values(self, first: int, count: int, words: Sequence[int]) -> np.ndarray:
        """Return the int16 values of words that were read."""
        size = WORD_BYTES * self.banks
        raw = np.frombuffer(b"".join(word.to_bytes(size, "little") for word in words), np.uint8)
        rows = self.in_rows(first, -(-count // LANES), raw.reshape(-1, size), ROW_WORDS)
        return np.ascontiguousarray(rows).reshape(-1).view("<i2")[:count].astype(np.int16)

    def descriptors(self, first: int, count: int, words: Sequence[int]) -> np.ndarray:
        """Return the descriptors of rows that were read, uint16."""
        raw = np.frombuffer(b"".join(word.to_bytes(2 * self.banks, "little") for word in words), np.uint8)
        rows = self.in_rows(first, -(-count // LANES), raw.reshape(-1, 2 * self.banks), 1)
        return np.ascontiguousarray(rows).reshape(-1).view("<u2").astype(np.uint16)


def words_of(data: np.ndarray) -> list[int]:
    """Return words of a stream; data: uint8 [words, bytes]."""
    return [int.from_bytes(word.tobytes(), "little") for word in data]


def side_bytes(headers: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return (rows, 16) bytes: a word for each row, its header, and its distances in three bits each.

    headers: (rows,) uint16; distances: (rows, 32) uint8.
    """
    bits = np.zeros((headers.size, STREAM_BITS), np.uint8)
    bits[:, :16] = headers[:, None].astype(np.uint16) >> np.arange(16, dtype=np.uint16) & 1
    places = np.arange(DISTANCE_BITS, dtype=np.uint8)
    bits[:, DISTANCES_AT:] = (distances[:, :, None] >> places & 1).reshape(len(bits), -1)
    return np.packbits(bits, axis=1, bitorder="little")


def packet_start(
    row: int, count: int, entry: int | None = None, *, adds: bool = False, floats: Quantised | None = None
) -> int:
    """Return a packet's first word: `count` values from a row on, for an entry of a list if one is given.

    adds: they are added to what memory holds. floats: they come as floats.
    """
    made = 0 if entry is None else 1 << MADE_AT | entry << ENTRY_AT
    return row | count << COUNT_AT | made | adds << ADDS_AT | (floats.head if floats else 0)


def emptied(rows: FrameRows) -> FrameRows:
    """Return rows of zeros in the place of others: what they are added to, with their distances and means."""
    zeros = {name: np.zeros_like(getattr(rows, name)) for name in ("values", "classes", "sizes")}
    return replace(rows, **zeros)
