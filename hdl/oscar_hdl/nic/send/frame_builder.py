"""The store in which frames are made and from which they leave: bytes in, frames and their CRC out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.crc.crc_sum import crc_sum
from oscar_hdl.nic.crc.turn_crc import turn_crc
from oscar_hdl.nic.send.collector import collector
from oscar_hdl.nic.send.frame_reader import frame_reader
from oscar_hdl.nic.send.turn_places import turn_places
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree


@block
def word_join(words: Sequence[Any], whole: Any) -> Any:
    """Give `whole`, words[0] lowest; words are of one width and a power of two in number."""
    if len(words) == 2:
        low_word, high_word = words
        parts: tuple[Any, ...] = ()
    else:
        half = len(words) // 2
        low_word, high_word = (word(half * len(words[0])) for _ in range(2))
        parts = (word_join(words[:half], low_word), word_join(words[half:], high_word))

    @always_comb
    def join():
        whole.next = concat(high_word, low_word)

    return parts, join


@block
def launcher(
    clk: Any, rst: Any, launch: Any, target: Any, choice: Any, keep: Any, drop: Any, cancel: Any,
    launched: Any, busy: Any, turn: Any, busies: Sequence[Any], starts: Sequence[Any], choices: Sequence[Any],
    keeps: Sequence[Any], drops: Sequence[Any], cancels: Sequence[Any],
) -> Any:  # fmt: skip
    """Start collector `target` on its stream `choice` when it is free, and in its turn.

    launch (level, until launched); launched (strobe): one clock after the start. keep, drop, cancel
    (strobes): passed to the target. busy: the target is.
    """
    count = len(busies)
    started, next_turn = bit(), word(len(turn))

    @always_comb
    def look():
        any_start = modbv(0)[1:]
        for i in range(count):
            if starts[i]:
                any_start[:] = 1
        started.next = any_start == 1
        next_turn.next = turn + 1
        busy.next = busies[int(target)]

    @always(clk.posedge)
    def run():
        launched.next = started and not rst
        for i in range(count):
            starts[i].next = (
                launch and not started and not launched and target == i and next_turn == i
                and not busies[i]
            )  # fmt: skip
            keeps[i].next = keep and target == i
            drops[i].next = drop and target == i
            cancels[i].next = cancel and target == i
            if rst:
                starts[i].next = False
            if starts[i]:
                choices[i].next = choice

    return look, run


@block
def or_tree(parts: Sequence[Any], whole: Any) -> Any:
    """Give the or of all parts, which are as wide as `whole`; combinational."""
    if len(parts) == 1:
        only = parts[0]

        @always_comb
        def take():
            whole.next = only

        return take
    half = len(parts) // 2
    low, high = (word(len(whole)) for _ in range(2))
    low_tree, high_tree = or_tree(parts[:half], low), or_tree(parts[half:], high)

    @always_comb
    def join():
        whole.next = low | high

    return low_tree, high_tree, join


@block
def store_lane(
    clk: Any, words: Sequence[Any], enables: Sequence[Any], write_address: Any, written: Any, advance: Any,
    read_address: Any, data: Any,
) -> Any:  # fmt: skip
    """Write what one of the collectors gives, and read words that leave.

    words u16, enables u2 of each collector: 0 but in its turn. written u16: one clock later, beside
    write_address. data u16: what is at read_address, two clocks of `advance` later; it holds without.
    """
    depth = 1 << len(write_address)
    low, high = ([word(8) for _ in range(depth)] for _ in range(2))
    low_write, high_write = bit(), bit()
    any_word, any_enable = word(16), word(2)
    low_read, high_read, low_data, high_data = (word(8) for _ in range(4))
    gather_words, gather_enables = or_tree(words, any_word), or_tree(enables, any_enable)

    @always(clk.posedge)
    def write():
        written.next = any_word
        low_write.next = any_enable[0]
        high_write.next = any_enable[1]
        if low_write:
            low[write_address].next = written[8:]
        if high_write:
            high[write_address].next = written[16:8]

    @always(clk.posedge)
    def read():
        if advance:
            low_read.next = low[read_address]
            high_read.next = high[read_address]
            low_data.next = low_read
            high_data.next = high_read

    @always_comb
    def join():
        data.next[8:] = low_data
        data.next[16:8] = high_data

    return gather_words, gather_enables, write, read, join


@block
def pair_port(s_axis: Any, pair: Any, mark: Any, ready: Any) -> Any:
    """Connect s_axis, a Stream(16, keep=2), to pair u17 (data lowest, keep[1]), mark u2 (valid, last) and
    ready."""

    @always_comb
    def connect():
        pair.next = concat(s_axis.tkeep[1], s_axis.tdata)
        mark.next = concat(s_axis.tlast, s_axis.tvalid)
        s_axis.tready.next = ready

    return connect


@block
def pick_stream(clk: Any, s_axis: Sequence[Any], choice: Any, ready: Any, mark: Any, pair: Any) -> Any:
    """Take from the stream whose bit of `choice` is 1; all are Stream(16, keep=2).

    ready: its tready; mark u2: its tvalid and tlast; pair u17: its tdata and tkeep[1] (above), a clock later.
    """
    count = len(s_axis)
    pairs = [word(17) for _ in range(count)]
    marks = [word(2) for _ in range(count)]
    readies = [bit() for _ in range(count)]
    ports = [pair_port(*four) for four in zip(s_axis, pairs, marks, readies, strict=True)]
    pick_pair = hot_tree(clk, pairs, choice, pair)
    pick_mark = hot_tree(None, marks, choice, mark)

    @always_comb
    def answer():
        for i in range(count):
            readies[i].next = ready and choice[i]

    return ports, pick_pair, pick_mark, answer


@block
def frame_builder(
    clk: Any, rst: Any, m_axis: Any, units: Sequence[Any], raw: Any, head: Any, clear: Any, launch: Any,
    target: Any, choice: Any, keep: Any, drop: Any, cancel: Any, place: Any, heading: Any, launched: Any,
    busy: Any, first_busy: Any, resting: Any, finish: Any, pad: Any, crc: Any, crc_idle: Any, send: Any,
    words: Any, tail: Any, sent: Any, *, collectors: int,
) -> Any:  # fmt: skip
    """Collect blocks of bytes side by side, a pair a clock each, and send what was collected.

    m_axis: Stream of whole frames. units, raw, head: Stream(16, keep=2), a block each up to tlast.
    clear (strobe): a new frame. launch (until launched), target, choice: have a collector take a block;
    unit u is bit u // collectors of choice of collector u % collectors, collector 0 has raw and head behind;
    place: where it begins in the frame, in bytes, until two clocks after launched. heading (level): it is
    the head. keep, drop, cancel (strobes): what becomes of it (collector.py). busy, first_busy: the target
    is, collector 0 is. resting: a clock ago no collector was busy, and all CRCs were added.
    finish (strobe), pad: the frame's CRC is to be without so many bytes at its end; crc u32, not inverted;
    crc_idle: it is complete.
    send (strobe, while `sent`): the first `words` words leave, of the last one `tail` bytes (0: all); the
    next frame is made behind them. sent: nothing is leaving.
    """
    lanes = len(m_axis.tdata) // 16
    LANES_LOG2 = lanes.bit_length() - 1
    BITS = len(words)
    turn, base = word(LANES_LOG2), word(BITS)
    busies, starts, keeps, drops, cancels, rooms = ([bit() for _ in range(collectors)] for _ in range(6))
    choices = [word(len(choice)) for _ in range(collectors)]
    readies, marks = [bit() for _ in range(collectors)], [word(2) for _ in range(collectors)]
    pairs = [word(17) for _ in range(collectors)]
    held = [[word(16) for _ in range(lanes)] for _ in range(collectors)]
    enables = [[word(2) for _ in range(lanes)] for _ in range(collectors)]
    valids, firsts, endeds = ([bit() for _ in range(collectors)] for _ in range(3))
    written = [word(16) for _ in range(lanes)]
    read = [word(16) for _ in range(lanes)]
    valid, first, ended, offset, address = bit(), bit(), bit(), word(BITS), word(BITS)
    first_word, lane, odd = word(BITS), word(LANES_LOG2), bit()
    absorb, state = bit(), word(32)
    advance, read_address, left = bit(), word(BITS), word(BITS)

    picks, takers = [], []
    for i in range(collectors):
        own = [*units[i::collectors], *((raw, head) if i == 0 else ())]
        picks.append(pick_stream(clk, own, choices[i], readies[i], marks[i], pairs[i]))
        takers.append(
            collector(
                clk, rst, turn, starts[i], odd, lane, keeps[i], drops[i], cancels[i], absorb, rooms[i],
                readies[i], marks[i], pairs[i], busies[i], held[i], enables[i], valids[i], firsts[i],
                endeds[i], index=i,
            )
        )  # fmt: skip
    start = launcher(
        clk, rst, launch, target, choice, keep, drop, cancel, launched, busy, turn, busies, starts, choices,
        keeps, drops, cancels,
    )  # fmt: skip
    places = turn_places(
        clk, rst, turn, starts, first_word, base, left, valids, firsts, endeds, rooms, valid, first, ended,
        offset, address,
    )  # fmt: skip
    store = [
        store_lane(
            clk,
            [h[j] for h in held],
            [e[j] for e in enables],
            address,
            written[j],
            advance,
            read_address,
            read[j],
        )
        for j in range(lanes)
    ]
    joined = word_join(read, m_axis.tdata)
    check = turn_crc(clk, written, valid, first, heading, state)
    total = crc_sum(
        clk, rst, clear, ended, state, offset, absorb, finish, pad, crc_idle, crc, word_bytes=2 * lanes
    )
    reader = frame_reader(clk, rst, send, words, tail, sent, left, read_address, advance, m_axis)

    @always_comb
    def look():
        first_busy.next = busies[0]
        odd.next = place[0]
        lane.next = place[LANES_LOG2 + 1 : 1]
        first_word.next = place[LANES_LOG2 + 1 + BITS : LANES_LOG2 + 1]

    @always(clk.posedge)
    def count():
        any_busy = modbv(0)[1:]
        for i in range(collectors):
            if busies[i]:
                any_busy[:] = 1
        resting.next = any_busy == 0 and crc_idle
        turn.next = turn + 1
        if send:
            base.next = base + words
        if rst:
            base.next = 0

    return picks, takers, start, places, store, joined, check, total, reader, look, count
