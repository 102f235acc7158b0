"""What a build of tables does when: its states, and rows that go into the pipeline."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def build_control(
    clk: Any, rst: Any, port: TablesPort, s_axis_sent: Stream, hold: Any, phase: Any, clear: Any, ended: Any,
    reading: Any, read_at: Any, sent: Any, levels: Any, *, encoding: bool,
) -> Any:  # fmt: skip
    """Have rows read in phases 0 to 15, from port.build to port.built.

    hold: level, no build begins. clear: level, while nothing goes through; ended: strobe, when the rows have
    gone through. read_at u9 is read while `reading`. sent, levels u64: of the row, for its 16 clocks.
    """
    wanted, working, start = bit(), bit(), bit()
    at_14, at_15, more, need, row = bit(), bit(), bit(), bit(), word(5)
    eighth = word(8)  # of the mask, with the next row's bit

    @always(clk.posedge)
    def command():
        port.built.next = working and ended
        start.next = False
        if port.build:
            wanted.next = True
        if wanted and not hold:
            wanted.next = False
            working.next = True
            start.next = True
        elif ended:
            working.next = False
        if rst:
            port.built.next = False
            wanted.next = False
            working.next = False
            start.next = False

    @always(clk.posedge)
    def turn():
        phase.next = phase + 1
        if start:
            phase.next = 12
        at_14.next = phase == 13 and not start
        at_15.next = phase == 14 and not start
        clear.next = rst or not working
        if reading:
            read_at.next = read_at + 1
        if clear:
            read_at.next = 0

    @always(clk.posedge)
    def rows():
        if at_15:
            reading.next = False
            if more and (not need or s_axis_sent.tvalid):
                reading.next = True
                row.next = row + 1
                more.next = row != 31
        if start:
            more.next = True
        if rst:
            more.next = False
            reading.next = False
            row.next = 0

    if encoding:

        @always(clk.posedge)
        def bring():
            s_axis_sent.tready.next = False
            need.next = False

    else:

        @always(clk.posedge)
        def bring():
            need.next = eighth[row[3:]]
            eighth.next = port.mask[8:]
            if row[5:3] == 1:
                eighth.next = port.mask[16:8]
            if row[5:3] == 2:
                eighth.next = port.mask[24:16]
            if row[5:3] == 3:
                eighth.next = port.mask[32:24]
            s_axis_sent.tready.next = at_14 and more and need
            if at_15:
                sent.next = need
                levels.next = s_axis_sent.tdata

    return command, turn, rows, bring
