"""Bundles of the barrel encoder; docs/engine.md, "Barrel units", says what each signal means and when."""

from __future__ import annotations

from oscar_hdl.coder.barrel.ports import STATE_BITS, THREAD_BITS, THREADS, WIDTH
from oscar_hdl.coder.ports import ROW_BITS, VALUES_BITS
from oscar_hdl.streams.bundles import bit, word

BUFFER_BYTES = 2048  # of a thread
BYTES_BITS = 19  # of the number of a block's bytes
WORD_BITS = 7  # of the number of a word in a thread's buffer

# What a thread's next turn is about. EXAMINE: a header was read; ROWS: of its group; NEXT: the next header.
EXAMINE, ROWS, NEXT, LOWS, HIGHS = range(5)

# What a turn does. REST: nothing. END: it only ends a block. COUNT looks a seed row up, SEED shifts a part of
# it into the states. RAW: low bits of a wide row. LOW, HIGH: the final states.
REST, HEADER, ROW, COUNT, SEED, RAW, CLASSES, LOW, HIGH, END = range(10)
OP_BITS = 4


class BarrelSource:
    """Rows and descriptors for a barrel encoder: each request is answered in a later turn."""

    def __init__(self) -> None:
        self.take, self.thread, self.row = bit(), word(THREAD_BITS), word(ROW_BITS)
        self.header, self.read = bit(), bit()
        self.given, self.given_thread = bit(), word(THREAD_BITS)
        self.row_class, self.mean, self.data = word(4), word(4), word(19 * WIDTH)


class BarrelEncoderJob:
    """Blocks for the threads of a barrel encoder, and their directory entries."""

    def __init__(self) -> None:
        self.start, self.thread, self.idle = bit(), word(THREAD_BITS), word(THREADS)
        self.bank, self.thinning, self.values = bit(), word(2), word(VALUES_BITS)
        self.done, self.done_thread, self.bad = bit(), word(THREAD_BITS), bit()
        self.constant, self.value, self.bits = bit(), word(16), word(4)
        self.seeds, self.first, self.last, self.bytes = word(3), word(7), word(7), word(19)


class BarrelDrain:
    """Whose bytes are to be given."""

    def __init__(self) -> None:
        self.start, self.thread, self.idle = bit(), word(THREAD_BITS), bit()


class Plan:
    """What is to be done in a turn, and of which thread; held for four clocks from the answer on."""

    def __init__(self) -> None:
        self.thread, self.op, self.part, self.seeds = word(THREAD_BITS), word(OP_BITS), word(2), word(3)
        self.bank, self.limit = bit(), word(5)  # limit: the last lane that takes part
        self.counted, self.step = bit(), word(2)  # its symbols are counted, each as 2^step
        self.opening, self.begin = bit(), word(4)  # states begin, with 2^begin
        self.fresh = bit()  # the block's first turns: no bytes and no facts before this one


class Group:
    """What a header says of a group, each as soon as it is written: for the thread `thread`."""

    def __init__(self) -> None:
        self.write_mask, self.mask_thread, self.mask = bit(), word(THREAD_BITS), word(32)
        self.write_crowd, self.crowd_thread, self.crowd = bit(), word(THREAD_BITS), word(2)  # > 8, > 16 rows
        self.write_seeds, self.seeds_thread, self.seeds = bit(), word(THREAD_BITS), word(31)


class Reading:
    """How a turn's values become symbols or raw bits: levels, each from the clock in its name on."""

    def __init__(self) -> None:
        self.wide3, self.pair3, self.top3 = word(2), bit(), bit()  # which bits are read
        self.signed3, self.classes3, self.raw5, self.idle5 = bit(), bit(), bit(), word(3)
        self.signed6, self.classes6, self.coded6, self.must6, self.bank6 = (bit() for _ in range(5))
        self.contexts6 = word(40)  # of the eight distances
        self.low10, self.high10, self.quiet10 = bit(), bit(), bit()


class Context:
    """What a thread's next turn follows from, from phase 1 on."""

    def __init__(self) -> None:
        self.last_group, self.last_row, self.last_lane = word(7), word(5), word(5)  # of the block
        self.bank, self.thinning = bit(), word(2)
        self.state, self.opened, self.seeds, self.first = word(3), bit(), word(3), word(7)
        self.group, self.scan = word(7), word(7)  # whose classes are not coded yet, whose header was read
        self.left, self.part, self.raws, self.row = word(3), word(3), word(2), word(5)
        self.mask, self.crowd, self.wide = word(32), word(2), word(2)  # rows left; of the last row read
        self.found = word(31)  # of seed_rows


class Decision:
    """What a turn does, from phase 3 on, and what of the context changes."""

    def __init__(self) -> None:
        self.op, self.group, self.row, self.part = word(OP_BITS), word(7), word(5), word(2)
        self.clears, self.mask = bit(), word(32)  # the row is done, and which are left then
        self.opens, self.live = bit(), bit()  # the block's first live group; classes of a live group
        self.state, self.opened, self.seeds, self.first = word(3), bit(), word(3), word(7)
        self.at, self.scan, self.left, self.next_part = word(7), word(7), word(3), word(3)
        self.raws, self.next_row = word(2), word(5)


class Step:
    """What a lane codes: its state; bank, context and symbol; its raw bits, the upper 6 - idle7 of raw7.

    none7: no symbol; must7: one that has to be possible.
    """

    def __init__(self) -> None:
        self.x7, self.address7, self.idle7, self.raw7 = word(STATE_BITS), word(10), word(3), word(6)
        self.none7, self.must7 = bit(), bit()


class Leaving:
    """Bytes of a lane: none, one (over11) or two (two11), the first in bytes13[8:]; impossible11: f was 0."""

    def __init__(self) -> None:
        self.over11, self.two11, self.bytes13, self.impossible11 = bit(), bit(), word(16), bit()


class Level:
    """How many bytes of `thread` there are (stale: none), and how many words were taken while `busy`."""

    def __init__(self) -> None:
        self.thread, self.busy, self.taken = word(THREAD_BITS), bit(), word(BYTES_BITS - 4)
        self.level, self.stale = word(BYTES_BITS), bit()


class Ended:
    """The block of a thread has all its bytes: a strobe in clock 16 of its last turn."""

    def __init__(self) -> None:
        self.strobe16, self.thread16, self.bytes16 = bit(), word(THREAD_BITS), word(BYTES_BITS)


class Entry:
    """Of a thread's block: opened << 17, seeds << 14, first << 7, last. turn: whose turn is in clock 12."""

    def __init__(self) -> None:
        self.turn, self.thread = word(THREAD_BITS), word(THREAD_BITS)
        self.said, self.last = word(18), word(18)


class Facts:
    """Of a thread's block: all values are equal << 20, bits << 16, value."""

    def __init__(self) -> None:
        self.said, self.last = word(21), word(21)
