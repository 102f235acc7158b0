"""How a receiver reads a frame's prefix and directory from its store, chunk by chunk (docs/engine.md)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from oscar.coding.asc.params import DIRECTORY_BYTES
from oscar.coding.frame import HEADER_BYTES
from oscar.timeline.turns import (
    CHUNK,
    COLUMN,
    HEAD_AGAIN,
    HEAD_ASKED,
    HEAD_LANDS,
    HEAD_LISTS,
    HEAD_TABLES,
    LISTED,
    TABLES_BUILT,
)

UNIT = 2  # bytes that are taken in a clock


class HeadReads(NamedTuple):
    """Clocks from a frame's front: until each chunk is asked for, until tables are, until all is read."""

    asked: tuple[int, ...]
    tables: int
    listed: int

    @property
    def dealt(self) -> int:
        """Until its blocks may be dealt, if no build of tables is in the way."""
        return max(self.tables + TABLES_BUILT[1], self.listed)


@lru_cache(maxsize=1024)
def head_reads(blocks: int, word: int, start: int = 0) -> HeadReads:
    """Return when the head of a frame of so many blocks is read.

    word: bytes of the bus. start: byte of a chunk at which the frame begins, 0 unless words are shorter.

    A chunk is asked for when the one before is used, which is when the one before that ends. Columns of a
    line come one after another, the last one first. An entry takes a clock for each unit, and one more.
    """
    begin, columns = start + HEADER_BYTES, max(1, word // CHUNK)
    first = begin // CHUNK

    def lands(number: int) -> int:
        return asked[number] + HEAD_LANDS + COLUMN * (columns - 1 - (first + number) % columns)

    asked = [HEAD_ASKED]
    tables, clock = lands(0) + HEAD_TABLES, lands(0) + 2  # the prefix is the first chunk's first unit
    asked.append(lands(0) + HEAD_AGAIN)
    used, free, free_again = begin % CHUNK // UNIT + 1, 0, tables + HEAD_LISTS
    for _ in range(blocks):
        for _ in range(DIRECTORY_BYTES // UNIT):
            clock = max(free, free_again)
            free_again, used = clock + 1, used + 1
            if used == CHUNK // UNIT:
                moved = max(lands(len(asked) - 1), clock) + 1
                free, used = moved + 1, 0
                asked.append(moved + HEAD_AGAIN - 1)
        free_again = clock + 2
    return HeadReads(tuple(asked), tables, clock + LISTED)
