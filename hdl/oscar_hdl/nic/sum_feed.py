"""Sums in packets, four a word, as values one by one for the splitter."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import Stream, bit, word

VALUE_BITS, LANES = 16, 4


@block
def sum_feed(
    clk: Any, rst: Any, segment: Any, first: Any, counts: Any, hold: Any, s_axis: Stream, m_axis: Stream,
    place: Any, idle: Any,
) -> Any:  # fmt: skip
    """Give the values of packets, and say which of the gradient they are.

    segment (strobe): from the next packet on values are passed on, if `counts`, and thrown away if not; its
    first value is number `first` of the gradient. Any other packet begins where the one before ended.
    Behind the last value that `place` can tell nothing is passed on. hold (level): no packet that is passed
    on shall begin.
    s_axis: Stream(64, keep=8): whole values, from the lowest lane on. m_axis: Stream(16), tlast at the end of
    a packet; place: number of the packet's first value, holds while it is passed on. idle (level): between
    two packets, and nothing is left of the first. Five clocks for four values.
    """
    left, ends, inside = word(3), bit(), bit()
    rest, here, lanes = word(LANES * VALUE_BITS), word(len(place)), word(3)
    asked, wanted, wanted_counts = bit(), word(len(place)), bit()
    LAST = (1 << len(place)) - 1
    counting, now_counts, ready = bit(), bit(), bit()

    @always_comb
    def show() -> None:
        s_axis.tready.next = ready and not rst
        m_axis.tdata.next = rest[VALUE_BITS:]
        m_axis.tvalid.next = left != 0
        m_axis.tlast.next = here == LAST or (ends and left == 1)
        idle.next = left == 0 and not inside
        lanes.next = 1
        if s_axis.tkeep[6]:
            lanes.next = 4
        elif s_axis.tkeep[4]:
            lanes.next = 3
        elif s_axis.tkeep[2]:
            lanes.next = 2

    @always_comb
    def look() -> None:
        now_counts.next = counting
        if asked and not inside:
            now_counts.next = wanted_counts

    @always_comb
    def admit() -> None:
        ready.next = left == 0 and (inside or not hold or not now_counts)

    @always(clk.posedge)
    def take() -> None:
        if left == 0:
            rest.next = s_axis.tdata
            ends.next = s_axis.tlast
            if s_axis.tvalid and ready:
                inside.next = not s_axis.tlast
                counting.next = now_counts
                if now_counts:
                    left.next = lanes
                if not inside:
                    asked.next = False
                    place.next = here
                    if asked:
                        place.next = wanted
                        here.next = wanted
        elif m_axis.tready:
            rest.next = rest >> VALUE_BITS
            left.next = left - 1
            here.next = here + 1
            if here == LAST:
                left.next = 0
                counting.next = False
        if segment:
            asked.next = True
            wanted.next = first
            wanted_counts.next = counts
        if rst:
            left.next = 0
            inside.next = False
            asked.next = False
            counting.next = False

    return show, look, admit, take
