"""Entries of the table rows that are built: from a set, the initial state, or a frame."""

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import POSSIBLE, PRIOR, SYMBOLS
from oscar_hdl.coder.tables.build_control import RowReads
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied

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
def sent_entries(clk, reads: RowReads, histogram, given):
    """Give the quad that reads.levels has for reads.at two clocks later; if none was sent, the histogram."""
    levels, sent1, sent2, shown = word(16), bit(), bit(), word(60)

    @always(clk.posedge)
    def pick():
        sent1.next = reads.sent
        sent2.next = sent1
        if reads.at[2:] == 0:
            levels.next = reads.levels[16:]
        elif reads.at[2:] == 1:
            levels.next = reads.levels[32:16]
        elif reads.at[2:] == 2:
            levels.next = reads.levels[48:32]
        else:
            levels.next = reads.levels[64:48]
        # A level e stands for 2^(e-1), 0 for 0.
        for i in range(15):
            shown.next[i] = levels[4:] == i + 1
            shown.next[15 + i] = levels[8:4] == i + 1
            shown.next[30 + i] = levels[12:8] == i + 1
            shown.next[45 + i] = levels[16:12] == i + 1

    @always_comb
    def give():
        given.next = histogram
        if sent2:
            given.next = concat(
                modbv(0)[1:], shown[60:45], modbv(0)[1:], shown[45:30], modbv(0)[1:], shown[30:15],
                modbv(0)[1:], shown[15:],
            )  # fmt: skip

    return pick, give


@block
def row_source(clk, reads: RowReads, fresh, last, kept, entries, possible, histogram, *, encoding: bool):
    """Choose what tables are built from, four symbols a clock, and show what the row was before.

    kept u64: the set's quad two clocks behind reads.at, with which `histogram` u64 comes, the same or, if
    fresh, the initial one, and `possible` u4. A clock later come entries u64: the row's histogram, 0 where
    impossible. No rows are sent if `encoding`.
    """
    prior, prior_late, given = word(4 * PRIOR_BITS), word(4 * PRIOR_BITS), word(64)
    others = possible_symbols(clk, reads.at, last, possible)

    @always(clk.posedge)
    def look_up():
        prior.next = PRIOR_QUADS[int(reads.at)]
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
            entries.next[16:] = given[16:]
        if possible[1]:
            entries.next[32:16] = given[32:16]
        if possible[2]:
            entries.next[48:32] = given[48:32]
        if possible[3]:
            entries.next[64:48] = given[64:48]

    take = copied(None, histogram, given) if encoding else sent_entries(clk, reads, histogram, given)
    return others, look_up, show, choose, take
