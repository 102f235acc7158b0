"""Entries of the table rows that are built: from a set, or the initial state."""

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import POSSIBLE, PRIOR, SYMBOLS
from oscar_hdl.streams.bundles import bit, word

PRIOR_BITS = 6
FULL = [(*row, *[0] * (SYMBOLS - len(row))) for row in PRIOR]
PRIOR_QUADS = tuple(
    sum(row[4 * n + i] << PRIOR_BITS * i for i in range(4)) for row in FULL for n in range(SYMBOLS // 4)
)
TOP = tuple(most - 1 for most in POSSIBLE)  # the last symbol below 15 that a row may have


@block
def possible_symbols(clk, at, last, possible):
    """Say which symbols of quad `at` u7 are possible, two clocks later: u4, the lowest symbol lowest."""
    top, quad, value_row = word(4), word(2), bit()

    @always(clk.posedge)
    def compare():
        top.next = TOP[int(at[7:2])]
        quad.next = at[2:]
        value_row.next = at[7:5] != 3
        symbol = modbv(0)[4:]
        for i in range(4):
            symbol[:] = concat(quad, modbv(0)[2:]) + i
            possible.next[i] = symbol == 15 or (symbol <= top and (symbol <= last or not value_row))

    return compare


@block
def row_source(clk, at, fresh, last, kept, entries, possible, histogram):
    """Choose what tables are built from, four symbols a clock, and show what the row was before.

    kept u64: the set's quad two clocks behind `at` u7, with which `histogram` u64 comes, the same or, if
    fresh, the initial one, and `possible` u4. A clock later come entries u64: the row's histogram, 0 where
    impossible.
    """
    prior, prior_late = word(4 * PRIOR_BITS), word(4 * PRIOR_BITS)
    others = possible_symbols(clk, at, last, possible)

    @always(clk.posedge)
    def look_up():
        prior.next = PRIOR_QUADS[int(at)]
        prior_late.next = prior

    @always_comb
    def show():
        histogram.next = kept
        if fresh:
            histogram.next = concat(
                modbv(0)[10:], prior_late[24:18], modbv(0)[10:], prior_late[18:12], modbv(0)[10:],
                prior_late[12:6], modbv(0)[10:], prior_late[6:],
            )  # fmt: skip

    @always(clk.posedge)
    def choose():
        entries.next = 0
        if possible[0]:
            entries.next[16:] = histogram[16:]
        if possible[1]:
            entries.next[32:16] = histogram[32:16]
        if possible[2]:
            entries.next[48:32] = histogram[48:32]
        if possible[3]:
            entries.next[64:48] = histogram[64:48]

    return others, look_up, show, choose
