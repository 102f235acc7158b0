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
def block_counter(clk, blocks: Blocks, count, log2, row):
    """Walk over the blocks of a frame of count u19 values, 1 or more, in blocks of 2^log2; log2 u5. row: the
    frame's first."""
    left, ahead = word(COUNT_BITS), word(9)  # values from here on; groups before
    SIZES = tuple(1 << (n - 10) if 10 <= n <= 17 else 1 for n in range(32))  # in 1,024 values
    TOPS = tuple(size - 1 for size in SIZES)
    size, size_top, rest = word(8), word(7), word(10)
    less, last_group, before = bit(), word(9), word(14)

    @always_comb
    def rows():
        before.next = concat(ahead, modbv(0)[5:])

    @always(clk.posedge)
    def run():
        blocks.base.next = row + before
        size.next = SIZES[int(log2)]
        size_top.next = TOPS[int(log2)]
        rest.next = concat(False, left[COUNT_BITS:10]) - size
        blocks.final.next = rest[9] or (rest == 0 and left[10:] == 0)
        last_group.next = left[COUNT_BITS:10] - less
        less.next = left[10:] == 0
        if blocks.final:
            blocks.values.next = left[18:]
            blocks.top.next = last_group[7:]
        else:
            blocks.values.next = concat(size, modbv(0)[10:])
            blocks.top.next = size_top
        if blocks.forward:
            left.next = concat(rest[9:], left[10:])
            ahead.next = ahead + size
        if blocks.first:
            left.next = count
            ahead.next = 0

    return rows, run
