"""What the encoder finds out about a block's values beside coding them."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import bit, word


@block
def block_facts(
    clk: Any, clear: Any, value: Any, valid: Any, phase: Any, measure: Any, equal: Any, last: Any, bits: Any
) -> Any:
    """See whether all values are equal, and how many bits they need.

    clear: a block begins. value u16, valid: a value a clock. equal: all so far were, to last u16, two clocks
    later; last is 0 before the first. measure: a slot without values, in whose phases 1 to 16 `bits` u4, the
    bit length of the or of all v xor (v >> 15), is found. phase u5.
    """
    ones = word(16)
    fresh, compared, unlike, hit, at = bit(), bit(), word(8), bit(), word(4)

    @always(clk.posedge)
    def compare() -> None:
        for i in range(8):
            unlike.next[i] = value[2 * i] != last[2 * i] or value[2 * i + 1] != last[2 * i + 1]
        compared.next = valid and not fresh
        if valid:
            last.next = value
            fresh.next = False
        if compared and unlike != 0:
            equal.next = False
        if clear:
            equal.next = True
            fresh.next = True
            last.next = 0

    # Bit i of a value is bit i + 1 here, so that the place of the uppermost one is the length.
    @always(clk.posedge)
    def gather() -> None:
        if valid:
            if value[15]:
                ones.next[16:1] = ones[16:1] | ~value[15:]
            else:
                ones.next[16:1] = ones[16:1] | value[15:]
        if clear:
            ones.next = 0

    @always(clk.posedge)
    def find() -> None:
        at.next = phase[4:]
        hit.next = measure and not phase[4] and ones[phase[4:]]
        if hit:
            bits.next = at
        if clear:
            bits.next = 0

    return compare, gather, find
