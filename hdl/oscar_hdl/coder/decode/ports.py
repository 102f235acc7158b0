"""Bundles of the barrel decoder. Their attributes say what each signal means, docs/develop/engine.md when."""

from oscar_hdl.coder.ports import BANK_BITS, ROW_BITS, VALUES_BITS
from oscar_hdl.coder.unit.ports import SAMPLED, STATE_BITS, THREAD_BITS, THREADS, WIDTH, WORD_BYTES
from oscar_hdl.streams.bundles import Bundle, bit, word

RING_BITS = 9  # of a byte's place in a thread's buffer
STATES_BITS = STATE_BITS * WIDTH
PLACE_BITS = 20  # of a byte's place in a block: no block takes 2^20, whatever its bytes are
WORDS_BITS = PLACE_BITS - 4  # of a word's number in a block

# What a thread's next turn is about.
HIGHS, LOWS, GROUPS, ROWS, SEEDS = range(5)
# The same of a raw block: its first row, a row's class, the row, the next one; a group's classes, the next
# group's first row.
FIRST, LOOK, ADD, NEXT, TALLIES, AGAIN = range(6)

# What a turn does. REST: nothing. HIGH, LOW: the final states. RAW: low bits of a wide row, before ROW. SEED:
# a row that rides in the start states, or, if there is none, a look at them. Of a raw block HIGH loads a row
# into the states, and SEED takes it, at first for its class alone; TALLY: classes of its group are counted.
REST, HIGH, LOW, CLASSES, ROW, RAW, SEED, TALLY = range(8)
OP_BITS = 3


class DecoderJob(Bundle):
    """Blocks for the threads of a barrel decoder.

    Attributes:
        start: Strobe: `thread` decodes a block. For an idle thread, four clocks or more after the last start.
        thread: Thread that starts.
        idle: Level: threads without a block. A bit rises with `done`.
        bank: Bank of tables and counts. This field and those up to `offset` need not hold after `start`.
        values: Number of values, 1 to 2^17.
        raw: Values come as they are: whole rows of 64 bytes in their order, of each row the last lane first,
            0 in lanes without a value. Then `offset` is 0, and `seeds`, `first`, `last` mean nothing.
        seeds: Directory: seed rows.
        first: Directory: first group with a live row.
        last: Directory: last group with a live row.
        bytes: Directory: bytes of the block, 96 or more.
        offset: Bytes in the block's last word that lie before the block, its upper ones.
        done: Strobe: the block has ended, and the unit has taken all words that belong to it.
        done_thread: Its thread; in the clock of `done` alone.
        bad: With `done`: wrong start or final states, or bytes missing or left over. Sums and counts of such
            a block mean nothing.
    """

    start, thread, idle = bit(), word(THREAD_BITS), word(THREADS)
    bank, values, raw = word(BANK_BITS), word(VALUES_BITS), bit()
    seeds, first, last = word(3), word(7), word(7)
    bytes, offset = word(19), word(4)  # offset: other bytes in the last word, before the block
    done, done_thread, bad = bit(), word(THREAD_BITS), bit()


class FeedPort(Bundle):
    """Bytes of threads' blocks, from each block's end to its start, sixteen a word.

    Attributes:
        valid: Strobe, every second clock at most: a word. It does not wait.
        thread: Thread of the word. Words of different threads come in any order.
        data: Sixteen bytes, in bits 0 to 7 the byte that the decoder takes first. A block has
            ceil((bytes + offset) / 16) words.
        room: Level: threads that take eight words more than had come 13 clocks ago.
    """

    valid, thread, data = bit(), word(THREAD_BITS), word(8 * WORD_BYTES)
    room = word(THREADS)  # threads to which eight words may be sent


class CodedPosition(Bundle):
    """Means, distances and local values for a barrel decoder: memory answers each request in a later turn.

    Attributes:
        take: Strobe, in clock 0 of a turn: a request. A thread has one open at most.
        thread: Thread that asks.
        row: Row of its block; for a header the first row of the group.
        header: The request is for a group's means.
        read: The request needs data. One without is answered all the same: the answer is the turn.
        given: Strobe, in clock 0 of a later turn: the answer. One a turn at most, in any order of threads.
        given_thread: Thread that is answered.
        mean: P of the row, its mean position class, with the answer of a row.
        data: In clocks 2 to 5 after the answer eight lanes of 4 bits, lanes 24 to 31 first. Of a row the
            distance; of a header P of row j in lane j, 0 where there is no row.
        local: In the same clocks, of a row: eight values of 16 bits that its values are added to.
    """

    take, thread, row = bit(), word(THREAD_BITS), word(ROW_BITS)
    header, read = bit(), bit()
    given, given_thread, mean = bit(), word(THREAD_BITS), word(4)
    data, local = word(4 * WIDTH), word(16 * WIDTH)


class CodedSums(Bundle):
    """Rows of sums, eight lanes a clock, and their descriptors.

    Attributes:
        valid: In clocks 30 to 33 of each row's turn: eight sums.
        thread: Thread of the row.
        row: Row of the block.
        total: Eight sums of decoded and local value, modulo 2^16; 0 in lanes without a value. Lanes 24 to 31
            come first.
        described: Strobe, in clock 42: the descriptor of a row of sums.
        described_thread: Thread of that row.
        described_row: Its number in the block.
        row_class: Class of the sums.
        row_size: Size of the sums.
        row_top: Symbol of their largest magnitude.
    """

    valid, thread = bit(), word(THREAD_BITS)
    row, total = word(ROW_BITS), word(16 * WIDTH)
    described, described_thread, described_row = bit(), word(THREAD_BITS), word(ROW_BITS)
    row_class, row_size, row_top = word(4), word(3), word(4)


class DecodePlan(Bundle):
    """What is to be done in a turn, and of which thread; held for four clocks."""

    thread, op, bank = word(THREAD_BITS), word(OP_BITS), word(BANK_BITS)
    row, row_class = word(ROW_BITS), word(4)
    limit = word(5)  # the last lane that takes part
    code = word(4)  # a symbol with as many raw bits as a raw or a seed step has
    seeds, opens, final = word(3), bit(), bit()  # first and last turn of the seeds
    real = bit()  # there is a row, or a group with one
    raw = bit()  # of a raw block
    pick = word(2)  # of each four lanes, that which is counted


class DecodeContext(Bundle):
    """What a thread's next turn follows from, from phase 1 on."""

    last_group, last_row, last_lane = word(7), word(5), word(5)  # of the block
    bank, seeds, raw = word(BANK_BITS), word(3), bit()
    first, last = word(7), word(7)
    state, group, wide, index = word(3), word(7), word(2), word(3)
    mask, left = word(32), word(6)  # rows left, how many


class DecodeChoice(Bundle):
    """What a turn does but for whether a wide row has raw steps to do first, from phase 0 on."""

    thread, some, op = word(THREAD_BITS), bit(), word(OP_BITS)
    group, row, limit = word(7), word(5), word(5)
    bank, seeds = word(BANK_BITS), word(3)
    wide, index, real = word(2), word(3), bit()
    raw, adds, ends = bit(), bit(), bit()  # of a raw block; its row is taken; it is its group's last one
    mask, left = word(32), word(6)  # of the rows that are left then


class DecodeDecision(Bundle):
    """The same with the class of its row, from phase 2 on, and how the thread goes on, from phase 3 on."""

    op, code, row_class, pick = word(OP_BITS), word(4), word(4), word(2)
    opens, final, real = bit(), bit(), bit()
    state, wide, index, clears = word(3), word(2), word(3), bit()


class GroupClasses(Bundle):
    """Classes of a group's rows, as they are decoded, and what follows from them."""

    write, at, classes = bit(), word(THREAD_BITS + 2), word(4 * WIDTH)
    ends, thread = bit(), word(THREAD_BITS)
    mask, left = word(32), word(6)


class Looked(Bundle):
    """The class of a raw block's row: strobe."""

    strobe, thread, row, row_class = bit(), word(THREAD_BITS), word(ROW_BITS), word(4)


class LaneLevels(Bundle):
    """What all lanes do, or each (u8): levels from the clock in the name on."""

    bank7, contexts6, odd9 = word(BANK_BITS), word(40), bit()
    active14, from_symbol15 = word(WIDTH), word(WIDTH)
    raw15, code15, clear21, refill23 = word(WIDTH), word(4), bit(), bit()
    seed_not23, seed24, upper24, lower24 = word(5), bit(), bit(), bit()
    low_bits27, count_bits29 = word(2), word(2)
    present13, present29, present35 = word(WIDTH), word(WIDTH), word(WIDTH)
    seed35, tally35, counted35 = bit(), bit(), bit()
    pick7, pick21, pick29, pick35 = word(2), word(2), word(2), word(2)


class LaneBytes(Bundle):
    """What a lane takes of its block's bytes."""

    one24, two24 = bit(), bit()  # and how many they are
    one33, two33, middle33, low33 = bit(), bit(), word(8), word(8)


class Begin(Bundle):
    """A thread has a new block, which begins at a place less than 0 by its bytes and its offset."""

    waits, write = bit(), bit()  # written when neither a turn's end nor a word is
    thread, place = word(THREAD_BITS), word(PLACE_BITS)


class Settled(Bundle):
    """Of the thread that is looked at: its block is over, and all its bytes came; they were just as many."""

    strobe, thread, exact = bit(), word(THREAD_BITS), bit()


class Put(Bundle):
    """Eight bytes for a thread's ring, in two halves."""

    write, at = bit(), word(THREAD_BITS + RING_BITS - 3)
    low, high = word(32), word(32)


class LaneInputs(Bundle):
    """What lanes read, from the clock in the name on."""

    data3, classes4 = word(4 * WIDTH), bit()  # distances, or means of rows
    x9, old24, local29 = word(STATES_BITS), word(8 * WIDTH), word(16 * WIDTH)


class LaneFound(Bundle):
    """What a lane finds, from the clock in the name on."""

    wrong10 = bit()  # the state is no start state: it has not a 1 alone above the seeds' bits
    symbol15, low26 = word(4), word(8)  # low26: low bits of wide rows, kept
    odd30, total30 = bit(), word(16)  # the value is not 0; with the local one, if it is there
    x34 = word(STATE_BITS)
    context7, symbol21, value29 = word(5), word(4), word(16)  # what it may count


class Found(Bundle):
    """What eight lanes find, from the clock in the name on."""

    wrong10, symbols15, odd30 = word(WIDTH), word(4 * WIDTH), word(WIDTH)
    totals30, addresses36 = word(16 * WIDTH), word(9 * SAMPLED)
