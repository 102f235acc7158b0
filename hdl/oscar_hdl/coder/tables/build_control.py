"""What a build of tables does when: which quads of rows go into the pipeline."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.streams.bundles import Stream, bit, word


class RowReads:
    """Quads that a build reads, one a clock; a row's four come one behind the other."""

    def __init__(self) -> None:
        self.reading, self.at = bit(), word(7)  # now: row, quad
        self.phase = word(2)  # of `at` while reading; waits for a row take four clocks, too
        self.sent, self.levels = bit(), word(64)  # of the row


@block
def build_control(
    clk: Any, rst: Any, port: TablesPort, s_axis_sent: Stream, hold: Any, ended: Any, reads: RowReads, *,
    encoding: bool,
) -> Any:  # fmt: skip
    """Have the rows of a set read, from the clock behind port.build on, to port.built.

    hold: level, no build begins. ended: strobe, a clock before `built`, behind the last read.
    """
    wanted, working, going = bit(), bit(), bit()
    at_3, more, need, take, row = bit(), bit(), bit(), bit(), word(5)  # the row that is read next

    @always_comb
    def look():
        take.next = at_3 and more and (not need or s_axis_sent.tvalid)
        reads.reading.next = going or (wanted and not hold and not need)

    @always(clk.posedge)
    def command():
        port.built.next = ended
        if port.build:
            wanted.next = True
        if wanted and not hold:
            wanted.next = False
            working.next = True
        elif ended:
            working.next = False
        if rst:
            port.built.next = False
            wanted.next = False
            working.next = False

    @always(clk.posedge)
    def turn():
        reads.phase.next = reads.phase + 1
        at_3.next = working and reads.phase == 2
        if wanted and not hold:
            reads.phase.next = 1
        if reads.reading:
            reads.at.next = reads.at + 1
        if rst:
            at_3.next = False
            reads.at.next = 0

    @always(clk.posedge)
    def rows():
        if take:
            row.next = row + 1
            more.next = row != 31
        if at_3:
            going.next = take
        if wanted and not hold:
            more.next = True
            if not need:
                going.next = True
                row.next = 1
        if rst:
            going.next = False
            row.next = 0

    if encoding:

        @always(clk.posedge)
        def bring():
            s_axis_sent.tready.next = False
            need.next = False

    else:

        @always(clk.posedge)
        def bring():
            need.next = port.mask[int(row)]
            s_axis_sent.tready.next = working and reads.phase == 2 and more and need
            if at_3:
                reads.sent.next = need
                reads.levels.next = s_axis_sent.tdata
            if not working:
                reads.sent.next = False
            if rst:
                s_axis_sent.tready.next = False

    return look, command, turn, rows, bring
