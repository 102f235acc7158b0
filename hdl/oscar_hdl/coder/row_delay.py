"""A delay of 45 clocks in one block RAM."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import word

DELAY = 45
RING_BITS = 9  # a whole block RAM, so that it becomes one


@block
def row_delay(clk: Any, data: Any, late: Any) -> Any:
    """Give u36 `data` as `late` 45 clocks later."""
    memory = [word(36) for _ in range(1 << RING_BITS)]
    write_at, read_at, fetched = word(RING_BITS), word(RING_BITS), word(36)

    @always(clk.posedge)
    def move():
        memory[write_at].next = data
        write_at.next = write_at + 1
        read_at.next = write_at - (DELAY - 3)
        fetched.next = memory[read_at]
        late.next = fetched

    return move
