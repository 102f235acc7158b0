"""Between decoder and encoder: adds the local values, and hands sums and classes to whoever wants them."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.params import COUNT_BITS
from oscar_hdl.streams.bundles import bit, word

DEPTH_LOG2 = 5  # of the class FIFO: more than the values on their way through a decoder


@block
def reducer(
    clk: Any, rst: Any, start: Any, op_decode: Any, op_add: Any, op_encode: Any, op_keep: Any, count: Any,
    s_axis_class: Any, s_axis_value: Any, s_axis_local: Any, m_axis_class: Any, m_axis_code: Any,
    m_axis_sum: Any, value_in: Any, value_out: Any, stall_sum: Any,
) -> Any:  # fmt: skip
    """Move `count` u19 values and their classes after `start` (pulse); op_* hold still until all are gone.

    s_axis_class: Stream(4), a class for each value, copied to m_axis_class (decoder, if op_decode) and to
    the encoder. s_axis_value: Stream(16), from the decoder if op_decode; its tdata is 0 while not
    tvalid. s_axis_local: Stream(16), taken if op_add or not op_decode. m_axis_code: Stream(20), class << 16
    | sum, to the encoder if op_encode. m_axis_sum: Stream(16) if op_keep, tlast with the last and with those
    that came with the tlast of s_axis_local. A sum is exact: the width of a frame leaves room for all terms.
    Latency 1 clock. value_in, value_out, stall_sum: strobes.
    """
    DEPTH = 1 << DEPTH_LOG2

    # A sum waits in one register until all who want it have it.
    move, coding, keeping, last = bit(), bit(), bit(), bit()
    total, local, kind = word(16), word(16), word(4)
    ahead, some_ahead = word(COUNT_BITS), bit()  # classes still to come
    # Classes that wait for their value: the only count of values under way, so they wait in every mode.
    fifo = [word(4) for _ in range(DEPTH)]
    wr_at, rd_at = word(DEPTH_LOG2), word(DEPTH_LOG2)
    kept, step, push, room, waiting = word(DEPTH_LOG2 + 1), word(DEPTH_LOG2 + 1), bit(), bit(True), bit()
    wants_local = bit()

    @always_comb
    def classes():
        m_axis_class.tdata.next = s_axis_class.tdata
        m_axis_class.tlast.next = s_axis_class.tlast
        m_axis_class.tvalid.next = s_axis_class.tvalid and some_ahead and op_decode and room
        s_axis_class.tready.next = some_ahead and room and (m_axis_class.tready or not op_decode)
        push.next = s_axis_class.tvalid and some_ahead and room and (m_axis_class.tready or not op_decode)

    @always_comb
    def values():
        wants_local.next = op_add or not op_decode
        local.next = 0
        if op_add or not op_decode:
            local.next = s_axis_local.tdata
        move.next = (
            waiting
            and (s_axis_value.tvalid or not op_decode)
            and (s_axis_local.tvalid or (op_decode and not op_add))
            and (m_axis_code.tready or not coding)
            and (m_axis_sum.tready or not keeping)
        )
        step.next = 1
        if move:
            step.next = 2 * DEPTH - 1  # less one

    @always_comb
    def outputs():
        s_axis_value.tready.next = move and op_decode
        s_axis_local.tready.next = move and wants_local
        m_axis_code.tvalid.next = coding
        m_axis_code.tdata.next = concat(kind, total)
        m_axis_code.tlast.next = last
        m_axis_sum.tvalid.next = keeping
        m_axis_sum.tdata.next = total
        m_axis_sum.tlast.next = last
        value_in.next = move and op_decode
        value_out.next = coding and m_axis_code.tready
        stall_sum.next = keeping and not m_axis_sum.tready

    @always(clk.posedge)
    def run():
        if push:
            ahead.next = ahead - 1
            some_ahead.next = ahead != 1
            fifo[wr_at].next = s_axis_class.tdata
            wr_at.next = wr_at + 1
        if push != move:
            kept.next = kept + step
            waiting.next = push or kept != 1
            room.next = move or kept != DEPTH - 1

        if m_axis_code.tready:
            coding.next = False
        if m_axis_sum.tready:
            keeping.next = False
        if move:
            total.next = s_axis_value.tdata + local
            kind.next = fifo[rd_at]
            rd_at.next = rd_at + 1
            last.next = (kept == 1 and not some_ahead) or (wants_local and s_axis_local.tlast)
            coding.next = op_encode
            keeping.next = op_keep

        if start:
            ahead.next = count
            some_ahead.next = count != 0
        if rst:
            some_ahead.next = False
            coding.next = False
            keeping.next = False
            wr_at.next = 0
            rd_at.next = 0
            kept.next = 0
            waiting.next = False
            room.next = True

    return classes, values, outputs, run
