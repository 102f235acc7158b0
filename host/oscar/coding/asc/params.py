"""Parameters of ASC, and the constants of docs/reference/asc.md that all implementations share."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from oscar.version import METHOD_VERSIONS

FORMAT = METHOD_VERSIONS["asc"]  # version of the payload format; part of the fingerprint
ASC_CODE = 16  # codec byte in the headers of ASC frames
LANES = 32  # values of a row; each has a coder state of its own
GROUP_ROWS = 32  # rows whose classes are coded in one step
GROUP = LANES * GROUP_ROWS
PROB_BITS = 10  # log2 of the sum of a table row's frequencies
TOTAL = 1 << PROB_BITS
STATE_LOW = 1 << 16  # states lie in [2^16, 2^24)
STATE_BITS = 24
RAW_STEP = 6  # most raw bits of one step

SYMBOLS = 16
BASE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160)  # symbol s: BASE[s] to BASE[s+1] - 1
LIMIT = 192  # magnitudes below it have a symbol
RAW_BITS = (0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 6, 6)  # raw bits of a symbol: its sign and its low bits

NARROW_CLASS = 12  # highest class of rows whose magnitudes are all below LIMIT
WIDE_SHIFT = (1, 3, 8)  # low bits that go round the tables in rows of classes 13, 14, 15
LEAST_WIDE = 8  # lowest class whose contexts a wide row may have: from it on all symbols are possible
VALUE_ROWS, CLASS_ROWS = 24, 8  # rows of a table set: contexts of values, then contexts of row classes
TABLE_ROWS = VALUE_ROWS + CLASS_ROWS
NEAR_ROWS = 21  # contexts of values at most 2 below their row's mean position class

# Initial histograms: a geometric distribution for each context of values, an even one for classes of rows.
PRIOR = (
    (60, 3), (56, 6), (53, 8, 1), (50, 10, 2), (46, 12, 3), (41, 14, 5, 1), (36, 15, 6, 2, 1),
    (31, 15, 8, 4, 3), (25, 15, 9, 5, 5, 1), (20, 13, 9, 6, 7, 3, 2), (16, 12, 9, 6, 8, 4, 4, 1),
    (12, 9, 7, 6, 9, 6, 6, 2, 1), (9, 7, 6, 5, 9, 6, 8, 4, 3, 1), (6, 6, 5, 4, 8, 6, 9, 6, 6, 2, 1),
    (4, 4, 4, 3, 6, 5, 9, 6, 8, 4, 3), (3, 3, 3, 2, 5, 4, 8, 6, 9, 5, 6, 2, 1),
    (2, 2, 2, 2, 4, 3, 6, 5, 9, 6, 8, 4, 3), (1, 1, 1, 1, 3, 3, 5, 4, 8, 6, 9, 5, 6, 2),
    (1, 1, 1, 1, 2, 2, 4, 3, 6, 5, 9, 6, 8, 4, 2, 1), (0, 0, 0, 0, 1, 1, 3, 3, 5, 4, 8, 6, 9, 5, 3, 2),
    (0, 0, 0, 0, 0, 0, 1, 1, 3, 3, 5, 4, 8, 6, 5, 4),
    (61, 2), (39, 15, 5, 2, 1), (3, 3, 3, 3, 5, 5, 8, 6, 9, 5, 5, 2, 1),
    *((4,) * SYMBOLS,) * CLASS_ROWS,
)  # fmt: skip

COUNT_BITS = 15  # bits of a frame's counts for a histogram row; halved history plus counts stays below 2^16
FADE_ABOVE = 512  # a histogram row with a larger sum is halved before a frame's counts are added
SAMPLE = 4  # of four values one is counted, as four
HALF_COUNTED = 1 << 18  # values of a frame above which half the rows of a crowded group are counted
CROWD = 8  # a group with more rows whose class is not 0 is crowded
COST_BITS = 8  # a cost is in 2^-8 bit
COST = tuple((PROB_BITS << COST_BITS) + 1 - (f ** (1 << COST_BITS)).bit_length() if f else 0
             for f in range(TOTAL + 1))  # of a symbol of frequency f: 2560 - floor(256 log2 f)  # fmt: skip
SENT_ROW_BYTES = SYMBOLS // 2
SENT_GAIN = 11 * (8 * SENT_ROW_BYTES + 8) << COST_BITS  # ten times the gain above which a row is sent,
SENT_SYMBOL_GAIN = 50 << COST_BITS  # with this for each of its symbols that was counted

MIN_BLOCK_LOG2, MAX_BLOCK_LOG2 = 10, 17
AUTO_BLOCK_LOG2 = 12  # log2 of the smallest block that the sender chooses
BLOCK_BYTES_LOG2 = 15  # log2 of the coded bytes that a block should have; its flush costs about 60
PREFIX_BYTES, MASK_BYTES, DIRECTORY_BYTES = 2, 4, 6
PAD = 64  # bytes after arrays, because kernels read and write whole rows
FLUSH_BYTES = LANES * STATE_BITS // 8
CODED, RAW, CONSTANT = 0, 1, 2  # block types
MOST_SEED_ROWS = 5
RAW_SAVES = 64  # bytes that a raw block saves at least, where a frame has others

ContextMode = Literal["class", "none"]
TableMode = Literal["step", "pooled"]


def seed_bits(rows: int) -> int:
    """Return the bits of a value in `rows` seed rows, which share 16 bits of a start state."""
    return 16 // rows


def context_of(row_class: int, position: int, mean: int) -> int:
    """Return the table row of a value; docs/reference/asc.md, "Contexts".

    row_class: class of the value's row, 1..15; position: position class of the value; mean: mean position
    class of the row. The class of a wide row says nothing of its sum, so the mean position class stands for
    it if known.
    """
    if row_class > NARROW_CLASS:
        scale = mean + 2 - WIDE_SHIFT[row_class - NARROW_CLASS - 1] if mean else NARROW_CLASS
        row_class = min(NARROW_CLASS, max(LEAST_WIDE, scale))
    above = position - mean
    if above <= -3:
        return NEAR_ROWS + min(2, (row_class - 1) >> 2)
    return min(NEAR_ROWS - 1, max(0, 2 * row_class - 4 + min(4, max(-2, above))))


def _possible() -> tuple[int, ...]:
    """Return how many symbols, from 0 on, are possible in each table row; symbol 15 always is."""
    most = [0] * VALUE_ROWS
    for row_class in range(1, 16):
        largest = min(LIMIT, 1 << row_class) - 1
        symbols = sum(base <= largest for base in BASE)
        for position in range(16):
            for mean in range(16):
                q = context_of(row_class, position, mean)
                most[q] = max(most[q], symbols)
    return (*most, *(SYMBOLS,) * CLASS_ROWS)


POSSIBLE = _possible()


def counted_lane(row: int, group: int) -> int:
    """Return the first counted lane of a row; every fourth after it counts (docs/reference/asc.md, "Counts").

    row: of its group, 0..31; group: the group's number in its block.
    """
    return (row + (row >> 2) + (row >> 4) + group) % SAMPLE


def group_cycle(block_log2: int) -> int:
    """Return after how many groups of a frame numbers in blocks, mod SAMPLE, begin again; 0: SAMPLE."""
    return min(SAMPLE, (1 << block_log2) // GROUP) if block_log2 else SAMPLE


def count_step(values: int, live_rows: int) -> int:
    """Return 1 if all rows of a group are counted, 2 if every other four of them.

    values: number of values of the frame; live_rows: rows of the group whose class is not 0.
    """
    return 2 if values > HALF_COUNTED and live_rows > CROWD else 1


@dataclass(frozen=True)
class AscParams:
    """Parameters of adaptive stepwise coding; `context` and `tables` must be equal at both ends of a link.

    Raises TypeError or ValueError if a field has another type or value.

    Attributes:
        context: How a value selects one of 24 tables. "class": by the class of its row, which is sent,
            and by its position class. "none": one table for all values, as in the paper; choose it only
            to compare with the paper.
        tables: "step" keeps a table set for each step of an AllReduce, as in the paper. "pooled" keeps
            one for all steps; choose it where steps have too few values to learn from.
        sent_rows: Whether a frame may carry table rows, which it does where that saves bytes. The paper
            sends none; set it to False where the sender is hardware that cannot count before it codes.
        block_log2: Log2 of the values of a block, 10 to 17. Blocks are coded independently: lower it so
            that more threads or units work on one frame; raise it to save 100 bytes a block. 0 lets the
            sender choose for each frame.

    >>> AscParams(block_log2=14).max_payload(count=1000, width=16)
    2269
    """

    context: ContextMode = "class"
    tables: TableMode = "step"
    sent_rows: bool = True
    block_log2: int = 0

    def __post_init__(self) -> None:
        if type(self.block_log2) is not int or type(self.sent_rows) is not bool:
            raise TypeError(f"block_log2 is an integer and sent_rows true or false, got {self}")
        if self.block_log2 and not MIN_BLOCK_LOG2 <= self.block_log2 <= MAX_BLOCK_LOG2:
            raise ValueError(
                f"block_log2 must be 0 or {MIN_BLOCK_LOG2} to {MAX_BLOCK_LOG2}, got {self.block_log2}"
            )
        for name, allowed in (("context", ("class", "none")), ("tables", ("step", "pooled"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    @property
    def uses_position(self) -> bool:
        """Whether position classes select tables."""
        return self.context == "class"

    @property
    def least_class(self) -> int:
        """The lowest class of a row; without contexts, only wide rows have classes of their own."""
        return 0 if self.context == "class" else NARROW_CLASS

    @cached_property
    def fingerprint(self) -> int:
        """CRC-32 of the format and the fields that both ends share; unequal ends refuse the first frame."""
        return self.fingerprint_of(FORMAT)

    def fingerprint_of(self, version: int) -> int:
        """Return the fingerprint that these fields have in that version of the format."""
        return zlib.crc32(f"format={version},context={self.context},tables={self.tables}".encode())

    def max_payload(self, count: int, width: int) -> int:
        """Return most bytes of the payload of `count` values (docs/reference/asc.md, "Worst case")."""
        blocks = -(-count >> (self.block_log2 or AUTO_BLOCK_LOG2))
        tables = MASK_BYTES + TABLE_ROWS * SENT_ROW_BYTES if self.sent_rows else 0
        return (PREFIX_BYTES + tables + blocks * (DIRECTORY_BYTES + 1) + (count * width >> 3)) if count else 0


def raw_limit(values: int, bits: int, width: int, alone: bool) -> int:
    """Return the bytes from which on a block is sent raw (docs/reference/asc.md, "Coded or raw").

    bits: of its values, raw; width: of the frame's; alone: it is the frame's only block.
    """
    raw, most = (values * bits + 7) // 8, (values * width + 7) // 8
    return min(raw if alone else raw + RAW_SAVES, most)


def auto_block_log2(count: int, coded_bytes: int) -> int:
    """Return log2 of the block size for a frame of `count` values and about `coded_bytes` bytes."""
    blocks = max(1, coded_bytes >> BLOCK_BYTES_LOG2)
    log2 = AUTO_BLOCK_LOG2
    while log2 < MAX_BLOCK_LOG2 and blocks << log2 < count:
        log2 += 1
    return log2
