"""A stream of a feeder."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block

from oscar_hdl.streams.bundles import Stream


@block
def feed(
    valid: Any, landed: Any, blocked: Any, n: int, data: Any, last: Any, take: Any, stream: Stream
) -> Any:
    """Give data and last where bit n of valid is 1; `take`: a word may come."""

    @always_comb
    def connect():
        take.next = not landed and not blocked[n]
        stream.tvalid.next = valid[n]
        stream.tdata.next = data
        stream.tlast.next = last

    return connect
