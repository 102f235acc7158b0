"""What link_tables does when: its states, the chain of counts, and rows that go into the pipeline."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.ports import CountChain, TablesPort
from oscar_hdl.streams.bundles import Stream, bit, word

ROW_STATES = enum("IDLE", "HOLD", "ASK", "FOLLOW")


@block
def tables_control(
    clk: Any, rst: Any, port: TablesPort, s_axis_sent: Stream, request: CountChain, answer: CountChain,
    phase: Any, learning: Any, mute: Any, clear: Any, ended: Any,
    reading: Any, read_at: Any, sent: Any, levels: Any, count: Any, *, encoding: bool,
) -> Any:  # fmt: skip
    """Ask for counts, and have rows read in phases 0 to 15 (build) or 2 to 17 (learn).

    clear: level, while nothing goes through; ended: strobe, when the rows have gone through. read_at u9 is
    read while `reading`. sent, levels u64: of the row, for its 16 clocks. count u19 comes in a row's phase 2.
    mute: what is learnt is not to be kept: counts are only taken, as after a reset.
    """
    state = Signal(ROW_STATES.IDLE)
    want_build, want_learn, second_bank = bit(), bit(), bit()
    start, arrived, at = bit(), word(6), word(9)
    at_14, at_15, more, need, row_on, row = bit(), bit(), bit(), bit(), bit(), word(5)
    eighth = word(8)  # of the mask, with the next row's bit

    @always(clk.posedge)
    def command():
        port.built.next = False
        port.learnt.next = False
        start.next = False
        if port.build:
            want_build.next = True
        if port.learn:
            want_learn.next = True
        if state == ROW_STATES.IDLE:
            learning.next = True
            if mute or want_learn:
                state.next = ROW_STATES.HOLD
            elif want_build:
                learning.next = False
                start.next = True
                state.next = ROW_STATES.FOLLOW
        elif state == ROW_STATES.HOLD:
            if answer.address[2:] == 1 and not answer.valid:
                state.next = ROW_STATES.ASK
        elif state == ROW_STATES.ASK:
            if at == 511:
                state.next = ROW_STATES.FOLLOW
        elif ended:
            state.next = ROW_STATES.IDLE
            second_bank.next = True
            if second_bank:
                mute.next = False
            if not mute:
                port.built.next = not learning
                port.learnt.next = learning
                want_build.next = False
                want_learn.next = False
        if rst:
            state.next = ROW_STATES.IDLE
            want_build.next = False
            want_learn.next = False
            start.next = False
            mute.next = True
            second_bank.next = False
            port.built.next = False
            port.learnt.next = False

    @always(clk.posedge)
    def ask():
        request.valid.next = False
        request.total.next = 0
        request.address.next = at
        if state == ROW_STATES.ASK:
            at.next = at + 1
            request.valid.next = True
        if state == ROW_STATES.HOLD:
            request.address.next[0] = True
        request.bank.next = port.count_bank
        if mute:
            request.bank.next = second_bank
        if rst:
            at.next = 0
            request.valid.next = False

    @always(clk.posedge)
    def receive():
        arrived.next[6:1] = arrived[5:]
        arrived.next[0] = answer.valid
        count.next = answer.total[19:]
        if not learning:
            count.next = 0
        if clear:
            arrived.next = 0

    @always(clk.posedge)
    def turn():
        phase.next = phase + 1
        if arrived[2] and not arrived[3]:
            phase.next = 0
        if start:
            phase.next = 12
        at_14.next = phase == 13 and not start
        at_15.next = phase == 14 and not start
        clear.next = rst or state == ROW_STATES.IDLE or state == ROW_STATES.HOLD
        if reading:
            read_at.next = read_at + 1
        if clear:
            read_at.next = 0

    @always_comb
    def read():
        reading.next = row_on or arrived[5]

    @always(clk.posedge)
    def rows():
        if at_15:
            row_on.next = False
            if more and (not need or s_axis_sent.tvalid):
                row_on.next = True
                row.next = row + 1
                more.next = row != 31
        if start:
            more.next = True
        if rst:
            more.next = False
            row_on.next = False
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

    return command, ask, receive, turn, read, rows, bring
