"""Takes the rows of heads, one head behind the other, and counts them."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.attention.ports import AT_BITS, QUERY, ROWS_BITS, TOO_FEW, TOO_MANY, Give, Head, RowWord
from oscar_hdl.streams.bundles import Stream, bit, word

DRAIN = 28  # clocks from a head's last word to its last sum, and some more


@block
def row_intake(clk, rst, s_axis: Stream, head: Head, words: RowWord, give: Give, refused):
    """Take a query, then its packet of rows, and say how it ended.

    s_axis: Stream(64): key and value of each row, a packet for each query. refused u16: heads that were, it
    wraps. A word of the last row waits until the result of the head before is out.
    """
    States = enum("IDLE", "LOAD", "RUN", "SKIP", "EMPTY", "GIVE")
    state, wait = Signal(States.IDLE), word(5)
    at, last_at, left = word(AT_BITS), word(AT_BITS), word(ROWS_BITS)
    value, first, last, takes, ends, reason = bit(), bit(), bit(), bit(), bit(), word(2)

    @always_comb
    def look():
        takes.next = s_axis.tvalid and (
            (state == States.RUN and (give.free or not last)) or state == States.SKIP
        )
        s_axis.tready.next = (state == States.RUN and (give.free or not last)) or state == States.SKIP
        ends.next = value and last and at == last_at
        head.take.next = state == States.IDLE and head.ready and not rst
        give.strobe.next = state == States.GIVE and give.free
        give.reason.next = reason

    @always(clk.posedge)
    def count():
        words.valid.next = takes and state == States.RUN and not rst
        words.data.next = s_axis.tdata
        words.value.next = value
        words.at.next = at
        words.first.next = first
        words.last.next = last
        words.end.next = at == last_at
        if state == States.LOAD:
            at.next = 0
            value.next = False
            first.next = True
            last_at.next = head.words[AT_BITS:] - 1
            left.next = head.rows
            last.next = head.rows == 1
        elif takes:
            at.next = at + 1
            if at == last_at:
                at.next = 0
                value.next = not value
                if value:
                    first.next = False
                    left.next = left - 1
                    last.next = left == 2

    @always(clk.posedge)
    def run():
        wait.next = wait - 1
        if state == States.IDLE:
            if head.ready:
                state.next = States.LOAD
        elif state == States.LOAD:
            reason.next = 0
            state.next = States.RUN
            if head.bad:
                reason.next = QUERY
                state.next = States.SKIP
        elif state == States.RUN:
            wait.next = DRAIN
            if takes and (ends or s_axis.tlast):
                state.next = States.EMPTY
                if not ends:
                    reason.next = TOO_FEW
                elif not s_axis.tlast:
                    reason.next = TOO_MANY
                    state.next = States.SKIP
        elif state == States.SKIP:
            wait.next = DRAIN
            if takes and s_axis.tlast:
                state.next = States.EMPTY
        elif state == States.EMPTY:
            if wait == 0:
                state.next = States.GIVE
        elif give.free:
            state.next = States.IDLE
            if reason != 0:
                refused.next = refused + 1
        if rst:
            state.next = States.IDLE
            refused.next = 0

    return look, count, run
