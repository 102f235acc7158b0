"""Mean position classes of a bank's rows: by rows, and by eight of them for headers."""

from myhdl import always, block, concat, modbv

from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.nic.memory.ports import MEAN_BITS
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word

ROW_LOG2 = 3  # rows of a word


@block
def bank_means(
    clk, phase, side, source_row1, position_row0, header_row2, source_header2, source_mean, position_mean,
    means, source_means,
):  # fmt: skip
    """Keep means.

    side: SideWrite, in clocks of phase 1; rows come one after the other, eight that begin a word.
    source_row1, position_row0: rows whose means are given in phase 3. header_row2: a group's first row, in
    phase 2; means u32 of its rows 24 to 31 come in the next phase 1, in the clocks behind it the others';
    source_means the same of source_header2, rows 0 to 7 first.
    """
    ROW_BITS = len(side.row)
    AT_BITS, KEPT = ROW_BITS - ROW_LOG2, MEAN_BITS * (WIDTH - 1)
    row_enable, row_at, row_data = bit(), word(ROW_BITS), word(MEAN_BITS)
    word_enable, write_at, data = bit(), word(AT_BITS), word(MEAN_BITS * WIDTH)
    gathered, at, source_at = word(KEPT), word(AT_BITS), word(AT_BITS)

    rows = block_ram(
        clk, row_enable, row_at, row_data, read_at=source_row1, read=source_mean, found=position_mean
    )
    words = [
        block_ram(clk, word_enable, write_at, data, read_at=at, read=means),
        block_ram(clk, word_enable, write_at, data, read_at=source_at, read=source_means),
    ]

    @always(clk.posedge)
    def access():
        row_at.next = position_row0
        row_enable.next = False
        word_enable.next = False
        if phase[2:] == 1:
            row_at.next = side.row
            row_enable.next = side.header
            word_enable.next = side.header and side.row[ROW_LOG2:] == WIDTH - 1
        row_data.next = side.header_data[11:7]
        write_at.next = side.row[ROW_BITS:ROW_LOG2]
        data.next = concat(side.header_data[11:7], gathered)
        if phase[2:] == 1 and side.header:
            gathered.next = concat(side.header_data[11:7], gathered[KEPT:MEAN_BITS])
        if phase[2:] == 2:
            at.next = concat(header_row2[ROW_BITS:5], modbv(3)[2:])
            source_at.next = concat(source_header2[ROW_BITS:5], modbv(0)[2:])
        else:
            at.next = at - 1
            source_at.next = source_at + 1

    return rows, words, access
