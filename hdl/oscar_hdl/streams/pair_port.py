"""A stream of pairs of bytes as two words."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat


@block
def pair_port(s_axis: Any, pair: Any, mark: Any, ready: Any) -> Any:
    """Connect s_axis, a Stream(16, keep=2), to pair u17 (data lowest, keep[1]), mark u2 (valid, last) and
    ready."""

    @always_comb
    def connect():
        pair.next = concat(s_axis.tkeep[1], s_axis.tdata)
        mark.next = concat(s_axis.tlast, s_axis.tvalid)
        s_axis.tready.next = ready

    return connect
