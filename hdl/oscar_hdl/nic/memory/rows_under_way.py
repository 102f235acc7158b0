"""Rows that are added to: none is read again before its sums and their descriptor are written."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.bank_means import ROW_LOG2
from oscar_hdl.nic.memory.ports import WINDOW, BankAdds
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.zero import zero


@block
def row_under_way(clk, rst, phase, row2, row_before, valid_before, row, valid, hit):
    """Keep a row for a turn, and say whether it is row2, a clock later."""

    @always(clk.posedge)
    def move():
        if phase[2:] == 3:
            row.next = row_before
            valid.next = valid_before
        hit.next = valid and row == row2
        if rst:
            valid.next = False

    return move


@block
def same_row(clk, valid, row, other, same):
    """Set `same` one clock after a valid row under way equals `other`."""

    @always(clk.posedge)
    def compare():
        same.next = valid and row == other

    return compare


@block
def any_hit(hits: Sequence, hit):
    """Say whether one of the signals is high."""
    COUNT = len(hits)

    @always_comb
    def look():
        found = False
        for i in range(COUNT):
            if hits[i]:
                found = True
        hit.next = found

    return look


@block
def loader_order(clk, added: BankAdds, row2, rows: Sequence, valids: Sequence, hit):
    """Keep a loader's rows and a decoder's apart.

    hit: row2, of phase 2, may be under way in the loader, a clock later: it is one of the eights of rows in
    which those lie. added.busy: the loader's next row, of phase 0, is one of `rows` with `valids`, two clocks
    later.
    """
    sames, some, HIGH = [bit() for _ in rows], bit(), len(row2)
    parts = [
        same_row(clk, valid, row, added.rows.row, same)
        for row, valid, same in zip(rows, valids, sames, strict=True)
    ]

    @always(clk.posedge)
    def compare():
        added.busy.next = some
        hit.next = added.rows.on and (
            row2[HIGH:ROW_LOG2] == added.rows.row[HIGH:ROW_LOG2]
            or row2[HIGH:ROW_LOG2] == added.rows.last[HIGH:ROW_LOG2]
        )

    return parts, any_hit(sames, some), compare


@block
def rows_under_way(clk, rst, phase, row2, row3, given3, added: BankAdds, hit):
    """Say in phase 3 whether row2, of phase 2, was given in one of the WINDOW turns before, or is loaded.

    row3: the same in phase 3; given3: it is given in this turn. So adds of two frames to a row never
    interleave, in whatever order they come. added: a loader's rows, if it adds; busy, in phase 2:
    its row of phase 0 was given in one of those turns.
    """
    rows = [row3] + [word(len(row3)) for _ in range(WINDOW)]
    valids = [given3] + [bit() for _ in range(WINDOW)]
    hits = [bit() for _ in range(WINDOW)]
    parts = [
        row_under_way(clk, rst, phase, row2, row, valid, later, still, hits[i])
        for i, ((row, later), (valid, still)) in enumerate(zip(pairwise(rows), pairwise(valids), strict=True))
    ]
    if added.rows is None:
        parts.append(zero(clk, added.busy))
    else:
        hits.append(bit())
        parts.append(loader_order(clk, added, row2, rows[1:-1], valids[1:-1], hits[WINDOW]))
    return parts, any_hit(hits, hit)
