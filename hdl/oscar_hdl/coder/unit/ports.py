"""Sizes and ports of all barrel units (docs/develop/engine.md, "Barrel units")."""

from oscar_hdl.coder.ports import BANK_BITS
from oscar_hdl.streams.bundles import Bundle, word

WIDTH = 8  # lanes a clock
BEATS = 4  # clocks of a turn: a row of 32 lanes
THREADS = 8  # blocks that take turns
THREAD_BITS = 3
STATE_BITS = 24
WORD_BYTES = 16  # of a word of bytes
SAMPLED = 2  # of a clock's lanes are counted: one of the lower four, and the fourth after it
ALL_THREADS = (1 << THREADS) - 1  # a name, because VHDL has no shift of a literal


class CountedLanes(Bundle):
    """Symbols to count: the sample of a clock's lanes (docs/reference/asc.md, "Counts").

    Attributes:
        valid: A bit for each of the two lanes that are counted in this clock. None comes after the end of
            the bank's last block.
        address: Row of the table (5 bits) and symbol (4 bits below) of each of them, the first lowest.
        bank: Bank of the counts.
    """

    valid, address, bank = word(SAMPLED), word(9 * SAMPLED), word(BANK_BITS)
