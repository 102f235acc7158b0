"""Words of 64 bits as a wide stream."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word

WORD_BITS = 64


@block
def stream_join(clk: Any, rst: Any, s_axis: Any, m_axis: Any) -> Any:
    """Gather words, the first in the lowest bits; one with tlast fills up a wide word with what was there.

    s_axis: Stream(64); m_axis: Stream of 64 to 512 bits.
    """
    WIDTH = len(m_axis.tdata)
    PARTS = WIDTH // WORD_BITS
    if PARTS < 1 or PARTS * WORD_BITS != WIDTH or PARTS > 8:
        raise ValueError(f"expected a stream of 64 to 512 bits, got {WIDTH}")
    gathered, count, going = word(WIDTH), word(3), bit()

    if PARTS == 1:

        @always_comb
        def show() -> None:
            m_axis.tdata.next = s_axis.tdata
            m_axis.tvalid.next = s_axis.tvalid
            m_axis.tlast.next = s_axis.tlast
            s_axis.tready.next = m_axis.tready

        return show

    filling = bit()  # up to a wide word, behind the last

    @always_comb
    def ready() -> None:
        s_axis.tready.next = not m_axis.tvalid and not filling
        going.next = (s_axis.tvalid or filling) and not m_axis.tvalid
        m_axis.tdata.next = gathered

    @always(clk.posedge)
    def gather() -> None:
        if m_axis.tready:
            m_axis.tvalid.next = False
        if going:
            gathered.next = concat(s_axis.tdata, gathered[WIDTH:WORD_BITS])
            count.next = count + 1
            if not filling:
                m_axis.tlast.next = s_axis.tlast
            if count == PARTS - 1:
                count.next = 0
                filling.next = False
                m_axis.tvalid.next = True
            elif s_axis.tlast and not filling:
                filling.next = True
        if rst:
            count.next = 0
            filling.next = False
            m_axis.tvalid.next = False

    return ready, gather
