"""Where a row of a NIC's memory is in its bank."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat


@block
def bank_row(base: Any, row: Any, found: Any, *, block_bits: int, skip_bits: int) -> Any:
    """Leave out the bits of a row's number that choose its bank.

    base: first row of the block in the NIC's memory, a multiple of 2^block_bits; row: u12, in the block.
    Above block_bits come skip_bits that say the bank; what is above these, and the row, are left.
    """
    LOW = block_bits + skip_bits
    TOP = LOW + len(found) - block_bits
    if len(base) < TOP:
        raise ValueError(f"rows of the memory's {TOP} bits need bases as wide, got {len(base)} bits")
    if not 5 <= block_bits <= min(12, len(found)):
        raise ValueError(f"a block has 2^5 to 2^12 rows and fits a bank, got 2^{block_bits}")

    if TOP == LOW:

        @always_comb
        def place() -> None:
            found.next = row[block_bits:]
    else:

        @always_comb
        def place() -> None:
            found.next = concat(base[TOP:LOW], row[block_bits:])

    return place
