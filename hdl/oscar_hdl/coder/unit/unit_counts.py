"""What a barrel unit counts: two symbols a clock, each in a memory of its own."""

from itertools import pairwise

from myhdl import always_comb, block

from oscar_hdl.coder.ports import BANKS, CountChain, CountPort
from oscar_hdl.coder.tables.symbol_counts import symbol_counts
from oscar_hdl.coder.unit.ports import SAMPLED, CountedLanes


@block
def lane_counts(counts: CountedLanes, port: CountPort, *, lane: int):
    """Give what one of the lanes counts."""
    LANE, LOW, HIGH = lane, 9 * lane, 9 * lane + 9

    @always_comb
    def take():
        port.valid.next = counts.valid[LANE]
        port.address.next = counts.address[HIGH:LOW]

    return take


@block
def unit_counts(clk, rst, counts: CountedLanes, before: CountChain, after: CountChain, *, banks: int = BANKS):
    """Count what a unit gives, and hand it to the chain (symbol_counts): two of its places.

    banks: of symbol_counts; `counts.bank` is where a clock's symbols are counted. The chain is
    two clocks longer by a unit.
    """
    ports = [CountPort() for _ in range(SAMPLED)]
    chain = [before, *(CountChain() for _ in range(SAMPLED - 1)), after]
    lanes = [lane_counts(counts, port, lane=n) for n, port in enumerate(ports)]
    kept = [
        symbol_counts(clk, rst, port, counts.bank, *link, banks=banks)
        for port, link in zip(ports, pairwise(chain), strict=True)
    ]
    return lanes, kept
