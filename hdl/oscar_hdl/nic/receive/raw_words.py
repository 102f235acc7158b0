"""A raw block's values, in words for a barrel decoder: rows in their order, of each the last lane first."""

from collections.abc import Sequence

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.coder.unit.ports import THREADS, WIDTH
from oscar_hdl.nic.receive.ports import RawWord
from oscar_hdl.streams.bundles import bit, word

WORD_BITS, WORDS = 16 * WIDTH, 4  # of a word, of a row


@block
def thread_room(clk, rooms: Sequence, at, room):
    """Say whether thread `at` (unit << 3 | thread) has room, a clock later; rooms: u8 of each unit."""
    UNITS = len(rooms)

    @always(clk.posedge)
    def look():
        room.next = False
        for u in range(UNITS):
            for i in range(THREADS):
                if at == THREADS * u + i and rooms[u][i]:
                    room.next = True

    return look


@block
def raw_words(clk, rst, begins, valid, value, rooms: Sequence, raw: RawWord, may, idle):
    """Gather rows and give each, in four words, when its thread has room.

    begins, valid, value u16: of raw_unpack. rooms: u8 of each unit. raw: a word for thread raw.at, which
    holds from the first row on. may: level, a row may begin: two are kept. idle: level, none is.
    """
    states = enum("REST", "LOAD", "WAIT")
    state = Signal(states.REST)
    memory, gathered, full = [word(WORD_BITS) for _ in range(2 * WORDS)], word(WORD_BITS), bit()
    number, write_at, read_at, half, left = word(3), word(3), word(3), bit(), word(2)
    begun, whole, room = word(2), word(2), bit()  # rows that are kept, and those of them that are whole
    comes, leaves = bit(), bit()
    REST = WORD_BITS - 16
    looks = thread_room(clk, rooms, raw.at, room)

    @always_comb
    def look():
        read_at.next = concat(half, left)
        comes.next = full and write_at[2:] == WORDS - 1
        leaves.next = raw.land and left == 0
        may.next = begun != 2
        idle.next = begun == 0

    @always(clk.posedge)
    def gather():
        full.next = valid and number == WIDTH - 1
        if valid:  # a state takes the upper byte first
            gathered.next = concat(gathered[REST:], value[8:], value[16:8])
            number.next = number + 1
        if full:
            memory[write_at].next = gathered
            write_at.next = write_at + 1
        if rst:
            full.next = False
            number.next = 0
            write_at.next = 0

    @always(clk.posedge)
    def count():
        if begins and not leaves:
            begun.next = begun + 1
        elif leaves and not begins:
            begun.next = begun - 1
        if comes and not leaves:
            whole.next = whole + 1
        elif leaves and not comes:
            whole.next = whole - 1
        if rst:
            begun.next = 0
            whole.next = 0

    @always(clk.posedge)
    def give():
        if state == states.REST:
            if whole != 0 and room:
                state.next = states.LOAD
        elif state == states.LOAD:
            raw.data.next = memory[read_at]
            raw.want.next = True
            state.next = states.WAIT
        elif raw.land:
            raw.want.next = False
            left.next = left - 1
            state.next = states.LOAD
            if leaves:
                half.next = not half
                state.next = states.REST
        if rst:
            state.next = states.REST
            raw.want.next = False
            left.next = WORDS - 1
            half.next = False

    return looks, look, gather, count, give
