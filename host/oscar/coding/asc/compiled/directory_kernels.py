"""Read and check the directory of a payload; REASONS says why a block is refused."""

from __future__ import annotations

from typing import Any

from oscar.coding.asc.compiled.row_kernels import KERNEL, Block, block_at, i64, put_block, u64
from oscar.coding.asc.compiled.vectors import get_byte
from oscar.coding.asc.params import (
    CODED,
    CONSTANT,
    DIRECTORY_BYTES,
    FLUSH_BYTES,
    GROUP,
    MOST_SEED_ROWS,
    RAW,
)  # fmt: skip
from oscar.kernels import njit

BAD_ENTRY, BAD_SIZE, TRUNCATED, BAD_CONSTANT, BAD_RAW = range(1, 6)
BAD_STATE, SHORT, LEFT_OVER, BAD_END, TRAILING, BAD_PREFIX, TOO_SHORT = range(6, 13)
REASONS = {
    BAD_ENTRY: "a block's entry is none that a sender writes",
    BAD_SIZE: "a coded block is shorter than its states, or no shorter than raw",
    TRUNCATED: "payload ends inside a block",
    BAD_CONSTANT: "a constant block does not fit the width or its entry",
    BAD_RAW: "a raw block has another size, or bits a value, than its values",
    BAD_STATE: "a coder state is below 2^16",
    SHORT: "a block's bytes end before its values do",
    LEFT_OVER: "bytes of a block are left over",
    BAD_END: "a coder state does not end where it started",
    TRAILING: "bytes follow the last block",
    BAD_PREFIX: "payload starts with a prefix which no sender writes",
    TOO_SHORT: "payload is too short for the directory of its values",
}


@njit(**KERNEL)
def read_directory(entries: Any, end: Any, count: int, log2: int, width: int, shift: int, blocks: Any) -> int:
    """Check the directory at `entries` and describe its blocks at `blocks`; return 0 or the reason to refuse.

    end: address after the payload; count, width: values of the frame and their bits; shift: F of its prefix.
    """
    number, per_block = (count + (1 << log2) - 1) >> log2, (1 << log2) // GROUP
    plain = min(width, 16 + shift)  # most bits of a value in a raw or constant block
    at = entries + u64(DIRECTORY_BYTES * number)
    for b in range(number):
        n, word = min(1 << log2, count - (b << log2)), i64(0)
        for i in range(DIRECTORY_BYTES):
            word |= get_byte(entries + u64(DIRECTORY_BYTES * b + i)) << (8 * i)
        kind, used, extra = word & 3, word >> 24, i64(0)
        seeds, first, last = (word >> 2) & 7, (word >> 5) & 127, (word >> 12) & 127
        if kind == CONSTANT:
            extra = (word >> 16) & 0xFFFFFFFF
            extra -= (extra >> 31) << 32
            used = i64(0)
            if (word >> 2) & 0x3FFF or extra < -(i64(1) << (plain - 1)) or extra >= i64(1) << (plain - 1):
                return BAD_CONSTANT
        elif kind == RAW:
            extra = (word >> 2) & 63
            if (word >> 8) & 0xFFFF or extra < 1 or extra > plain or used != (n * extra + 7) // 8:
                return BAD_RAW
        elif (
            kind != CODED or (word >> 19) & 31 or seeds > MOST_SEED_ROWS or first > last or last * GROUP >= n
        ):
            return BAD_ENTRY
        elif used < FLUSH_BYTES or used >= (n * width + 7) // 8:
            return BAD_SIZE
        if used > i64(end - at):
            return TRUNCATED
        block = Block(kind, b * per_block + first, b * per_block + last, seeds, extra, at, used)
        put_block(block_at(blocks, b), block)
        at += u64(used)
    return 0 if at == end else TRAILING
