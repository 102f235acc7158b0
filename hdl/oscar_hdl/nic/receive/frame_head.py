"""Keeps the header of a frame that comes, and says when its directory is in the store."""

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import ASC_CODE, DIRECTORY_BYTES, PREFIX_BYTES
from oscar.coding.frame import HEADER_BYTES, MAGIC
from oscar_hdl.nic.ports import block_sizes
from oscar_hdl.nic.receive.ports import CameFrame, ComingFrame
from oscar_hdl.streams.bundles import bit, word

MEASURED = 4  # clocks from the prefix until it is known whether the directory is there
SENT_ROWS = 10  # bit of the prefix


@block
def frame_head(clk, rst, taken, data, peer, header, came: CameFrame, coming: ComingFrame):
    """Take the fields of a frame's first words, all but length and CRC.

    taken (strobe): the next word, data, comes from `peer`. header: a bit for each word of the header; that of
    the next word is 1. It is 0 behind the header.
    """
    size, LAST = len(data) // 8, len(header) - 1
    SECOND, PREFIX = 8 // size, HEADER_BYTES // size  # words of the frame
    S, P = 8 * (8 % size), 8 * (HEADER_BYTES % size) + SENT_ROWS
    MAGIC_BYTE, CODEC_BYTE = MAGIC, ASC_CODE
    behind, prefix_here = bit(), bit()

    if PREFIX > LAST:

        @always_comb
        def find():
            prefix_here.next = behind and header == 0

    else:

        @always_comb
        def find():
            prefix_here.next = header[PREFIX]

    @always(clk.posedge)
    def keep():
        if taken:
            behind.next = header[LAST]
            if header[0]:
                coming.foreign.next = data[8:] != MAGIC_BYTE
                coming.unknown.next = data[16:8] != CODEC_BYTE
                came.peer.next = peer
                came.step.next = data[32:16]
                came.chunk.next = data[48:32]
                came.sub.next = data[56:48]
                came.width.next = data[64:56]
            if header[SECOND]:
                came.sequence.next = data[S + 16 : S]
                came.checksum.next = data[S + 32 : S + 16]
                came.count.next = data[S + 51 : S + 32]
                came.more.next = data[S + 64 : S + 51] != 0
            if prefix_here:
                coming.sent_rows.next = data[P]
        came.put.next = taken and header[LAST] and not rst
        coming.begun.next = taken and prefix_here and not rst

    return find, keep


@block
def directory_there(
    clk, rst, came: CameFrame, coming: ComingFrame, used, over, *, size: int, block_log2: int
):
    """Say with coming.there (level) that a frame's directory is in the store, until `over` (strobe).

    used: words of `size` bytes that came of it. `there` stays low for a frame with sent rows, and for one
    whose magic, version or codec is another, or whose count is too large. block_log2: of its blocks, or 0:
    any; then as many entries have to be there as the frame can have blocks.
    """
    LOG2, WORD_LOG2, EACH = block_sizes(block_log2)[0], size.bit_length() - 1, DIRECTORY_BYTES // 2
    ROUND, MORE = (1 << LOG2) - 1, HEADER_BYTES + PREFIX_BYTES + size - 1
    blocks, room, words = word(9), word(12), word(12 - WORD_LOG2)
    steps, known, enough = word(MEASURED), bit(), bit()

    @always(clk.posedge)
    def measure():
        whole = modbv(0)[19:]
        threes = modbv(0)[11:]
        whole[:] = came.count + ROUND
        blocks.next = whole[19:LOG2]
        threes[:] = EACH * blocks
        room.next = concat(threes, False) + MORE
        words.next = room[12:WORD_LOG2]
        enough.next = used >= words

    @always(clk.posedge)
    def tell():
        steps.next = concat(steps[MEASURED - 1 :], coming.begun)
        if steps[MEASURED - 1]:
            known.next = True
        coming.there.next = (
            known and enough
            and not (coming.foreign or coming.unknown or coming.sent_rows or came.more)
        )  # fmt: skip
        if over or rst:
            steps.next = 0
            known.next = False
            coming.there.next = False

    return measure, tell
