"""Bundles of the barrel decoder; docs/engine.md, "Barrel units", says what each signal means and when."""

from __future__ import annotations

from oscar_hdl.coder.barrel.ports import STATE_BITS, THREAD_BITS, THREADS, WIDTH, WORD_BYTES
from oscar_hdl.coder.ports import ROW_BITS, VALUES_BITS
from oscar_hdl.streams.bundles import bit, word

RING_BITS = 9  # of a byte's place in a thread's buffer
STATES_BITS = STATE_BITS * WIDTH
PLACE_BITS = 20  # of a byte's place in a block: no block takes 2^20, whatever its bytes are
WORDS_BITS = PLACE_BITS - 4  # of a word's number in a block

# What a thread's next turn is about.
HIGHS, LOWS, GROUPS, ROWS, SEEDS = range(5)

# What a turn does. REST: nothing. HIGH, LOW: the final states. RAW: low bits of a wide row, before ROW. SEED:
# a row that rides in the start states, or, if there is none, a look at them.
REST, HIGH, LOW, CLASSES, ROW, RAW, SEED = range(7)
OP_BITS = 3


class BarrelDecoderJob:
    """Blocks for the threads of a barrel decoder."""

    def __init__(self) -> None:
        self.start, self.thread, self.idle = bit(), word(THREAD_BITS), word(THREADS)
        self.bank, self.thinning, self.values = bit(), word(2), word(VALUES_BITS)
        self.seeds, self.first, self.last = word(3), word(7), word(7)
        self.bytes, self.offset = word(19), word(4)  # offset: other bytes in the last word, before the block
        self.done, self.done_thread, self.bad = bit(), word(THREAD_BITS), bit()


class BarrelFeed:
    """Bytes of threads' blocks, from each block's end to its begin, sixteen a word."""

    def __init__(self) -> None:
        self.valid, self.thread, self.data = bit(), word(THREAD_BITS), word(8 * WORD_BYTES)
        self.room = word(THREADS)  # threads to which eight words may be sent


class BarrelPosition:
    """Means, distances and local values for a barrel decoder: each request is answered in a later turn."""

    def __init__(self) -> None:
        self.take, self.thread, self.row = bit(), word(THREAD_BITS), word(ROW_BITS)
        self.header, self.read = bit(), bit()
        self.given, self.given_thread, self.mean = bit(), word(THREAD_BITS), word(4)
        self.data, self.local = word(4 * WIDTH), word(16 * WIDTH)


class BarrelSums:
    """Rows of sums, eight lanes a clock, and their descriptors."""

    def __init__(self) -> None:
        self.valid, self.thread, self.row, self.total = (
            bit(), word(THREAD_BITS), word(ROW_BITS), word(16 * WIDTH)
        )  # fmt: skip
        self.described, self.described_thread, self.described_row = bit(), word(THREAD_BITS), word(ROW_BITS)
        self.row_class, self.row_size, self.row_top = word(4), word(3), word(4)


class DecodePlan:
    """What is to be done in a turn, and of which thread; held for four clocks."""

    def __init__(self) -> None:
        self.thread, self.op, self.bank = word(THREAD_BITS), word(OP_BITS), bit()
        self.row, self.row_class = word(ROW_BITS), word(4)
        self.limit = word(5)  # the last lane that takes part
        self.code = word(4)  # a symbol with as many raw bits as a raw or a seed step has
        self.seeds, self.opens, self.final = word(3), bit(), bit()  # first and last turn of the seeds
        self.real = bit()  # there is a row
        self.counted, self.step = bit(), word(2)  # its symbols are counted, each as 2^step


class DecodeContext:
    """What a thread's next turn follows from, from phase 1 on."""

    def __init__(self) -> None:
        self.last_group, self.last_row, self.last_lane = word(7), word(5), word(5)  # of the block
        self.bank, self.thinning, self.seeds = bit(), word(2), word(3)
        self.first, self.last = word(7), word(7)
        self.state, self.group, self.wide, self.index = word(3), word(7), word(2), word(3)
        self.mask, self.left, self.crowd = word(32), word(6), word(2)  # rows left, how many; > 8, > 16 came


class DecodeChoice:
    """What a turn does but for whether a wide row has raw steps to do first, from phase 0 on."""

    def __init__(self) -> None:
        self.thread, self.some, self.op = word(THREAD_BITS), bit(), word(OP_BITS)
        self.group, self.row, self.limit = word(7), word(5), word(5)
        self.bank, self.seeds, self.counted, self.step = bit(), word(3), bit(), word(2)
        self.wide, self.index, self.real = word(2), word(3), bit()
        self.mask, self.left = word(32), word(6)  # of the rows that are left then


class DecodeDecision:
    """The same with the class of its row, from phase 2 on, and how the thread goes on, from phase 3 on."""

    def __init__(self) -> None:
        self.op, self.code, self.row_class = word(OP_BITS), word(4), word(4)
        self.opens, self.final = bit(), bit()
        self.state, self.wide, self.index, self.clears = word(3), word(2), word(3), bit()


class GroupClasses:
    """Classes of a group's rows, as they are decoded, and what follows from them."""

    def __init__(self) -> None:
        self.write, self.at, self.classes = bit(), word(THREAD_BITS + 2), word(4 * WIDTH)
        self.ends, self.thread, self.mask, self.left, self.crowd = (
            bit(), word(THREAD_BITS), word(32), word(6), word(2)
        )  # fmt: skip


class LaneLevels:
    """What all lanes do, or each (u8): levels from the clock in the name on."""

    def __init__(self) -> None:
        self.bank7, self.contexts6, self.odd9 = bit(), word(40), bit()
        self.active14, self.from_symbol15 = word(WIDTH), word(WIDTH)
        self.raw15, self.code15, self.clear21, self.refill23 = word(WIDTH), word(4), bit(), bit()
        self.seed_not23, self.seed24, self.upper24, self.lower24 = word(5), bit(), bit(), bit()
        self.low_bits27, self.count_bits29 = word(2), word(2)
        self.present13, self.present29, self.present35 = word(WIDTH), word(WIDTH), word(WIDTH)
        self.seed35, self.counted35 = bit(), bit()


class LaneBytes:
    """What a lane takes of its block's bytes."""

    def __init__(self) -> None:
        self.one24, self.two24 = bit(), bit()  # and how many they are
        self.one33, self.two33, self.middle33, self.low33 = bit(), bit(), word(8), word(8)


class Begin:
    """A thread has a new block, which begins at a place less than 0 by its bytes and its offset."""

    def __init__(self) -> None:
        self.waits, self.write = bit(), bit()  # written when neither a turn's end nor a word is
        self.thread, self.place = word(THREAD_BITS), word(PLACE_BITS)


class Settled:
    """Of the thread that is looked at: its block is over, and all its bytes came; they were just as many."""

    def __init__(self) -> None:
        self.strobe, self.thread, self.exact = bit(), word(THREAD_BITS), bit()


class Put:
    """Eight bytes for a thread's ring, in two halves."""

    def __init__(self) -> None:
        self.write, self.at = bit(), word(THREAD_BITS + RING_BITS - 3)
        self.low, self.high = word(32), word(32)


class LaneInputs:
    """What lanes read, from the clock in the name on."""

    def __init__(self) -> None:
        self.data3, self.classes4 = word(4 * WIDTH), bit()  # distances, or means of rows
        self.x9, self.old24, self.local29 = word(STATES_BITS), word(8 * WIDTH), word(16 * WIDTH)


class LaneFound:
    """What a lane finds, from the clock in the name on."""

    def __init__(self) -> None:
        self.wrong10 = bit()  # the state is no start state: it has not a 1 alone above the seeds' bits
        self.symbol15, self.low26 = word(4), word(8)  # low26: low bits of wide rows, kept
        self.odd30, self.total30 = bit(), word(16)  # the value is not 0; with the local one, if it is there
        self.x34, self.address36 = word(STATE_BITS), word(9)


class Found:
    """What eight lanes find, from the clock in the name on."""

    def __init__(self) -> None:
        self.wrong10, self.symbols15, self.odd30 = word(WIDTH), word(4 * WIDTH), word(WIDTH)
        self.totals30, self.addresses36 = word(16 * WIDTH), word(9 * WIDTH)
