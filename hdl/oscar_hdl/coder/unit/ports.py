"""Sizes and ports of all barrel units (docs/engine.md, "Barrel units")."""

from oscar_hdl.coder.ports import BANK_BITS
from oscar_hdl.streams.bundles import Bundle, word

WIDTH = 8  # lanes a clock
BEATS = 4  # clocks of a turn: a row of 32 lanes
THREADS = 8  # blocks that take turns
THREAD_BITS = 3
STATE_BITS = 24
WORD_BYTES = 16  # of a word of bytes
ALL_THREADS = (1 << THREADS) - 1  # a name, because VHDL has no shift of a literal


class CountedLanes(Bundle):
    """Symbols to count: those of a clock's lanes."""

    valid, address = word(WIDTH), word(9 * WIDTH)
    step, bank = word(2), word(BANK_BITS)
