"""A delay in distributed RAM, which costs less than a chain of registers from 4 clocks on."""

from myhdl import Signal, always, block, modbv

DEPTH = 16


@block
def lane_delay(clk, phase, data, delayed, clocks: int):
    """Give `data` again as `delayed`, so many clocks later.

    phase: u4 or more, counts up by one a clock and wraps; clocks: 2..16; data and delayed: of equal width.
    """
    if not 2 <= clocks <= DEPTH:
        raise ValueError(f"a lane_delay has 2 to {DEPTH} clocks, got {clocks}")
    if len(data) != len(delayed):
        raise ValueError(f"data has {len(data)} bits and delayed {len(delayed)}: give them the same width")
    ahead = (2 - clocks) % DEPTH
    memory = [Signal(modbv(0)[len(data) :]) for _ in range(DEPTH)]
    read_at = Signal(modbv(0)[4:])

    @always(clk.posedge)
    def shift():
        read_at.next = phase[4:] + ahead
        delayed.next = memory[read_at]
        memory[phase[4:]].next = data

    return shift
