"""Who reads a row of the banks in a turn, and what comes of it."""

from collections.abc import Sequence

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.ports import GroupRead, LineRead, RowAsk
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree
from oscar_hdl.streams.joined import joined


@block
def read_turns(
    clk, rst, phase, asks: Sequence[RowAsk], row, reads: Sequence[GroupRead], found, line: LineRead
):
    """Let one of four read a row, in four clocks each; the earlier in `asks` goes before the later.

    row: of all GroupReads. The last two read a row of all banks, and take turns. found: RowsRead, of the
    first two, from ten clocks behind a RowAsk's `taken` on; line: the last one's, in the same clocks. The
    one before it looks at GroupReads, a clock earlier.
    """
    first, second, third, fourth = asks
    BANKS = len(reads)
    moves, free, gave = bit(), bit(), bit()  # moves: high in phase 3; gave: the third had the last turn
    # Every four clocks a row goes on: it is looked for, its descriptor is there, its lanes are.
    whose0, whose1, whose2, whose3 = word(3), word(3), word(3), word(3)
    bank0, bank1, bank2, data = word(BANKS), word(BANKS), word(BANKS), word(len(found.data))
    all_data, all_kinds = word(len(line.data)), word(len(line.descriptor))
    trees = [
        hot_tree(None, [read.data for read in reads], bank2, data),
        joined([read.data for read in reads], all_data),
        joined([read.descriptor for read in reads], all_kinds),
    ]

    @always_comb
    def choose():
        first.taken.next = moves and first.want
        second.taken.next = moves and second.want and not first.want
        free.next = moves and not first.want and not second.want

    @always_comb
    def tell():
        third.taken.next = free and third.want and not (gave and fourth.want)
        fourth.taken.next = free and fourth.want and (gave or not third.want)
        first.comes.next = whose3[0]
        second.comes.next = whose3[1]
        third.comes.next = False
        fourth.comes.next = whose3[2]

    @always(clk.posedge)
    def move():
        moves.next = phase[2:] == 2
        if moves:
            row.next = fourth.row
            gave.next = third.taken
            bank0.next = second.bank
            if first.want:
                row.next = first.row
                bank0.next = first.bank
            elif second.want:
                row.next = second.row
            elif third.taken:
                row.next = third.row
            whose0.next[0] = first.taken
            whose0.next[1] = second.taken
            whose0.next[2] = fourth.taken
            whose1.next = whose0
            whose2.next = whose1
            bank1.next = bank0
            bank2.next = bank1
        whose3.next = whose2
        if rst:
            whose0.next = 0
            whose1.next = 0
            whose2.next = 0
            whose3.next = 0

    @always(clk.posedge)
    def show():
        found.data.next = data
        line.data.next = all_data
        if moves:
            line.descriptor.next = all_kinds

    return trees, choose, tell, move, show
