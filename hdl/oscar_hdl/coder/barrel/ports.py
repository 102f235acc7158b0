"""Sizes and ports of all barrel units (docs/engine.md, "Barrel units")."""

from __future__ import annotations

from oscar_hdl.streams.bundles import bit, word

WIDTH = 8  # lanes a clock
BEATS = 4  # clocks of a turn: a row of 32 lanes
THREADS = 8  # blocks that take turns
THREAD_BITS = 3
STATE_BITS = 24
WORD_BYTES = 16  # of a word of bytes
ALL_THREADS = (1 << THREADS) - 1  # a name, because VHDL has no shift of a literal


class BarrelCounts:
    """Symbols to count: those of a clock's lanes."""

    def __init__(self) -> None:
        self.valid, self.address, self.step, self.bank = word(WIDTH), word(9 * WIDTH), word(2), bit()
