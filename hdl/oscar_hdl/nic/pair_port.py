"""A stream of pairs of bytes with the pair, keep and last as one word."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat


@block
def pair_port(s_axis: Any, pair: Any, valid: Any, ready: Any) -> Any:
    """Connect s_axis, a Stream(16, keep=2), to pair u19 (data lowest, then keep, last), valid and ready."""

    @always_comb
    def connect():
        pair.next = concat(s_axis.tlast, s_axis.tkeep, s_axis.tdata)
        valid.next = s_axis.tvalid
        s_axis.tready.next = ready

    return connect
