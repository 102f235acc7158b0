"""Who made the frames that were dropped: how many of each peer, and why the last one was."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.control.registers import DROPS_BITS, PEERS_LOG2
from oscar_hdl.nic.ports import PEER_BITS
from oscar_hdl.nic.receive.ports import Dropped
from oscar_hdl.streams.bundles import bit, word

KEPT_BITS = DROPS_BITS + 4


@block
def drop_counts(clk, rst, dropped: Dropped, show, shown):
    """Count dropped frames of peers 0 to 15, modulo 2^16; those of others are left out.

    show u4 -> shown u20 two clocks later: a peer's count, and above it the reason of its last. A frame counts
    three clocks behind dropped.bad.
    """
    memory = [word(KEPT_BITS) for _ in range(1 << PEERS_LOG2)]
    known, there = word(1 << PEERS_LOG2), bit()  # peers with a count since the reset
    counts, at, reason, before, repeated = bit(), word(PEERS_LOG2), word(4), word(KEPT_BITS), bit()
    first, number, total, last = word(DROPS_BITS), word(DROPS_BITS), word(KEPT_BITS), word(DROPS_BITS)
    seen, seen_known = word(KEPT_BITS), bit()

    @always_comb
    def find():
        first.next = 0
        if repeated:  # memory does not have it yet
            first.next = last
        elif there:
            first.next = before[DROPS_BITS:]

    @always_comb
    def add():
        number.next = first + 1

    @always_comb
    def join():
        total.next = concat(reason, number)

    @always(clk.posedge)
    def count():
        counts.next = dropped.bad and dropped.peer[PEER_BITS:PEERS_LOG2] == 0
        at.next = dropped.peer[PEERS_LOG2:]
        reason.next = dropped.reason
        before.next = memory[dropped.peer[PEERS_LOG2:]]
        there.next = known[dropped.peer[PEERS_LOG2:]]
        repeated.next = counts and at == dropped.peer[PEERS_LOG2:]
        last.next = number
        if counts:
            memory[at].next = total
            known.next[at] = True
        if rst:
            counts.next = False
            known.next = 0

    @always(clk.posedge)
    def tell():
        seen.next = memory[show]
        seen_known.next = known[show]
        shown.next = 0
        if seen_known:
            shown.next = seen

    return find, add, join, count, tell
