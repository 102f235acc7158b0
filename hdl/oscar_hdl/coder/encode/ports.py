"""Bundles of the barrel encoder. Their attributes say what each signal means, docs/develop/engine.md when."""

from oscar_hdl.coder.ports import BANK_BITS, ROW_BITS, VALUES_BITS
from oscar_hdl.coder.unit.ports import STATE_BITS, THREAD_BITS, THREADS, WIDTH
from oscar_hdl.streams.bundles import Bundle, bit, word

BUFFER_BYTES = 2048  # of a thread
BYTES_BITS = 19  # of the number of a block's bytes
WORD_BITS = 7  # of the number of a word in a thread's buffer

# What a thread's next turn is about. EXAMINE: a header was read; ROWS: of its group; NEXT: the next header.
EXAMINE, ROWS, NEXT, LOWS, HIGHS = range(5)

# What a turn does. REST: nothing. END: it only ends a block. COUNT looks a seed row up, SEED shifts a part of
# it into the states. RAW: low bits of a wide row. LOW, HIGH: the final states.
REST, HEADER, ROW, COUNT, SEED, RAW, CLASSES, LOW, HIGH, END = range(10)
OP_BITS = 4


class CodedSource(Bundle):
    """Rows and descriptors for a barrel encoder: memory answers each request in a later turn.

    Attributes:
        take: Strobe, in clock 0 of a turn: a request. A thread has one open at most.
        thread: Thread that asks.
        row: Row of its block; for a header the first row of the group.
        header: The request is for a group's header.
        read: The request needs data. One without is answered all the same: the answer is the turn.
        given: Strobe, in clock 0 of a later turn: the answer. One a turn at most, in any order of threads.
        given_thread: Thread that is answered.
        row_class: Class of the row, with the answer of a row.
        mean: P of the row, its mean position class, with the answer of a row.
        data: In clocks 2 to 5 after the answer eight lanes of 19 bits, the lowest lane first. Of a row
            value + (distance << 16). Of a header class + (size << 4) + (P << 7) of row j in lane j, 0 where
            there is no row.
    """

    take, thread, row = bit(), word(THREAD_BITS), word(ROW_BITS)
    header, read = bit(), bit()
    given, given_thread = bit(), word(THREAD_BITS)
    row_class, mean, data = word(4), word(4), word(19 * WIDTH)


class EncoderJob(Bundle):
    """Blocks for the threads of a barrel encoder, and their directory entries.

    Attributes:
        start: Strobe: `thread` encodes a block. In any clock, for an idle thread.
        thread: Thread that starts.
        idle: Level: threads without a block.
        bank: Bank of tables and counts; with `start`.
        values: Number of values, 1 to 2^17; with `start`.
        done: Strobe: a block has ended, and all its bytes are in the thread's buffer.
        done_thread: Its thread. This field and those after it hold in the clock of `done` alone.
        bad: A value has no symbol in its row's class, or the tables lack a symbol.
        constant: All values of the block are equal, to `value`. Drop its bytes; `bytes` means nothing.
        value: That value.
        bits: Bit length of the or of v xor (v >> 15) of all values v.
        seeds: Directory: seed rows.
        first: Directory: first group with a live row.
        last: Directory: last group with a live row.
        bytes: Directory: bytes of the block.
    """

    start, thread, idle = bit(), word(THREAD_BITS), word(THREADS)
    bank, values = word(BANK_BITS), word(VALUES_BITS)
    done, done_thread, bad = bit(), word(THREAD_BITS), bit()
    constant, value, bits = bit(), word(16), word(4)
    seeds, first, last, bytes = word(3), word(7), word(7), word(19)


class DrainPort(Bundle):
    """The thread whose bytes leave.

    Attributes:
        start: Strobe, while `idle`: give the bytes of the block of `thread`, from the first one on. The block
            may still be coded.
        thread: Thread to drain; with `start`.
        idle: Level: the last word of the block before was taken.
    """

    start, thread, idle = bit(), word(THREAD_BITS), bit()


class Plan(Bundle):
    """What is to be done in a turn, and of which thread; held for four clocks from the answer on."""

    thread, op, bank = word(THREAD_BITS), word(OP_BITS), word(BANK_BITS)
    counted, pick = bit(), word(2)  # its symbols are counted: of each four lanes that of one
    opening, begin = bit(), word(4)  # states begin, with 2^begin
    fresh = bit()  # the block's first turns: no bytes and no facts before this one


class FirstPlan(Plan):
    """The same from clock 1 on, with what nobody looks at later."""

    part, seeds, limit = word(2), word(3), word(5)  # limit: the last lane that takes part


class Group(Bundle):
    """What a header says of a group, each as soon as it is written: for the thread `thread`."""

    write_mask, mask_thread, mask = bit(), word(THREAD_BITS), word(32)
    write_seeds, seeds_thread, seeds = bit(), word(THREAD_BITS), word(31)


class Reading(Bundle):
    """How a turn's values become symbols or raw bits: levels, each from the clock in its name on."""

    wide3, pair3, top3 = word(2), bit(), bit()  # which bits are read
    signed3, classes3, raw5, idle5 = bit(), bit(), bit(), word(3)
    signed6, classes6, coded6, must6 = (bit() for _ in range(4))
    bank6 = word(BANK_BITS)
    contexts6 = word(40)  # of the eight distances
    low10, high10, quiet10 = bit(), bit(), bit()


class Context(Bundle):
    """What a thread's next turn follows from, from phase 1 on."""

    last_group, last_row, last_lane = word(7), word(5), word(5)  # of the block
    bank = word(BANK_BITS)
    state, opened, seeds, first = word(3), bit(), word(3), word(7)
    group, scan = word(7), word(7)  # whose classes are not coded yet, whose header was read
    left, part, raws, row = word(3), word(3), word(2), word(5)
    mask, wide = word(32), word(2)  # rows left; of the last row read
    found = word(31)  # of seed_rows


class Decision(Bundle):
    """What a turn does, from phase 3 on, and what of the context changes."""

    op, group, row, part = word(OP_BITS), word(7), word(5), word(2)
    clears, mask = bit(), word(32)  # the row is done, and which are left then
    opens, live = bit(), bit()  # the block's first live group; classes of a live group
    state, opened, seeds, first = word(3), bit(), word(3), word(7)
    at, scan, left, next_part = word(7), word(7), word(3), word(3)
    raws, next_row = word(2), word(5)


class Step(Bundle):
    """What a lane codes: its state; bank, context and symbol; its raw bits, the upper 6 - idle7 of raw7.

    none7: no symbol; must7: one that has to be possible.
    """

    x7, address7 = word(STATE_BITS), word(BANK_BITS + 9)
    idle7, raw7 = word(3), word(6)
    none7, must7 = bit(), bit()


class Leaving(Bundle):
    """Bytes of a lane: none, one (over11) or two (two11), the first in bytes13[8:]; impossible11: f was 0."""

    over11, two11, bytes13, impossible11 = bit(), bit(), word(16), bit()


class Level(Bundle):
    """How many bytes of `thread` there are (stale: none), and how many words were taken while `busy`."""

    thread, busy, taken = word(THREAD_BITS), bit(), word(BYTES_BITS - 4)
    level, stale = word(BYTES_BITS), bit()


class Ended(Bundle):
    """The block of a thread has all its bytes: a strobe in clock 16 of its last turn."""

    strobe16, thread16, bytes16 = bit(), word(THREAD_BITS), word(BYTES_BITS)


class Entry(Bundle):
    """Of a thread's block: opened << 17, seeds << 14, first << 7, last. turn: whose turn is in clock 12."""

    turn, thread = word(THREAD_BITS), word(THREAD_BITS)
    said, last = word(18), word(18)


class Facts(Bundle):
    """Of a thread's block: all values are equal << 20, bits << 16, value."""

    said, last = word(21), word(21)
