"""A wide stream in words of 64 bits."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import word

WORD_BITS = 64


@block
def stream_split(clk: Any, rst: Any, forget: Any, s_axis: Any, m_axis: Any) -> Any:
    """Give each word of s_axis in parts, the lowest first.

    s_axis: Stream of 64 to 512 bits; m_axis: Stream(64); no tlast. forget: strobe, what is left of a word is
    dropped.
    """
    WIDTH = len(s_axis.tdata)
    PARTS = WIDTH // WORD_BITS
    if PARTS < 1 or PARTS * WORD_BITS != WIDTH or PARTS > 8:
        raise ValueError(f"expected a stream of 64 to 512 bits, got {WIDTH}")
    rest, left = word(WIDTH), word(4)

    if PARTS == 1:

        @always_comb
        def show() -> None:
            m_axis.tdata.next = s_axis.tdata
            m_axis.tvalid.next = s_axis.tvalid
            s_axis.tready.next = m_axis.tready

        return show

    @always_comb
    def show_part() -> None:
        m_axis.tdata.next = rest[WORD_BITS:]
        m_axis.tvalid.next = left != 0
        s_axis.tready.next = left == 0 and not forget

    @always(clk.posedge)
    def shift() -> None:
        if left == 0:
            rest.next = s_axis.tdata
            if s_axis.tvalid:
                left.next = PARTS
        elif m_axis.tready:
            rest.next = rest >> WORD_BITS
            left.next = left - 1
        if forget or rst:
            left.next = 0

    return show_part, shift
