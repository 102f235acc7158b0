"""Walks over the blocks of a frame: how many values, groups and rows each has."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.ports import COUNT_BITS
from oscar_hdl.streams.bundles import bit, word


class Blocks:
    """The walk: `first` (strobe) describes the first block, `forward` (strobe) the next one.

    From the 4th clock on: values u18, of the block; top u7, its last group; final: it is the last block;
    base, its first row.
    """

    def __init__(self, row_bits: int) -> None:
        self.first, self.forward = bit(), bit()
        self.values, self.top, self.final, self.base = word(18), word(7), bit(), word(row_bits)


@block
def block_counter(clk, blocks: Blocks, count, row, *, block_log2: int):
    """Walk over the blocks of a frame of count u19 values, 1 or more. row: the frame's first."""
    left, ahead = word(COUNT_BITS), word(9)  # values from here on; groups before
    SIZE = 1 << (block_log2 - 10)  # of a block, in groups
    VALUES, TOP = SIZE << 10, SIZE - 1
    rest, less, last_group, before = word(10), bit(), word(9), word(14)

    @always_comb
    def rows():
        before.next = concat(ahead, modbv(0)[5:])

    @always(clk.posedge)
    def run():
        blocks.base.next = row + before
        rest.next = concat(False, left[COUNT_BITS:10]) - SIZE
        blocks.final.next = rest[9] or (rest == 0 and left[10:] == 0)
        last_group.next = left[COUNT_BITS:10] - less
        less.next = left[10:] == 0
        if blocks.final:
            blocks.values.next = left[18:]
            blocks.top.next = last_group[7:]
        else:
            blocks.values.next = VALUES
            blocks.top.next = TOP
        if blocks.forward:
            left.next = concat(rest[9:], left[10:])
            ahead.next = ahead + SIZE
        if blocks.first:
            left.next = count
            ahead.next = 0

    return rows, run
