"""Words of a stream, kept until those of a whole row are there."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.ports import STREAM_LANES, FloatFormat, QuantisedWord
from oscar_hdl.nic.memory.quantiser import LATENCY, quantiser
from oscar_hdl.nic.memory.row_lines import WORDS_BITS
from oscar_hdl.nic.ports import BFLOAT16, FLOAT32, INT16, STREAM_BITS
from oscar_hdl.streams.balance import balance
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.zero import zero

DEPTH_LOG2 = 4  # of words: a row that is taken waits two turns for what it is added to


@block
def plain_words(clk, words, s_axis: Stream, comes, number, put, lands, coming, fresh: QuantisedWord):
    """Keep words as they come: see float_words."""
    return (
        copied(None, words, number),
        [copied(None, comes, one) for one in (put, lands)],
        copied(None, s_axis.tdata, fresh.data),
        [zero(clk, one) for one in (coming, fresh.marks)],
    )


@block
def float_words(
    clk, rst, restart, words, s_axis: Stream, packet: FloatFormat, comes, number, put, lands, coming,
    fresh: QuantisedWord,
):  # fmt: skip
    """Quantise words of a stream in LATENCY clocks; int16 stay as they are, and take none.

    words: of eight values, for which `number` words of the stream come. comes: strobe, one is taken. put:
    strobe, a word of eight values is complete. lands: strobe, `fresh` is one of integers. coming: level, some
    are on their way. restart: strobe, a packet begins.
    """
    BANKS, FORWARD, LAST = len(fresh.marks) // STREAM_LANES, LATENCY - 1, LATENCY - 1
    upper, ways, earlies, early = bit(), word(LATENCY), word(LATENCY), bit()
    starts, opens = bit(), bit()  # all of eight values, or the first four, begin their way
    data = [word(STREAM_BITS) for _ in range(BANKS)]
    marks = [word(STREAM_LANES) for _ in range(BANKS)]
    integers, integer_marks = word(len(fresh.data)), word(len(fresh.marks))
    lanes = [
        quantiser(clk, s_axis.tdata, early, packet, *two, bank=bank)
        for bank, two in enumerate(zip(data, marks, strict=True))
    ]

    @always_comb
    def see():
        put.next = comes and (upper or packet.format != FLOAT32)
        starts.next = comes and (upper or packet.format == BFLOAT16)
        opens.next = comes and not upper
        number.next = words
        if packet.format == FLOAT32:
            number.next = words << 1
        coming.next = ways != 0
        early.next = earlies[LAST]
        lands.next = ways[LAST]
        fresh.data.next = integers
        fresh.marks.next = integer_marks
        if packet.format == INT16:
            lands.next = comes
            fresh.data.next = s_axis.tdata
            fresh.marks.next = 0

    @always(clk.posedge)
    def follow():
        ways.next = concat(ways[FORWARD:], starts)
        earlies.next = concat(earlies[FORWARD:], opens)
        if comes:
            upper.next = packet.format == FLOAT32 and not upper
        if restart:
            upper.next = False
        if rst:
            ways.next = 0

    return lanes, joined(data, integers), joined(marks, integer_marks), see, follow


@block
def kept_marks(clk, write, write_at, marks, read_at, found):
    """Keep marks of words."""
    memory = [word(len(found)) for _ in range(1 << DEPTH_LOG2)]

    @always_comb
    def show():
        found.next = memory[read_at]

    @always(clk.posedge)
    def keep():
        if write:
            memory[write_at].next = marks

    return show, keep


@block
def whole_rows(
    clk, rst, restart, opens, words, s_axis, whole, taken, pop, top: QuantisedWord, *,
    floats: FloatFormat | None = None,
):  # fmt: skip
    """Take words until `words` words of eight values of each bank have come, and give those of a row at once.

    Those of a row come in four clocks, one after another. restart (strobe): nothing is kept, words is there;
    opens (strobe), two clocks later or more: words may come. whole: level, four words or all that were left
    have come since those of the row that was taken last. taken: strobe. pop: level in the four clocks of a
    row that was taken, in which `top` are its words. floats: how words come; None: as int16.
    """
    memory, write_at, read_at = [word(len(top.data)) for _ in range(1 << DEPTH_LOG2)], word(4), word(4)
    FULL, NUMBER_BITS = DEPTH_LOG2, WORDS_BITS + (floats is not None)
    # Words that are kept, or on their way; those that are kept of rows that were not taken.
    used, fresh, comes, put, lands, coming = (
        word(DEPTH_LOG2 + 1),
        word(DEPTH_LOG2 + 1),
        *(bit() for _ in "1234"),
    )
    number, came = word(NUMBER_BITS), QuantisedWord(len(top.marks) // STREAM_LANES)
    left, more, last, few = word(NUMBER_BITS), bit(), bit(), bit()  # a word is to come; the last; below four
    to_keep = comes, number, put, lands, coming, came
    if floats is None:
        parts = plain_words(clk, words, s_axis, *to_keep)
    else:
        parts = float_words(clk, rst, restart, words, s_axis, floats, *to_keep)

    @always_comb
    def show():
        s_axis.tready.next = more and not used[FULL]
        comes.next = s_axis.tvalid and more and not used[FULL]
        whole.next = fresh[:2] != 0 or not (more or coming)
        top.data.next = memory[read_at]

    @always(clk.posedge)
    def keep():
        if lands:
            memory[write_at].next = came.data
            write_at.next = write_at + 1
        if pop:
            read_at.next = read_at + 1
        if taken:
            fresh.next = fresh - 4
            if lands:
                fresh.next = fresh - 3
        elif lands:
            fresh.next = fresh + 1
        if restart:
            write_at.next = 0
            read_at.next = 0
            fresh.next = 0

    @always(clk.posedge)
    def count():
        few.next = left[NUMBER_BITS:2] == 0
        if comes:
            left.next = left - 1
            more.next = not last
            last.next = few and left[2:] == 2
        if opens:
            more.next = True
            last.next = few and left[2:] == 1
        if restart:
            left.next = number
            more.next = False
        if rst:
            more.next = False

    if floats is None:
        marks = zero(clk, top.marks)
    else:
        marks = kept_marks(clk, lands, write_at, came.marks, read_at, top.marks)
    return parts, balance(clk, restart, put, pop, used), marks, show, keep, count
