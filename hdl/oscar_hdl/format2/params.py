"""The constants of docs/format2.md, and the one parameter that a lane leaves open."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property

FORMAT = 2  # of the payload; part of the fingerprint
LANES = 12  # interleaved rANS states over contiguous runs of a block
PROB_BITS = 12  # frequencies of a context sum to 4096
STATE_LOW = 1 << 12  # states live in [2^12, 2^24)
WORD_BITS = 12
STATE_BITS = 24
CONTEXTS = 16
SYMBOLS = 16
HIST_BITS = 10  # a histogram row sums to less than 2^10 after each update
NEIGHBOUR_SHIFT = 3
LAG_SHIFT = 2  # tables are made a quarter of a block before they are used
COUNT_STEP = 2  # what a counted symbol adds, since a little under half of them are counted
MAX_WIDTH = 16  # bits of a value; the format has up to 32, no lane does

# Symbol s holds u in [BASE[s], BASE[s+1]), EXTRA[s] raw bits below it; 15 escapes to 16 raw bits.
BASE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
EXTRA = (0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 7, 16)
# Sixteen times the magnitude that stands for a symbol in the neighbour state.
WEIGHT = (0, 16, 32, 48, 72, 104, 152, 216, 312, 440, 632, 888, 1272, 1784, 3064, 4095)
# No entry below 3: a symbol costs 4.42 bits at most where nothing is learnt yet, less than max_words grants.
PRIOR = (6, 6, 5, 5, 4, 4, 4, 3, 3, 3, 3, 3, 4, 4, 3, 3)
# Context of a position class (upper four bits) and a neighbour class.
CONTEXT_MAP = tuple(max(0, ((cell >> 4) + (cell & 15) - 4) >> 1) for cell in range(256))

BLOCK_HEADER_BYTES = 6
FLUSH_BYTES = LANES * STATE_BITS // 8
CODED, CONSTANT, RAW = 0, 1, 2  # block types


@dataclass(frozen=True)
class AscParams:
    """Parameters of a lane's coder; both ends of a link need equal ones.

    block_log2: log2 of the values between two flushes of the states, and between two table updates (10..12).
    All else that format 2 leaves open is fixed: context both, tables step, map fixed.
    Raises TypeError or ValueError when it is not one of these.
    """

    block_log2: int = 12

    def __post_init__(self) -> None:
        if type(self.block_log2) is not int:
            raise TypeError(f"block_log2 is an integer, got {self.block_log2!r}")
        if not 10 <= self.block_log2 <= 12:
            raise ValueError(f"block_log2 is 10 to 12 in hardware, got {self.block_log2}")

    @property
    def block(self) -> int:
        """Values per block."""
        return 1 << self.block_log2

    @property
    def lag_rows(self) -> int:
        """Rows before the end of a full block at which the next block's tables are made."""
        return self.block // LANES >> LAG_SHIFT

    @cached_property
    def fingerprint(self) -> int:
        """CRC-32 of format and all fields of format 2: ends with unequal ones fail at the first frame."""
        fields = (
            f"block_log2={self.block_log2},interval_log2={self.block_log2},context=both,tables=step,map=fixed"
        )
        return zlib.crc32(f"format={FORMAT},{fields}".encode())

    def max_payload(self, count: int, width: int) -> int:
        """Bytes that `count` values of `width` bits never exceed (docs/format2.md, "Worst case")."""
        full, rest = divmod(count, self.block)
        sizes = [self.block] * full + [rest] * (rest > 0)
        return sum(BLOCK_HEADER_BYTES + raw_bytes(n, width) for n in sizes)


def raw_bytes(count: int, width: int) -> int:
    """Bytes of a raw block's payload: `count` values of `width` bits, padded to 16 bits."""
    return 2 * ((count * width + 15) // 16)


def max_words(count: int) -> int:
    """Words that a coded block of `count` values has at most; with more it is sent raw."""
    return 3 * count // 8


def is_counted(row: int, lane: int) -> bool:
    """Whether tables learn from the symbol in this row and lane of a block; never from two in succession."""
    return (row + lane) % 2 == 0 and lane != LANES - 1


def cut_row(rows: int, params: AscParams) -> int:
    """Return the row of a block of `rows` full rows before which the next block's histograms are made."""
    return max(0, rows - params.lag_rows)
