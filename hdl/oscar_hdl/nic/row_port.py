"""A stream's packets as commands of a memory's loader or reader."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.streams.bundles import Stream, bit

ROW_AT, COUNT_AT = 0, 32  # of a packet's first word: row, number of values


@block
def row_port(
    clk: Any, rst: Any, s_axis: Stream, m_axis: Stream, clear: Any, first_row: Any, rows: Any, cleared: Any,
    command: Any,
) -> Any:  # fmt: skip
    """Start a command with the first word of each packet, and pass the rest on.

    s_axis: Stream(64); a packet's first word has the row in bits 0 to 31 and the number of values, 1 or more,
    from bit 32 on. A command without data has packets of one word. m_axis: Stream(64). clear: pulse, with
    first_row and rows u14, which hold: rows shall be cleared, between two packets; cleared: pulse.
    command: RowCommand. While rst is high nothing is taken.
    """
    steps = enum("HEADER", "DATA", "REST")
    at = Signal(steps.HEADER)
    asked, clearing, over = bit(), bit(), bit()  # over: the packet has ended
    FIRST_END, COUNT_END = ROW_AT + len(command.first), COUNT_AT + len(command.count)
    FIRST_BITS = len(command.first)

    @always_comb
    def connect() -> None:
        m_axis.tdata.next = s_axis.tdata
        if over:
            m_axis.tdata.next = 0
        m_axis.tlast.next = s_axis.tlast
        m_axis.tvalid.next = at == steps.DATA and not clearing and (s_axis.tvalid or over)
        s_axis.tready.next = not rst and (
            (at == steps.HEADER and command.idle and not asked)
            or (at == steps.DATA and m_axis.tready and not clearing and not over)
            or at == steps.REST
        )

    @always(clk.posedge)
    def proceed() -> None:
        command.start.next = False
        cleared.next = False
        if clear:
            asked.next = True
        if at == steps.HEADER:
            clearing.next = asked
            over.next = s_axis.tlast
            command.clear.next = asked
            if asked:
                command.first.next = first_row[FIRST_BITS:]
                command.count.next = concat(rows, modbv(0)[5:])
            else:
                command.first.next = s_axis.tdata[FIRST_END:ROW_AT]
                command.count.next = s_axis.tdata[COUNT_END:COUNT_AT]
            if command.idle and (asked or s_axis.tvalid):
                command.start.next = True
                at.next = steps.DATA
                if asked:
                    asked.next = False
        elif at == steps.DATA:
            # A packet that is too short goes on with zeros; what is too much is thrown away.
            if s_axis.tvalid and s_axis.tready and s_axis.tlast:
                over.next = True
            if command.done:
                cleared.next = clearing
                at.next = steps.REST
                if clearing or over or (s_axis.tvalid and s_axis.tready and s_axis.tlast):
                    at.next = steps.HEADER
        elif s_axis.tvalid and s_axis.tlast:
            at.next = steps.HEADER
        if rst:
            at.next = steps.HEADER
            asked.next = False
            command.start.next = False
            cleared.next = False

    return connect, proceed
