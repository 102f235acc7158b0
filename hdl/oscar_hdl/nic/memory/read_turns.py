"""Who reads a row of the banks in a turn, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.barrel_ports import GroupRead, RowAsk
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree


@block
def read_turns(
    clk: Any, rst: Any, phase: Any, asks: Sequence[RowAsk], row: Any, reads: Sequence[GroupRead], found: Any
) -> Any:
    """Let one of three read a row, in four clocks each; the earlier in `asks` goes before the later.

    row: of all GroupReads. found: RowsRead, from ten clocks behind a RowAsk's `taken` on.
    """
    first, second, third = asks
    BANKS = len(reads)
    moves = bit()  # high in phase 3
    # Every four clocks a row goes on: it is looked for, its descriptor is there, its lanes are.
    whose0, whose1, whose2, whose3 = word(3), word(3), word(3), word(3)
    bank0, bank1, bank2 = word(BANKS), word(BANKS), word(BANKS)
    data, distances = word(len(found.data)), word(len(found.distances))
    descriptor, mean = word(len(found.descriptor)), word(len(found.mean))
    trees = [
        hot_tree(None, [read.data for read in reads], bank2, data),
        hot_tree(None, [read.distances for read in reads], bank2, distances),
        hot_tree(None, [read.descriptor for read in reads], bank1, descriptor),
        hot_tree(None, [read.mean for read in reads], bank1, mean),
    ]

    @always_comb
    def choose() -> None:
        first.taken.next = moves and first.want
        second.taken.next = moves and second.want and not first.want
        third.taken.next = moves and third.want and not first.want and not second.want

    @always_comb
    def tell() -> None:
        first.comes.next = whose3[0]
        second.comes.next = whose3[1]
        third.comes.next = whose3[2]

    @always(clk.posedge)
    def move() -> None:
        moves.next = phase[2:] == 2
        if moves:
            row.next = third.row
            bank0.next = third.bank
            if first.want:
                row.next = first.row
                bank0.next = first.bank
            elif second.want:
                row.next = second.row
                bank0.next = second.bank
            whose0.next[0] = first.taken
            whose0.next[1] = second.taken
            whose0.next[2] = third.taken
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
    def show() -> None:
        found.data.next = data
        found.distances.next = distances
        if moves:
            found.descriptor.next = descriptor
            found.mean.next = mean

    return trees, choose, tell, move, show
