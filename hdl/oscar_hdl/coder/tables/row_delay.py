"""A delay of some clocks in one block RAM."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import word

RING_BITS = 9  # a whole block RAM, so that it becomes one


@block
def row_delay(clk: Any, data: Any, late: Any, *, delay: int) -> Any:
    """Give u36 `data` as `late` so many clocks later, 16 to 64."""
    LAST = delay - 2
    memory = [word(36) for _ in range(1 << RING_BITS)]
    write_at, read_at, fetched, place = word(RING_BITS), word(RING_BITS), word(36), word(6)

    @always(clk.posedge)
    def move():
        memory[write_at].next = data
        place.next = place + 1
        if place == LAST:  # what is read now was written this many clocks ago
            place.next = 0
        read_at.next = place
        write_at.next = read_at
        fetched.next = memory[read_at]
        late.next = fetched

    return move
