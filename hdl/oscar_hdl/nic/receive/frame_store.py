"""The store of frames: words of the bus go in, a line leaves by sixteen bytes, its last column first."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import always_comb, block, concat

from oscar_hdl.coder.unit.ports import WORD_BYTES
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, lane, word
from oscar_hdl.streams.copied import chain

CHUNK_BITS = 8 * WORD_BYTES  # what a unit takes at once: a column of a line
COLUMN_CLOCKS = 2  # from a column of a line to the one before it: a unit takes a chunk in so many


def columns_of(bus_bits: int) -> int:
    """Return how many chunks a line has: a word of the bus, or two of 8 bytes."""
    return max(1, bus_bits // CHUNK_BITS)


def chunk_bits(bus_bits: int, store_log2: int) -> int:
    """Return the bits of a chunk's number, in a store of 2^store_log2 words."""
    return store_log2 + (bus_bits // 8).bit_length() - WORD_BYTES.bit_length()


@block
def column(clk, wr_en, wr_addr, wr_data, line, chunk, *, number: int):
    """Keep column `number` of all lines, each a word of the bus."""
    return block_ram(clk, wr_en, wr_addr, lane(wr_data, number, CHUNK_BITS), line, chunk)


@block
def halves(clk, wr_en, wr_addr, wr_data, line, chunk):
    """Keep lines of two words of 8 bytes."""
    at_bits = len(wr_addr)
    line_at, wr_low, wr_high = word(at_bits - 1), bit(), bit()
    low, high = word(CHUNK_BITS // 2), word(CHUNK_BITS // 2)
    memories = [
        block_ram(clk, wr_low, line_at, wr_data, line, low),
        block_ram(clk, wr_high, line_at, wr_data, line, high),
    ]

    @always_comb
    def part():
        line_at.next = wr_addr[at_bits:1]
        wr_low.next = wr_en and not wr_addr[0]
        wr_high.next = wr_en and wr_addr[0]
        chunk.next = concat(high, low)

    return memories, part


@block
def frame_store(clk, wr_en, wr_addr, wr_data, line, tag, chunks: Sequence, tags: Sequence):
    """Write words of the bus, and read lines: a line a clock, each of its columns two clocks behind the next.

    wr_en, wr_addr, wr_data: a word. line: a register; chunks: its last column two clocks later, the one
    before that another two clocks later, and so on to the first; tags: what `tag` was, with each of them.
    Nothing sensible comes of a line that is written while it is read.
    """
    COLUMNS = len(chunks)
    lines = [word(len(line)) for _ in range(COLUMNS - 1)] + [line]
    passed = [*tags, tag]
    ways = [chain(clk, later, word(len(line)), one) for one, later in pairwise(lines)]
    tag_ways = [chain(clk, later, word(len(tag)), one) for one, later in pairwise(passed)]
    if len(wr_data) < CHUNK_BITS:
        return tag_ways, halves(clk, wr_en, wr_addr, wr_data, line, chunks[0])
    memories = [column(clk, wr_en, wr_addr, wr_data, lines[n], chunks[n], number=n) for n in range(COLUMNS)]
    return ways, tag_ways, memories
