"""What the encoder keeps of a group: the classes of its rows, and which of them have one above 0."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word

ROWS = 32


@block
def row_list(
    clk: Any, clear: Any, listing: Any, lane: Any, data: Any, at: Any, row: Any, live: Any, below: Any,
    seeds: Any, above_8: Any, above_16: Any, complete: Any, classes: Any, phase: Any, read_row: Any,
    row_class: Any, mean: Any,
) -> Any:  # fmt: skip
    """List the rows of a group that have a class above 0.

    clear: a header is read in the next slot. listing: while it comes; lane u5, data u11: class, size << 4,
    P << 7 of row `lane`. live u6: rows above class 0 so far; below u5: bit i is set if there are no more
    than i; above_8, above_16: more than 8 or 16 of them; seeds u3: how many rows may be seeds if there are
    no more. complete: all rows are listed.
    row u5: entry `at` of the list, a clock later. row_class u4, mean u3 (at most 7): of row `read_row` u5,
    two clocks later, or with `classes` of row `phase` u5.
    """
    rows = [word(5) for _ in range(ROWS)]
    kept = [word(7) for _ in range(ROWS)]
    listed, listed_1, read_at, entry = bit(), bit(), word(5), word(7)
    adds, keeps, lane1, above = bit(), word(7), word(5), word(4)
    fit_5, fit_4, fit_3, fit_2 = bit(), bit(), bit(), bit()

    @always_comb
    def select() -> None:
        keeps.next = concat(data[10:7], data[4:])
        if data[10]:
            keeps.next = concat(True, True, True, data[4:])

    @always(clk.posedge)
    def add() -> None:
        if listing:
            kept[lane].next = keeps
        adds.next = listing and data[4:] != 0
        lane1.next = lane
        if adds:
            rows[live[5:]].next = lane1
            live.next = live + 1
            below.next = concat(below[4:], False)
            above_8.next = above_8 or live[3]
            above_16.next = above_16 or live[4]
        listed.next = listing
        listed_1.next = listed
        complete.next = complete or (listed_1 and not listed)
        if clear:
            live.next = 0
            below.next = 31
            above_8.next = False
            above_16.next = False
            complete.next = False

    # The first rows with a class, up to five, say how many bits a seed needs.
    @always(clk.posedge)
    def fit() -> None:
        above.next[0] = data[7:4] > 1
        above.next[1] = data[7:4] > 2
        above.next[2] = data[7:4] > 3
        above.next[3] = data[7:4] > 4
        if adds:
            if below[4] and above[0]:
                fit_5.next = False
            if below[3] and above[1]:
                fit_4.next = False
            if below[2] and above[2]:
                fit_3.next = False
            if below[1] and above[3]:
                fit_2.next = False
        if clear:
            fit_5.next = True
            fit_4.next = True
            fit_3.next = True
            fit_2.next = True
        seeds.next = 1
        if fit_5:
            seeds.next = 5
        elif fit_4:
            seeds.next = 4
        elif fit_3:
            seeds.next = 3
        elif fit_2:
            seeds.next = 2

    @always(clk.posedge)
    def read() -> None:
        row.next = rows[at[5:]]
        read_at.next = read_row
        if classes:
            read_at.next = phase
        entry.next = kept[read_at]

    @always_comb
    def outputs() -> None:
        row_class.next = entry[4:]
        mean.next = entry[7:4]

    return select, add, fit, read, outputs
