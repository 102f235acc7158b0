"""The one parameter object of ASC, and the constants of docs/asc.md that both implementations share."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

FORMAT = 2  # of the payload; part of the fingerprint
LANES = 12  # interleaved rANS states over contiguous runs of a block
PROB_BITS = 12  # frequencies of a context sum to 4096
STATE_LOW = 1 << 12  # states live in [2^12, 2^24)
WORD_BITS = 12
STATE_BITS = 24
CONTEXTS = 16
SYMBOLS = 16
RCP_SHIFT = 36  # floor(y/f) == (y * ceil(2^36/f)) >> 36 for all y < f << 12
HIST_BITS = 10  # a histogram row sums to less than 2^10 after each update
NEIGHBOUR_SHIFT = 3
LAG_SHIFT = 2  # tables are built a quarter of an interval before they are used
COUNT_STEP = 2  # what a counted symbol adds, since a little under half of them are counted

# Symbol s holds u in [BASE[s], BASE[s+1]), EXTRA[s] raw bits below it; 15 escapes to 16 or 32 raw bits.
BASE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
EXTRA = (0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 7, 16)
# Sixteen times the magnitude that stands for a symbol in the neighbour state and in the learnt map.
WEIGHT = (0, 16, 32, 48, 72, 104, 152, 216, 312, 440, 632, 888, 1272, 1784, 3064, 4095)
# No entry below 3: a symbol costs 4.42 bits at most where nothing is learnt yet, less than max_words grants.
PRIOR = (6, 6, 5, 5, 4, 4, 4, 3, 3, 3, 3, 3, 4, 4, 3, 3)

BLOCK_HEADER_BYTES = 6
FLUSH_BYTES = LANES * STATE_BITS // 8
CODED, CONSTANT, RAW = 0, 1, 2  # block types
LEARN_FIRST = 1 << 12  # values after which a context map is learnt for the first time
LEARN_WINDOW = 1 << 18  # later maps are learnt from at least this many values
LEARN_MIN = 1 << 10  # observed values below which a map is left as it is
CELL_MIN = 16  # a cell of the context map seen less often keeps its default

ContextMode = Literal["none", "position", "neighbour", "both"]
TableMode = Literal["step", "pooled"]
MapMode = Literal["learned", "fixed"]


@dataclass(frozen=True)
class AscParams:
    """Parameters of adaptive stepwise coding; both ends of a link, and the hardware, need equal ones.

    block_log2: log2 of the values between two flushes of the states (10..16); hardware buffers a block.
    interval_log2: log2 of the values between two table updates (10..16), at most the block.
    context: what selects one of 16 tables: "none" (the paper's ASC), "position", "neighbour", "both".
    tables: "step" keeps a table set per AllReduce step (the paper), "pooled" one for all steps.
    map: "learned" re-learns the context map as values pass; "fixed" keeps the initial one.
    Raises ValueError when a field is out of range.
    """

    block_log2: int = 16
    interval_log2: int = 12
    context: ContextMode = "both"
    tables: TableMode = "step"
    map: MapMode = "learned"

    def __post_init__(self) -> None:
        if type(self.interval_log2) is not int or type(self.block_log2) is not int:
            raise TypeError(f"interval_log2 and block_log2 are integers, got {self}")
        if not 10 <= self.interval_log2 <= self.block_log2 <= 16:
            raise ValueError(
                "expected 10 <= interval_log2 <= block_log2 <= 16, "
                f"got interval_log2={self.interval_log2}, block_log2={self.block_log2}"
            )
        for name, allowed in (
            ("context", ("none", "position", "neighbour", "both")),
            ("tables", ("step", "pooled")),
            ("map", ("learned", "fixed")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    @property
    def block(self) -> int:
        """Values per block."""
        return 1 << self.block_log2

    @property
    def interval_rows(self) -> int:
        """Rows (one value of every lane) per table epoch."""
        return (1 << self.interval_log2) // LANES

    @property
    def lag_rows(self) -> int:
        """Rows before the end of an epoch at which the next epoch's tables are made."""
        return self.interval_rows >> LAG_SHIFT

    @property
    def uses_position(self) -> bool:
        """Whether the position class takes part in the context."""
        return self.context in ("position", "both")

    @property
    def uses_neighbour(self) -> bool:
        """Whether the neighbour class takes part in the context."""
        return self.context in ("neighbour", "both")

    @property
    def learns(self) -> bool:
        """Whether the context map is learnt."""
        return self.map == "learned" and self.context != "none"

    @cached_property
    def fingerprint(self) -> int:
        """CRC-32 of format and all fields: two ends with unequal ones fail at the first frame."""
        text = ",".join([f"format={FORMAT}", *(f"{f.name}={getattr(self, f.name)}" for f in fields(self))])
        return zlib.crc32(text.encode())

    def max_payload(self, count: int, width: int) -> int:
        """Bytes that `count` values of `width` bits never exceed (docs/asc.md, "Worst case")."""
        full, rest = divmod(count, self.block)
        bits = [self.block] * full + [rest] * (rest > 0)
        return sum(BLOCK_HEADER_BYTES + raw_bytes(n, width) for n in bits)


def raw_bytes(count: int, width: int) -> int:
    """Bytes of a raw block's payload: `count` values of `width` bits, padded to 16 bits."""
    return 2 * ((count * width + 15) // 16)


def max_words(count: int) -> int:
    """Words that a coded block of `count` values has at most; with more it is sent raw."""
    return 3 * count // 8


def initial_cell(cell: int, params: AscParams) -> int:
    """Sum of position and neighbour class of a map cell, counted twice where only one is used."""
    position, neighbour = cell >> 4, cell & 15
    if params.context == "both":
        return position + neighbour
    return 2 * position if params.context == "position" else 2 * neighbour


def initial_map(params: AscParams) -> list[int]:
    """Return the context map before anything was learnt: 256 entries of 0..15."""
    if params.context == "none":
        return [0] * 256
    return [min(15, max(0, (initial_cell(cell, params) - 4) >> 1)) for cell in range(256)]


def epochs(rows: int, params: AscParams) -> list[tuple[int, int]]:
    """Cut `rows` full rows of a block into table epochs; the last takes what is left over."""
    step = params.interval_rows
    count = max(1, (rows + step // 2) // step)
    return [(i * step, (i + 1) * step if i < count - 1 else rows) for i in range(count)]


def is_counted(row: int, lane: int) -> bool:
    """Whether tables learn from the symbol in this row and lane of a block; never from two in succession."""
    return (row + lane) % 2 == 0 and lane != LANES - 1


def cut_row(first: int, last: int, params: AscParams) -> int:
    """Return the row of the epoch of rows first..last before which the next epoch's histograms are made."""
    return max(first, last - params.lag_rows)
