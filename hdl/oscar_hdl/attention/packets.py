"""What a driver streams to an attention unit and reads from it, as arrays of words (attention.md)."""

import numpy as np

from oscar_hdl.attention.ports import QUERY, TOO_FEW, TOO_MANY, TOP_BITS
from oscar_hdl.attention.query_store import ROWS_AT, SHIFT_AT, WORDS_AT
from oscar_hdl.attention.twin import LANES, LEAST_SHIFT, Array, Attended

REASONS = {
    QUERY: "a query that is not as it should be",
    TOO_FEW: "too few rows",
    TOO_MANY: "too many rows",
}


def _words(values: Array) -> Array:
    return np.ascontiguousarray(values).view("<u8").reshape(-1)


def query_packet(query: Array, rows: int, mantissa: int, shift: int) -> Array:
    """Return the packet of a query, (d,) int8, that `rows` rows follow; mantissa, shift: of scale_of."""
    words = query.size // LANES
    first = mantissa | shift - LEAST_SHIFT << SHIFT_AT | words << WORDS_AT | rows << ROWS_AT
    return np.concatenate([np.array([first], np.uint64), _words(query)])


def row_packet(keys: Array, values: Array) -> Array:
    """Return the packet of a query's rows: each key, (t, d) int8, and its value behind it."""
    return _words(np.stack([keys, values], axis=1))


def result_packet(result: Attended) -> Array:
    """Return the packet that a unit gives."""
    first = result.top & (1 << TOP_BITS) - 1 | result.total << TOP_BITS
    return np.concatenate([np.array([first], np.uint64), _words(result.values)])


def read_result(packet: Array) -> Attended:
    """Return what a result says. Raises ValueError with the reason of a head that was refused."""
    first = int(packet[0])
    if first >> TOP_BITS == 0:
        raise ValueError(f"the attention unit refused a head: {REASONS[first]}")
    top = (first & (1 << TOP_BITS) - 1 ^ 1 << TOP_BITS - 1) - (1 << TOP_BITS - 1)
    return Attended(np.ascontiguousarray(packet[1:]).view("<i2").copy(), top, first >> TOP_BITS)
