"""Oracle for the rate: constriction's ANS coder with a 24-bit model of the frame's exact histogram.

An independent coder at the order-0 entropy. It shows what a static order-0 coder can reach, and checks ours.
It is not fast. Its size includes the table of every exact count, in the code of order0.py; subtract
`table_bytes` for the coded values alone. Needs the extra `peers` (Bamler, arXiv 2201.01741).

Payload: u8 mode (0: raw block; 1); the table: lowest value and number of values - 1 (32 and 16 bits), the
counts; then the coder's 32-bit words. A constant frame needs no words; `VALUES_PER_BYTE` bounds its size from
below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec, framed
from oscar.coding.plain import BlockCodec, check_range, damaged, frozen, get, put, raw_bytes
from oscar.errors import needed
from oscar_studies.codecs.blocks import check_density, check_length, count_values, padded
from oscar_studies.codecs.order0 import get_table, put_table

MAX_SPAN = 1 << 16  # most values from the lowest to the highest; a table of more counts cannot pay
BIAS = 1 << 31


def _stream() -> Any:
    """Return constriction's stream module; raises MissingExtraError if it is not installed."""
    return needed("constriction", "the rate oracle", "peers").stream


class Oracle(BlockCodec):
    """Codes a frame at its order-0 rate. `table_bytes`: bytes of the table in the last payload.

    Raises MissingExtraError without constriction.
    """

    code = 11

    def __init__(self) -> None:
        self.table_bytes = 0

    def _code(self, values: Array, width: int) -> bytes | None:
        stream, self.table_bytes = _stream(), 0
        low, high = int(values.min()), int(values.max())
        if high - low >= MAX_SPAN:
            return None
        counts = np.zeros(high - low + 1, np.int64)
        count_values(values, low, counts)
        table = _write_table(low, counts)
        coder = stream.stack.AnsCoder()
        symbols, model = _model(stream, counts)
        if symbols.size > 1:
            places = np.zeros(counts.size, np.int32)
            places[symbols] = np.arange(symbols.size)
            coder.encode_reverse(places[values - low], model)
        words = coder.get_compressed().astype("<u4").tobytes()
        payload = padded(table + words, values.size)
        if len(payload) >= raw_bytes(values.size, width):
            return None
        self.table_bytes = len(table)
        return payload

    def _open(self, payload: memoryview, count: int, width: int) -> Array:
        stream = _stream()
        check_density(payload, count)
        at, low, counts = _read_table(frozen(payload), count)
        symbols, model = _model(stream, counts)
        if symbols.size == 1:
            return check_range(np.full(count, low + symbols[0], np.int64), width).astype(np.int32)
        tail = bytes(payload[at:])
        words = np.frombuffer(tail[: len(tail) // 4 * 4], "<u4").astype(np.uint32)
        end = (
            int(np.flatnonzero(words)[-1]) + 1 if words.any() else 0
        )  # the coder's last word is never 0: zeros are padding
        coder = stream.stack.AnsCoder(words[:end])
        values = low + symbols[coder.decode(model, count)]
        if not coder.is_empty():
            raise damaged(f"coded words do not end with the {count} values")
        check_length(payload, count, at + 4 * end)
        return check_range(values, width).astype(np.int32)


def _model(stream: Any, counts: Array) -> tuple[Array, Any]:
    """Return the occupied places and their model; the model is None for a single place, which needs none."""
    symbols = np.flatnonzero(counts)
    if symbols.size == 1:
        return symbols, None
    probabilities = counts[symbols] / counts.sum()
    return symbols, stream.model.Categorical(probabilities, perfect=False)


def _write_table(low: int, counts: Array) -> bytes:
    """Return mode byte and table, padded to a whole byte."""
    out = np.zeros(16 + 9 * counts.size, np.uint8)  # a difference takes at most 64 bits
    pos = put(out, 0, 1, 8)
    pos = put(out, pos, low + BIAS, 32)
    pos = put(out, pos, counts.size - 1, 16)
    pos = put_table(out, pos, counts)
    return out[: (pos + 7) // 8].tobytes()


def _read_table(data: Array, count: int) -> tuple[int, int, Array]:
    """Return the offset behind the table, the lowest value and the counts; raises FrameError."""
    low = get(data, 8, 32) - BIAS
    counts = np.zeros(get(data, 40, 16) + 1, np.int64)
    pos = get_table(data, 56, counts, count)
    if data[0] != 1 or pos < 0 or counts.sum() != count:
        raise damaged(f"table of {counts.size} counts does not add up to {count} values")
    return (pos + 7) // 8, low, counts


def constriction() -> Codec:
    """Return the range coder of the library constriction, by the table of the frame's own values."""
    return framed("constriction", Oracle(), lossless=True)
