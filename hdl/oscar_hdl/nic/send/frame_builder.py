"""The store in which frames are made and from which they leave: bytes in, frames and their CRC out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.crc.crc_sum import crc_sum
from oscar_hdl.nic.crc.turn_crc import turn_crc
from oscar_hdl.nic.send.collector import collector
from oscar_hdl.nic.send.frame_reader import frame_reader
from oscar_hdl.nic.send.ports import Collectors, CollectPort, FrameSum, Leaving, Written
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
def launcher(clk: Any, rst: Any, turn: Any, collect: CollectPort, collectors: Collectors) -> Any:
    """Start the target on its stream when it is free, and in its turn; launched comes a clock later."""
    starts, choices, busies = collectors.starts, collectors.choices, collectors.busies
    keeps, drops, cancels = collectors.keeps, collectors.drops, collectors.cancels
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
        collect.busy.next = busies[int(collect.target)]

    @always(clk.posedge)
    def run():
        collect.launched.next = started and not rst
        for i in range(count):
            starts[i].next = (
                collect.launch and not started and not collect.launched and collect.target == i
                and next_turn == i and not busies[i]
            )  # fmt: skip
            keeps[i].next = collect.keep and collect.target == i
            drops[i].next = collect.drop and collect.target == i
            cancels[i].next = collect.cancel and collect.target == i
            if rst:
                starts[i].next = False
            if starts[i]:
                choices[i].next = collect.choice

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
    clk: Any, rst: Any, m_axis: Any, units: Sequence[Any], raw: Any, head: Any, clear: Any,
    collect: CollectPort, total: FrameSum, leaving: Leaving, resting: Any, *, collectors: int,
) -> Any:  # fmt: skip
    """Collect blocks of bytes side by side, a pair a clock each, and send what was collected.

    m_axis: Stream of whole frames, each behind the one before. units, raw, head: Stream(16, keep=2), a block
    each up to tlast. clear (strobe): a new frame. collect: what collectors do, a block each. resting (level):
    a clock ago no collector was busy, and all CRCs were added. rst: nothing is collected, nothing leaves.
    """
    lanes = len(m_axis.tdata) // 16
    LANES_LOG2 = lanes.bit_length() - 1
    BITS = len(leaving.words)
    turn, base = word(LANES_LOG2), word(BITS)
    all_collectors = Collectors(collectors, len(collect.choice))
    readies, marks = [bit() for _ in range(collectors)], [word(2) for _ in range(collectors)]
    pairs = [word(17) for _ in range(collectors)]
    held = [[word(16) for _ in range(lanes)] for _ in range(collectors)]
    enables = [[word(2) for _ in range(lanes)] for _ in range(collectors)]
    words_in, read = [word(16) for _ in range(lanes)], [word(16) for _ in range(lanes)]
    written, first_word, lane, odd = Written(BITS), word(BITS), word(LANES_LOG2), bit()
    absorb, state = bit(), word(32)
    advance, read_address, left = bit(), word(BITS), word(BITS)
    busies, choices = all_collectors.busies, all_collectors.choices

    picks, takers = [], []
    for i in range(collectors):
        own = [*units[i::collectors], *((raw, head) if i == 0 else ())]
        picks.append(pick_stream(clk, own, choices[i], readies[i], marks[i], pairs[i]))
        port = all_collectors.port(i, odd=odd, lane=lane, absorb=absorb)
        takers.append(
            collector(
                clk, rst, turn, port, ready=readies[i], mark=marks[i], next_pair=pairs[i], words=held[i],
                enables=enables[i], index=i,
            )
        )  # fmt: skip
    start = launcher(clk, rst, turn, collect, all_collectors)
    places = turn_places(
        clk, rst, turn, first_word=first_word, base=base, left=left, collectors=all_collectors,
        written=written,
    )  # fmt: skip
    store = [
        store_lane(
            clk, [h[j] for h in held], [e[j] for e in enables], written.address, words_in[j], advance,
            read_address, read[j],
        )
        for j in range(lanes)
    ]  # fmt: skip
    joined = word_join(read, m_axis.tdata)
    check = turn_crc(clk, words_in, written.valid, written.first, collect.heading, state)
    add_up = crc_sum(
        clk, rst, clear=clear, ended=written.ended, state=state, offset=written.offset, absorb=absorb,
        finish=total.finish, pad=total.pad, idle=total.idle, crc=total.crc, word_bytes=2 * lanes,
    )  # fmt: skip
    reader = frame_reader(
        clk, rst, start=leaving.send, words=leaving.words, tail=leaving.tail, peer=leaving.peer,
        idle=leaving.sent, left=left, address=read_address, advance=advance, m_axis=m_axis,
    )  # fmt: skip

    @always_comb
    def look():
        collect.first_busy.next = busies[0]
        odd.next = collect.place[0]
        lane.next = collect.place[LANES_LOG2 + 1 : 1]
        first_word.next = collect.place[LANES_LOG2 + 1 + BITS : LANES_LOG2 + 1]

    @always(clk.posedge)
    def count():
        any_busy = modbv(0)[1:]
        for i in range(collectors):
            if busies[i]:
                any_busy[:] = 1
        resting.next = any_busy == 0 and total.idle
        turn.next = turn + 1
        if leaving.send:
            base.next = base + leaving.words
        if rst:
            base.next = 0

    return picks, takers, start, places, store, joined, check, add_up, reader, look, count
