"""Takes queries: one is worked on, the next one waits."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.attention.ports import AT_BITS, ROWS_BITS, WORDS_BITS, Head
from oscar_hdl.attention.twin import LEAST_WORDS, MANTISSA_BITS, MOST_ROWS, MOST_WORDS, SHIFT_BITS
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.copied import copied_fields

SHIFT_AT, WORDS_AT, ROWS_AT = 16, 24, 32  # in a query's first word


@block
def query_store(clk, rst, s_axis: Stream, head: Head, at, found):
    """Keep two queries.

    s_axis: Stream(64), a packet for each query. at u4: which word of the query that was taken last; found u64
    is that word, in the same clock.
    """
    memory = [word(64) for _ in range(2 << AT_BITS)]
    coming, inside, ready, bank, other, place = Head(), bit(), bit(), bit(), bit(), word(WORDS_BITS)
    SHIFT_END, WORDS_END, ROWS_END = SHIFT_AT + SHIFT_BITS, WORDS_AT + WORDS_BITS, ROWS_AT + ROWS_BITS

    @always_comb
    def look():
        s_axis.tready.next = not ready and not rst
        head.ready.next = ready
        found.next = memory[concat(other, at)]

    @always(clk.posedge)
    def fill():
        if s_axis.tvalid and s_axis.tready:
            inside.next = not s_axis.tlast
            ready.next = s_axis.tlast
            if inside:
                memory[concat(bank, place[AT_BITS:])].next = s_axis.tdata
                if place != MOST_WORDS:
                    place.next = place + 1
                if place == MOST_WORDS or (s_axis.tlast and place + 1 != coming.words):
                    coming.bad.next = True
            else:
                place.next = 0
                coming.mantissa.next = s_axis.tdata[MANTISSA_BITS:]
                coming.shift.next = s_axis.tdata[SHIFT_END:SHIFT_AT]
                coming.words.next = s_axis.tdata[WORDS_END:WORDS_AT]
                coming.rows.next = s_axis.tdata[ROWS_END:ROWS_AT]
                coming.bad.next = (
                    s_axis.tlast
                    or s_axis.tdata[WORDS_END:WORDS_AT] < LEAST_WORDS
                    or s_axis.tdata[WORDS_END:WORDS_AT] > MOST_WORDS
                    or s_axis.tdata[ROWS_END:ROWS_AT] == 0
                    or s_axis.tdata[ROWS_END:ROWS_AT] > MOST_ROWS
                )
        if head.take:
            ready.next = False
        if rst:
            inside.next = False
            ready.next = False

    @always(clk.posedge)
    def hand_over():
        if head.take:
            bank.next = not bank
            other.next = bank

    said = copied_fields(clk, coming, head, "bad", "mantissa", "shift", "words", "rows", load=head.take)
    return said, look, fill, hand_over
