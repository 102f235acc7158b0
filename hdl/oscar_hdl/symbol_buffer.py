"""One block of (context, symbol) bytes, read backwards while the next is written behind the reader."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import bit, word


@block
def symbol_buffer(
    clk: Any, start: Any, turn: Any, wr_valid: Any, wr_data: Any, wr_left: Any, held: Any, rd_left: Any,
    rd_data: Any, room: Any, *, params: LaneParams,
) -> Any:  # fmt: skip
    """Store the symbols of a block in 2^block_log2 bytes, and give those of the block before by index.

    start (strobe): a block begins; its symbols u8 follow with wr_valid. turn (strobe, two clocks after its
    last symbol or later): it is the one to be read now, and the next block takes the cells in the order in
    which they are read, which fits if this one is full. A block without a turn is overwritten.
    rd_left u13: rd_data u8 is symbol rd_left - 1, three clocks later. held (level, from turn on): rd_left
    symbols are still to be read, last first. room: the value after the `wr_left` u13 that remain to be taken
    has a cell, up to four clocks later, if its symbol comes five clocks or more behind it.

    Symbol i lies in cell i + 1, or counted from the other end, modulo the size. So reading is two cells
    ahead of where a writer of the other direction wants it, which `room` more than makes good.
    """
    size_log2 = params.block_log2
    mem = [word(8) for _ in range(params.block)]
    down_write, down_read = bit(), bit()  # counted from the other end
    count = word(size_log2)
    write, write_addr, write_data = bit(), word(size_log2), word(8)
    read_addr, read_data = word(size_log2), word(8)
    lead = word(size_log2 + 2)  # cells read already, and not taken

    @always(clk.posedge)
    def control():
        if turn:
            down_read.next = down_write
            down_write.next = not down_write
        if start:
            count.next = 1
        elif wr_valid:
            count.next = count + 1
        write.next = wr_valid
        write_data.next = wr_data
        if down_write:
            write_addr.next = ~count
        else:
            write_addr.next = count
        if down_read:
            read_addr.next = ~rd_left[size_log2:]
        else:
            read_addr.next = rd_left[size_log2:]
        lead.next = wr_left - rd_left
        room.next = not held or (not lead[size_log2 + 1] and lead[size_log2 + 1 : 3] != 0)

    @always(clk.posedge)
    def memory():
        if write:
            mem[write_addr].next = write_data
        read_data.next = mem[read_addr]
        rd_data.next = read_data  # becomes the output register of the block RAM

    return control, memory
