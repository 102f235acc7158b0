"""A stream's packets as commands of a memory's loader or reader."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.ports import FRAME_ROW_BITS
from oscar_hdl.streams.bundles import Stream, bit, word

ROW_AT, COUNT_AT = 0, 32  # of a packet's first word: row, number of values
CHECKED = 3  # clocks until it is known whether all rows are in memory


@block
def row_port(
    clk: Any, rst: Any, s_axis: Stream, m_axis: Stream, clear: Any, first_row: Any, rows: Any, cleared: Any,
    command: Any, wrong: Any, *, align: int = 0,
) -> Any:  # fmt: skip
    """Start a command with the first word of each packet, and pass the rest on.

    s_axis: Stream(64 or more); a packet's first word has the row in bits 0 to 31 and the number of values, 1
    or more, in bits 32 to 63. A command without data has packets of one word. m_axis: as wide. clear: pulse,
    with first_row and rows u14, which hold: rows shall be cleared, between two packets; cleared: pulse.
    command: RowCommand; the memory has as many rows as `first` tells apart. While rst is high nothing is
    taken.

    wrong (pulse): a packet was not as its first word says. Of rows that are not all in memory, of no values,
    or from a row on that is no multiple of 2^align, none is written or read. A packet that is too short goes
    on with zeros, of one that is too long the rest is thrown away.
    """
    steps = enum("HEADER", "CHECK", "DATA", "REST")
    at = Signal(steps.HEADER)
    asked, clearing = bit(), bit()
    over, lacking = bit(), bit()  # the packet has ended, and was too short
    stray, outside, wait = bit(), bit(), word(2)
    FIRST_BITS, COUNT_BITS = len(command.first), len(command.count)
    ALIGN = (1 << align) - 1
    FIRST_END, COUNT_END, ROWS = ROW_AT + FIRST_BITS, COUNT_AT + COUNT_BITS, 1 << FIRST_BITS
    number, behind = word(FRAME_ROW_BITS + 1), word(max(FIRST_BITS, FRAME_ROW_BITS + 1) + 1)

    @always_comb
    def connect() -> None:
        m_axis.tdata.next = s_axis.tdata
        if over:
            m_axis.tdata.next = 0
        m_axis.tlast.next = s_axis.tlast or over
        m_axis.tvalid.next = at == steps.DATA and not clearing and (s_axis.tvalid or over)
        s_axis.tready.next = not rst and (
            (at == steps.HEADER and command.idle and not asked)
            or (at == steps.DATA and m_axis.tready and not clearing and not over)
            or at == steps.REST
        )

    @always(clk.posedge)
    def measure() -> None:
        if at == steps.HEADER:
            stray.next = (
                s_axis.tdata[COUNT_AT:FIRST_END] != 0
                or s_axis.tdata[64:COUNT_END] != 0
                or s_axis.tdata[COUNT_END:COUNT_AT] == 0
                or (s_axis.tdata[FIRST_END:ROW_AT] & ALIGN) != 0
            )
        number.next = concat(False, command.count[COUNT_BITS:5])
        if command.count[5:] != 0:
            number.next = concat(False, command.count[COUNT_BITS:5]) + 1
        behind.next = command.first + number
        outside.next = stray or behind > ROWS

    @always(clk.posedge)
    def take() -> None:
        """What a command is for."""
        if at == steps.HEADER:
            clearing.next = asked
            command.clear.next = asked
            if asked:
                command.first.next = first_row[FIRST_BITS:]
                command.count.next = concat(rows, modbv(0)[5:])
            else:
                command.first.next = s_axis.tdata[FIRST_END:ROW_AT]
                command.count.next = s_axis.tdata[COUNT_END:COUNT_AT]

    @always(clk.posedge)
    def proceed() -> None:
        command.start.next = False
        cleared.next = False
        wrong.next = False
        wait.next = 0
        if clear:
            asked.next = True
        if at == steps.HEADER:
            over.next = s_axis.tlast
            lacking.next = False
            if command.idle and (asked or s_axis.tvalid):
                at.next = steps.CHECK
                if asked:
                    asked.next = False
        elif at == steps.CHECK:
            wait.next = wait + 1
            if wait == CHECKED:
                command.start.next = clearing or not outside
                at.next = steps.DATA
                if outside and not clearing:
                    wrong.next = True
                    at.next = steps.REST
                    if over:
                        at.next = steps.HEADER
        elif at == steps.DATA:
            if s_axis.tvalid and s_axis.tready and s_axis.tlast:
                over.next = True
            if m_axis.tvalid and m_axis.tready and over:
                lacking.next = True
            if command.done:
                cleared.next = clearing
                wrong.next = not clearing and (lacking or not over)
                at.next = steps.REST
                if clearing or over:
                    at.next = steps.HEADER
        elif s_axis.tvalid and s_axis.tlast:
            at.next = steps.HEADER
        if rst:
            at.next = steps.HEADER
            asked.next = False
            command.start.next = False
            cleared.next = False
            wrong.next = False

    return connect, measure, take, proceed
