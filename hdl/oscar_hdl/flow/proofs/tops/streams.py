"""Blocks of streams, and those of the coder and of attention, as they are converted for proofs."""

from __future__ import annotations

from typing import Any

from myhdl import block

from oscar_hdl.streams.bundles import Stream, bit, word


def pair_fifo(depth_log2: int = 2) -> Any:
    """Of words of 16 bits, four of them unless told."""
    from oscar_hdl.streams.pair_fifo import pair_fifo as made

    return made(bit(), bit(), bit(), word(16), bit(), bit(), Stream(16, keep=2), bit(), depth_log2=depth_log2)


@block
def _byte_drain(clk, rst, start, begun, ask, over, over_thread, level, address, issues, data, m_axis):  # type: ignore[no-untyped-def]
    from oscar_hdl.coder.encode.byte_drain import byte_drain as made
    from oscar_hdl.coder.encode.ports import Ended

    ended = Ended()
    ended.strobe16, ended.thread16 = over, over_thread
    return made(clk, rst, start, begun, ask, ended, level, address, issues, data, m_axis)


def byte_drain() -> Any:
    """Without what it does not look at of blocks that end."""
    from oscar_hdl.coder.encode.ports import DrainPort, Level

    return _byte_drain(
        bit(), bit(), bit(), word(3), DrainPort(), bit(), word(3), Level(), word(10), bit(), word(128),
        Stream(128, keep=16),
    )  # fmt: skip


@block
def _row_intake(clk, rst, s_axis, ready, take, bad, words, rows, row_word, give, refused):  # type: ignore[no-untyped-def]
    from oscar_hdl.attention.ports import Head
    from oscar_hdl.attention.row_intake import row_intake as made

    head = Head()
    head.ready, head.take, head.bad, head.words, head.rows = ready, take, bad, words, rows
    return made(clk, rst, s_axis, head, row_word, give, refused)


def row_intake() -> Any:
    """Without what it does not look at of a query."""
    from oscar_hdl.attention.ports import ROWS_BITS, WORDS_BITS, Give, RowWord

    query = bit(), bit(), bit(), word(WORDS_BITS), word(ROWS_BITS)
    return _row_intake(bit(), bit(), Stream(64), *query, RowWord(), Give(), word(16))
