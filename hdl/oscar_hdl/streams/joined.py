"""Concatenate words of equal width."""

from collections.abc import Sequence

from myhdl import always_comb, block, concat

from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.copied import copied


@block
def joined(parts: Sequence, whole):
    """Hold in `whole` words of equal width, the first one lowest; their number is a power of two."""
    half = len(parts) // 2
    if any(len(whole) != len(parts) * len(part) for part in parts) or len(parts) & len(parts) - 1:
        raise ValueError("words of equal width, a power of two of them, make a word of all their bits")
    if len(parts) == 8:
        one, two, three, four, five, six, seven, eight = parts

        @always_comb
        def join():
            whole.next = concat(eight, seven, six, five, four, three, two, one)

        return join
    if len(parts) == 1:
        return copied(None, parts[0], whole)
    low, high = word(len(whole) // 2), word(len(whole) // 2)

    @always_comb
    def pair():
        whole.next = concat(high, low)

    return joined(parts[:half], low), joined(parts[half:], high), pair
