"""Words of rows between memory, which does not wait, and a stream."""

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.row_lines import WORDS_BITS
from oscar_hdl.streams.bundles import bit, word

ROWS_LOG2 = 3  # of rows between memory and stream


@block
def words_out(clk, rst, restart, number, issue, put, given, m_axis, room, over, *, words: int):
    """Keep words of rows, and give them; words: of a row, 1 or 4.

    restart (strobe): `number` words come, nothing is kept; issue (strobe): a row's words will be put; room:
    one more row may be asked for. over: all words were taken.
    """
    WIDTH, SLOTS_LOG2, LAST = len(given), ROWS_LOG2 + words.bit_length() - 1, words - 1
    memory = [word(WIDTH) for _ in range(1 << SLOTS_LOG2)]
    write_at, read_at, stored = word(SLOTS_LOG2), word(SLOTS_LOG2), word(SLOTS_LOG2 + 1)
    rows = word(ROWS_LOG2 + 1)  # asked for and not given
    top, part, left = word(WIDTH), word(2), word(WORDS_BITS)
    some, last, few = bit(), bit(), bit()  # of left: not 0; 1; below four, a clock later
    ready, popped, row_over, row_gone = bit(), bit(), bit(), bit()  # a word is stored; it is given
    held, open_wide = bit(), bit()  # m_axis.tvalid again, for tdata: its readers shall not delay `popped`

    @always_comb
    def look():
        top.next = memory[read_at]
        popped.next = ready and some and (m_axis.tready or not m_axis.tvalid)
        open_wide.next = m_axis.tready or not held

    @always_comb
    def end():
        row_over.next = popped and (part == LAST or last)

    @always(clk.posedge)
    def keep():
        room.next = not rows[ROWS_LOG2]
        row_gone.next = row_over
        if issue and not row_gone:
            rows.next = rows + 1
        elif row_gone and not issue:
            rows.next = rows - 1
        if put and not popped:
            stored.next = stored + 1
        elif popped and not put:
            stored.next = stored - 1
        ready.next = put or (ready and not (popped and stored == 1))
        if put:
            memory[write_at].next = given
            write_at.next = write_at + 1
        if popped:
            read_at.next = read_at + 1
        if restart or rst:
            rows.next = 0
            stored.next = 0
            ready.next = False
            row_gone.next = False
            write_at.next = 0
            read_at.next = 0

    @always(clk.posedge)
    def show():
        if m_axis.tready:
            held.next = False
        if popped:
            held.next = True
        if restart or rst:
            held.next = False
        if open_wide:
            m_axis.tdata.next = top

    @always(clk.posedge)
    def give():
        over.next = not some and not m_axis.tvalid
        few.next = left[WORDS_BITS:2] == 0
        if m_axis.tready:
            m_axis.tvalid.next = False
        if popped:
            m_axis.tvalid.next = True
            m_axis.tlast.next = last
            part.next = part + 1
            if part == LAST:
                part.next = 0
            left.next = left - 1
            last.next = few and left[2:] == 2
            some.next = not last
        if restart:
            part.next = 0
            left.next = number
            last.next = number == 1
            some.next = True
        if rst:
            some.next = False
            m_axis.tvalid.next = False

    return look, end, keep, show, give
