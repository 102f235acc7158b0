"""The words of a coded block, taken in the order of coding and given back last first."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def word_stack(
    clk: Any, rst: Any, flush: Any, push_valid: Any, push_word: Any, push_end: Any, hold: Any,
    hold_start: Any, blk_valid: Any, blk_words: Any, blk_drop: Any, m_axis: Any,
) -> Any:  # fmt: skip
    """Keep the words of two blocks in one block RAM: one is pushed while the one before is read.

    flush: forget everything, as rst does. push_valid, push_word u12, push_end: a word a clock; push_end with
    a block's last word or later, 4 clocks apart. hold: stop coding; hold_start: begin no block. From
    either on there is room for 40 words. blk_valid, blk_words u13: there is a complete block, and its words
    are so many; m_axis (Stream u12): those, a word a clock from 4 clocks after blk_valid, tlast with the
    last; blk_drop (strobe): forget it. The block after the next is not pushed before that.

    Rows of three words form a ring. A block begins in a new row, so its last row may have one or two words;
    the newest is always uppermost. Rows are freed block by block. A block alone may have all 512 rows, which
    is the 1,536 words that a block of 4,096 values may have; if it has more (it is raw then, and will be
    flushed), rows are overwritten and only the count is right.
    """
    ring = [word(36) for _ in range(512)]

    filling, fill = word(36), word(2)  # the row being filled, and its words
    count, some = word(13), bit()  # words of the block being pushed; not 0
    ended, waits = bit(), bit()  # it is complete; it waits for the one before to be dropped
    row, write_row, write = word(10), word(9), bit()  # bit 9 of a row: 512 are not 0
    used, near = word(10), bit()
    held, words = bit(), word(13)  # the complete block
    start, tail = word(10), word(10)  # first rows of the block being pushed and of the oldest
    end_words = word(2)  # words of the last row of the newest complete block

    starts = bit()
    read_row, read2, read3 = word(9), word(36), word(36)
    fresh1, fresh2, fresh3 = bit(), bit(), bit()  # read_row, read2, read3 belong together
    at_tail, row_words = bit(), word(2)  # of the row that is loaded next
    popping, left, lowest = word(36), word(2), bit()  # the row being read, its words, the block's last

    @always(clk.posedge)
    def push():
        full = push_valid and fill == 2
        part = push_end and (push_valid or fill != 0)
        if push_valid:
            filling.next = concat(push_word, filling[36:12])
        if push_end or full:
            fill.next = 0
        elif push_valid:
            fill.next = fill + 1
        write.next = full or part
        if full or part:
            write_row.next = row[9:]
            row.next = row + 1
        if write:
            ring[write_row].next = filling

        # A clock after push_end, so that all is counted; the first word of the next block may be there.
        ended.next = push_end
        taken = (ended or waits) and not held
        waits.next = (ended or waits) and held
        starts.next = taken and some
        if push_valid:
            count.next = count + 1
            some.next = True
        if taken:
            count.next[13:1] = 0
            count.next[0] = push_valid
            some.next = push_valid
            words.next = count
            start.next = row
            held.next = True
        elif blk_drop:
            held.next = False
        if push_end:
            if push_valid:
                end_words.next = fill + 1
            elif fill == 0:
                end_words.next = 3
            else:
                end_words.next = fill

        if not held:
            tail.next = start
        used.next = row - tail
        near.next = used[9] or used[9:4] == 31

        if rst or flush:
            fill.next = 0
            write.next = False
            count.next = 0
            some.next = False
            ended.next = False
            waits.next = False
            starts.next = False
            held.next = False
            near.next = False
            row.next = 0
            start.next = 0

    @always(clk.posedge)
    def pop():
        read2.next = ring[read_row]
        read3.next = read2  # becomes the output register of the block RAM
        at_tail.next = read_row == tail[9:]

        goes = m_axis.tready and left != 0
        loads = fresh3 and (left == 0 or (left == 1 and m_axis.tready))
        if loads:
            popping.next = read3
            lowest.next = at_tail
            left.next = row_words
        elif goes:
            popping.next[36:12] = popping[24:]
            left.next = left - 1

        fresh1.next = starts or (loads and not at_tail)
        fresh2.next = fresh1
        fresh3.next = (fresh2 or fresh3) and not loads
        if starts:
            read_row.next = write_row
            row_words.next = end_words
        elif loads:
            read_row.next = read_row - 1
            row_words.next = 3

        if rst or flush or blk_drop:
            left.next = 0
            fresh1.next = False
            fresh2.next = False
            fresh3.next = False

    @always_comb
    def outputs():
        hold.next = near and held
        hold_start.next = near
        blk_valid.next = held
        blk_words.next = words
        m_axis.tdata.next = popping[36:24]
        m_axis.tvalid.next = left != 0
        m_axis.tlast.next = lowest and left == 1

    return push, pop, outputs
