"""The largest of several numbers."""

from collections.abc import Sequence

from myhdl import always, block

from oscar_hdl.streams.bundles import word


@block
def largest(clk, parts: Sequence, most):
    """Give the largest of 2, 4, 8 .. numbers, a clock later for each doubling."""
    if len(parts) > 2:
        half = len(parts) // 2
        first, second = word(len(most)), word(len(most))
        trees = [largest(clk, parts[:half], first), largest(clk, parts[half:], second)]
    else:
        (first, second), trees = parts, []

    @always(clk.posedge)
    def choose():
        most.next = first
        if second > first:
            most.next = second

    return trees, choose
