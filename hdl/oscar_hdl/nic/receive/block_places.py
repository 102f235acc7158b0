"""Where a block of a frame begins and ends in the store."""

from myhdl import always, block

from oscar_hdl.streams.bundles import bit, word


class BlockPlaces:
    """The walk over blocks: addresses of bytes in the store, which may lie a turn too far.

    begin (strobe): start becomes `first`. add (strobe): end becomes start + the block's bytes. forward
    (strobe): start becomes end.
    """

    def __init__(self, bits: int) -> None:
        self.begin, self.first, self.add, self.forward = bit(), word(bits), bit(), bit()
        self.start, self.end = word(bits), word(bits)


@block
def block_places(clk, places: BlockPlaces, size):
    """Hold places.start and places.end; size u20: the bytes of the block."""

    @always(clk.posedge)
    def run():
        if places.add:
            places.end.next = places.start + size
        if places.forward:
            places.start.next = places.end
        if places.begin:
            places.start.next = places.first

    return run
