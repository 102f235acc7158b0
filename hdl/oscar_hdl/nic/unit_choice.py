"""Which unit has a block: the next one that is free, of those at the bank in which its rows are."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import word


@block
def unit_choice(
    clk: Any, free: Any, row: Any, last: Any, pick: Any, *, banks: int, block_log2: int
) -> Any:  # fmt: skip
    """Give the first bit of `free` behind `last` whose unit may have the block that begins with `row`.

    It is there two clocks later. free, last, pick: a bit for each unit; pick is 0 if there is none. Block b
    of a memory of so many banks, a power of two, is for units b modulo banks, and so on. block_log2: of a
    block's values, if there are more banks than one.
    """
    UNITS, ALL = len(free), (1 << len(free)) - 1
    may, those, negative = word(UNITS), word(UNITS), word(UNITS)
    candidates, behind, above, following = word(UNITS), word(UNITS), word(UNITS), word(UNITS)

    @always_comb
    def look():
        candidates.next = free & may
        above.next = free & may & behind
        following.next = last << 1

    @always_comb
    def negate():
        negative.next = 0 - those

    @always(clk.posedge)
    def choose():
        behind.next = 0 - following
        those.next = candidates
        if above != 0:
            those.next = above
        pick.next = those & negative

    if banks == 1:

        @always(clk.posedge)
        def allow():
            may.next = ALL

        return look, negate, choose, allow

    LOW, HIGH = block_log2 - 5, block_log2 - 5 + (banks.bit_length() - 1)
    BANKS = banks
    bank = word(HIGH - LOW)

    @always_comb
    def cut():
        bank.next = row[HIGH:LOW]

    @always(clk.posedge)
    def allow_bank():
        for n in range(UNITS):
            may.next[n] = bank == n % BANKS

    return look, negate, choose, cut, allow_bank
