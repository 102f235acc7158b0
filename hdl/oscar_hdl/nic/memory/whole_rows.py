"""Words of a stream, kept until those of a whole row are there."""

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.row_lines import WORDS_BITS
from oscar_hdl.streams.balance import balance
from oscar_hdl.streams.bundles import bit, word

DEPTH_LOG2 = 4  # of words: a row that is taken waits two turns for what it is added to


@block
def whole_rows(clk, rst, restart, opens, words, s_axis, whole, taken, pop, top):
    """Take `words` words, and give those of each row in four clocks one behind the other.

    restart (strobe): nothing is kept, words is there; opens (strobe), two clocks later or more: words may
    come. whole: level, four words or all that were left have come since those of the row that was taken last.
    taken: strobe. pop: level in the four clocks of a row that was taken, in which `top` are its words.
    """
    memory, write_at, read_at = [word(len(top)) for _ in range(1 << DEPTH_LOG2)], word(4), word(4)
    FULL = DEPTH_LOG2
    used, fresh, put = word(DEPTH_LOG2 + 1), word(DEPTH_LOG2 + 1), bit()  # kept; of rows that were not taken
    left, more, last, few = word(WORDS_BITS), bit(), bit(), bit()  # a word is to come; the last; below four

    @always_comb
    def show():
        s_axis.tready.next = more and not used[FULL]
        put.next = s_axis.tvalid and more and not used[FULL]
        whole.next = fresh[:2] != 0 or not more
        top.next = memory[read_at]

    @always(clk.posedge)
    def keep():
        if put:
            memory[write_at].next = s_axis.tdata
            write_at.next = write_at + 1
        if pop:
            read_at.next = read_at + 1
        if taken:
            fresh.next = fresh - 4
            if put:
                fresh.next = fresh - 3
        elif put:
            fresh.next = fresh + 1
        if restart:
            write_at.next = 0
            read_at.next = 0
            fresh.next = 0

    @always(clk.posedge)
    def count():
        few.next = left[WORDS_BITS:2] == 0
        if put:
            left.next = left - 1
            more.next = not last
            last.next = few and left[2:] == 2
        if opens:
            more.next = True
            last.next = few and left[2:] == 1
        if restart:
            left.next = words
            more.next = False
        if rst:
            more.next = False

    return balance(clk, restart, put, pop, used), show, keep, count
