"""Finds a symbol, its frequency and what is left of the slot: two levels of three thresholds each."""

from myhdl import Signal, always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import BANKS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain


class LevelWrites:
    """Writes of both levels' thresholds: of level 1 a table row, of level 2 a node of it."""

    def __init__(self, banks: int = BANKS) -> None:
        bits = banks.bit_length() - 1
        self.coarse, self.coarse_at, self.coarse_data = bit(), word(5 + bits), word(30)
        self.fine, self.fine_at, self.fine_data = bit(), word(8 + bits), word(30)


@block
def level_writes(clk, tables, levels):
    """Turn TableWrites into LevelWrites, which as many searches may have as want to."""
    written, fourth, eighth = word(40), word(10), word(10)
    ROW_END, FINE_END = 2 + len(levels.coarse_at), len(levels.fine_at)

    @always(clk.posedge)
    def write():
        # A row's quads come in order: with the last one its level 1 is complete.
        levels.coarse.next = tables.enable and tables.address[2:] == 3
        levels.fine.next = tables.enable
        written.next = tables.data[40:]
        if levels.fine and levels.fine_at[3:] == 1:
            fourth.next = written[10:]
        if levels.fine and levels.fine_at[3:] == 3:
            eighth.next = written[10:]
        levels.coarse_at.next = tables.address[ROW_END:2]
        levels.fine_at.next[FINE_END:3] = tables.address[ROW_END:2]
        levels.fine_at.next[2] = tables.address[1] and tables.address[0]
        levels.fine_at.next[1] = tables.address[1]
        levels.fine_at.next[0] = tables.address[1] or tables.address[0]

    @always_comb
    def give():
        levels.coarse_data.next = concat(written[10:], eighth, fourth)
        levels.fine_data.next = written[40:10]

    return write, give


@block
def decoder_search(clk, levels, context, low, active, symbol, freq, rest):
    """Search a slot a clock; a port's time is the clocks after `low`.

    levels: LevelWrites. context, time -2: table row, and above it the bank; low u10, time 0: the slot, the
    state's low bits; active, time 5: where it is 0 the lane does nothing. symbol u4, time 6; freq u10 and
    rest u10 (slot - c), time 7: 0 and the slot itself where the lane does nothing. Names of signals end in
    their time.

    The thresholds around the slot come out of both levels: the node's lower and upper bound are thresholds
    of level 1 next to it, so f needs no memory of its own. c[16] = 1024 shows as 0: f is a difference
    modulo 1024. A bound is the or of those it may be, from registers that are 0 where it is another one.
    """
    level1 = [Signal(modbv(0)[30:]) for _ in range(1 << len(levels.coarse_at))]
    # Of bank, table row, comparisons of level 1.
    level2 = [Signal(modbv(0)[30:]) for _ in range(1 << len(levels.fine_at))]
    fine_at = word(len(levels.fine_at))
    coarse_out, coarse0, coarse1, fine_out, fine3, fine4 = (word(30) for _ in range(6))
    context9, context0, context1 = (word(len(levels.coarse_at)) for _ in range(3))
    low1, low2, low3, low4, low5, low6 = (word(10) for _ in range(6))
    reach1, reach4 = word(3), word(3)
    lower_a2, lower_b2, lower_c2, upper_a2, upper_b2, upper_c2 = (word(10) for _ in range(6))
    lower3, upper3, lower4, upper4 = (word(10) for _ in range(4))
    node2, node3, node4, node5 = (word(2) for _ in range(4))
    cum_lower5, cum_a5, cum_b5, cum_c5, next_a5, next_b5, next_c5, next_upper5 = (word(10) for _ in range(8))
    even5, odd5 = bit(), bit()
    cum6, next6 = word(10), word(10)
    delays = [chain(clk, low, low1, low2, low3, low4, low5, low6), chain(clk, node2, node3, node4, node5)]

    @always(clk.posedge)
    def write():
        if levels.coarse:
            level1[levels.coarse_at].next = levels.coarse_data
        if levels.fine:
            level2[levels.fine_at].next = levels.fine_data

    @always_comb
    def addresses():
        fine_at.next = concat(context1, reach1)

    @always(clk.posedge)
    def coarse():
        coarse_out.next = level1[context]
        coarse0.next = coarse_out
        coarse1.next = coarse0
        context9.next = context
        context0.next = context9
        context1.next = context0
        reach1.next[0] = low >= coarse0[10:]
        reach1.next[1] = low >= coarse0[20:10]
        reach1.next[2] = low >= coarse0[30:20]
        node2.next[1] = reach1[1]
        node2.next[0] = reach1[2] or (reach1[0] and not reach1[1])

    @always(clk.posedge)
    def bounds():
        # The node's bounds: one of the thresholds, 0 or 1024.
        lower_a2.next = coarse1[10:]
        if reach1[1] or not reach1[0]:
            lower_a2.next = 0
        lower_b2.next = coarse1[20:10]
        if reach1[2] or not reach1[1]:
            lower_b2.next = 0
        lower_c2.next = coarse1[30:20]
        if not reach1[2]:
            lower_c2.next = 0
        upper_a2.next = coarse1[10:]
        if reach1[0]:
            upper_a2.next = 0
        upper_b2.next = coarse1[20:10]
        if reach1[1] or not reach1[0]:
            upper_b2.next = 0
        upper_c2.next = coarse1[30:20]
        if reach1[2] or not reach1[1]:
            upper_c2.next = 0
        lower3.next = lower_a2 | lower_b2 | lower_c2
        upper3.next = upper_a2 | upper_b2 | upper_c2
        lower4.next = lower3
        upper4.next = upper3

    @always(clk.posedge)
    def fine():
        fine_out.next = level2[fine_at]
        fine3.next = fine_out
        fine4.next = fine3
        reach4.next[0] = low3 >= fine3[10:]
        reach4.next[1] = low3 >= fine3[20:10]
        reach4.next[2] = low3 >= fine3[30:20]

    @always(clk.posedge)
    def choose():
        # Of five bounds in a row the one below the slot and the one above it.
        cum_lower5.next = lower4
        next_a5.next = fine4[10:]
        if reach4[0]:
            cum_lower5.next = 0
            next_a5.next = 0
        cum_a5.next = fine4[10:]
        next_b5.next = fine4[20:10]
        if reach4[1] or not reach4[0]:
            cum_a5.next = 0
            next_b5.next = 0
        cum_b5.next = fine4[20:10]
        next_c5.next = fine4[30:20]
        if reach4[2] or not reach4[1]:
            cum_b5.next = 0
            next_c5.next = 0
        cum_c5.next = fine4[30:20]
        next_upper5.next = upper4
        if not reach4[2]:
            cum_c5.next = 0
            next_upper5.next = 0
        even5.next = reach4[1]
        odd5.next = reach4[2] or (reach4[0] and not reach4[1])
        cum6.next = cum_lower5 | cum_a5 | cum_b5 | cum_c5
        next6.next = next_a5 | next_b5 | next_c5 | next_upper5
        if not active:
            cum6.next = 0
            next6.next = 0
        symbol.next = concat(node5, even5, odd5)
        freq.next = next6 - cum6
        rest.next = low6 - cum6

    return delays, write, addresses, coarse, bounds, fine, choose
