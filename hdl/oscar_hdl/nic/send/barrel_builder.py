"""The store in which frames are made and from which they leave: bytes in, frames and their CRC out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.coder.barrel.ports import WORD_BYTES
from oscar_hdl.nic.crc.crc_sum import crc_sum
from oscar_hdl.nic.crc.word_crc import word_crc
from oscar_hdl.nic.send.barrel_collector import barrel_collector
from oscar_hdl.nic.send.barrel_ports import CollectJob, PairJob, Written
from oscar_hdl.nic.send.frame_reader import frame_reader
from oscar_hdl.nic.send.ports import FrameSum, Leaving
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.hot_tree import hot_tree
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.zero import zero

SUM_CLOCKS = 3  # from a collector's turn to that of its CRC


@block
def pair_words(clk: Any, rst: Any, s_axis_raw: Stream, s_axis_head: Stream, head: Any, m_axis: Stream) -> Any:
    """Make words of sixteen bytes of pairs, those of the frame's head where `head` is high."""
    PAIRS = WORD_BYTES // 2
    lanes, at, got = [word(16) for _ in range(PAIRS)], word(3), bit()
    pair, two, ends = word(16), bit(), bit()

    whole = joined(lanes, m_axis.tdata)

    @always_comb
    def look():
        s_axis_raw.tready.next = not head and not m_axis.tvalid
        s_axis_head.tready.next = head and not m_axis.tvalid
        got.next = s_axis_raw.tvalid and not head and not m_axis.tvalid
        pair.next = s_axis_raw.tdata
        two.next = s_axis_raw.tkeep[1]
        ends.next = s_axis_raw.tlast
        if head:
            got.next = s_axis_head.tvalid and not m_axis.tvalid
            pair.next = s_axis_head.tdata
            two.next = s_axis_head.tkeep[1]
            ends.next = s_axis_head.tlast

    @always(clk.posedge)
    def gather():
        if m_axis.tvalid and m_axis.tready:
            m_axis.tvalid.next = False
            m_axis.tkeep.next = 0
        if got:
            at.next = at + 1
            for i in range(PAIRS):
                if at == i:
                    lanes[i].next = pair
                    m_axis.tkeep.next[2 * i] = True
                    m_axis.tkeep.next[2 * i + 1] = two
            m_axis.tlast.next = ends
            m_axis.tvalid.next = ends or at == PAIRS - 1
            if ends:
                at.next = 0
        if rst:
            at.next = 0
            m_axis.tvalid.next = False
            m_axis.tkeep.next = 0

    return whole, look, gather


@block
def pair_collect(clk: Any, rst: Any, pairs: PairJob, words: Stream, unit: CollectJob, collect: CollectJob,
                 takes: Any) -> Any:  # fmt: skip
    """Let pairs have the first unit's collector when it is free, a block at a time; `takes`: they have it.

    unit: what the unit asks of it; collect: the collector.
    """
    states = enum("IDLE", "CLAIM", "RUN", "SUM")
    state = Signal(states.IDLE)
    head, start, ended = bit(), bit(), bit()

    @always_comb
    def connect():
        collect.start.next = unit.start or start
        collect.place.next = unit.place
        if start:
            collect.place.next = pairs.place
            if head:
                collect.place.next = 0
        unit.busy.next = collect.busy
        unit.claimed.next = state != states.IDLE or pairs.raw

    @always_comb
    def share():
        collect.mute.next = unit.mute
        collect.sum.next = unit.sum or state == states.SUM
        unit.summed.next = collect.summed and state != states.SUM
        pairs.idle.next = state == states.IDLE
        takes.next = state == states.RUN and not start  # the first word may wait already

    # The unit's own start comes a clock behind its begin, when it is not free any more.
    @always(clk.posedge)
    def run():
        start.next = state == states.CLAIM and unit.free and not rst
        if state == states.IDLE:
            ended.next = False
            head.next = pairs.head
            if pairs.raw or pairs.head:
                state.next = states.CLAIM
        elif state == states.CLAIM:
            if unit.free:
                state.next = states.RUN
        elif state == states.RUN:
            if words.tvalid and words.tready and words.tlast:
                ended.next = True
            if ended and not collect.busy:
                state.next = states.SUM
                if head and pairs.final:
                    state.next = states.IDLE
        elif collect.summed:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return connect, share, run


@block
def two_streams(first: Stream, second: Stream, takes: Any, m_axis: Stream) -> Any:
    """Give the second of two streams while `takes`, else the first."""

    @always_comb
    def choose():
        m_axis.tvalid.next = first.tvalid and not takes
        m_axis.tdata.next = first.tdata
        m_axis.tkeep.next = first.tkeep
        m_axis.tlast.next = first.tlast
        if takes:
            m_axis.tvalid.next = second.tvalid
            m_axis.tdata.next = second.tdata
            m_axis.tkeep.next = second.tkeep
            m_axis.tlast.next = second.tlast
        first.tready.next = m_axis.tready and not takes
        second.tready.next = m_axis.tready and takes

    return choose


@block
def store_lane(
    clk: Any, written: Written, advance: Any, read_address: Any, data: Any, *, lane: int
) -> Any:  # fmt: skip
    """Keep two bytes of all words. data u16: what is at read_address, two clocks of `advance` later."""
    depth = 1 << len(written.address)
    FIRST, SECOND, AT, MIDDLE, END = 2 * lane, 2 * lane + 1, 16 * lane, 16 * lane + 8, 16 * lane + 16
    low, high = ([word(8) for _ in range(depth)] for _ in range(2))
    low_read, high_read, low_data, high_data = (word(8) for _ in range(4))

    @always(clk.posedge)
    def write():
        if written.enable[FIRST]:
            low[written.address].next = written.data[MIDDLE:AT]
        if written.enable[SECOND]:
            high[written.address].next = written.data[END:MIDDLE]

    @always(clk.posedge)
    def read():
        if advance:
            low_read.next = low[read_address]
            high_read.next = high[read_address]
            low_data.next = low_read
            high_data.next = high_read

    @always_comb
    def join():
        data.next = concat(high_data, low_data)

    return write, read, join


@block
def turn_words(
    clk: Any, base: Any, turn: Any, given: Sequence[Any], gives: Sequence[Any], firsts: Sequence[Any],
    offsets: Sequence[Any], head: Any, written: Written,
) -> Any:  # fmt: skip
    """Take the word of the collector whose turn it is, if it gives one.

    turn: a bit for each. head (level): the first one has the frame's head.
    """
    COUNT, BITS = len(given), 9 * len(written.enable)
    DATA = len(written.data)
    hot, whole, offset = word(COUNT), word(BITS), word(len(base))
    pick_word, pick_offset = hot_tree(None, given, hot, whole), hot_tree(None, offsets, hot, offset)

    @always_comb
    def look():
        for n in range(COUNT):
            hot.next[n] = gives[n]

    @always(clk.posedge)
    def take():
        begins = modbv(0)[1:]
        for n in range(COUNT):
            if firsts[n] and hot[n]:
                begins[:] = 1
        written.first.next = begins == 1
        written.head.next = head and hot[0]
        written.valid.next = hot != 0
        written.data.next = whole[DATA:]
        written.enable.next = whole[BITS:DATA]
        written.address.next = base + offset

    if COUNT == 1:

        @always(clk.posedge)
        def count():
            turn.next = 1

    else:

        @always(clk.posedge)
        def count():
            turn.next = concat(turn[COUNT - 1 :], turn[COUNT - 1])

    return pick_word, pick_offset, look, take, count


@block
def turn_sums(
    clk: Any, turn: Any, jobs: Sequence[CollectJob], offsets: Sequence[Any], ended: Any, offset: Any,
    absorb: Any,
) -> Any:  # fmt: skip
    """Ask for the CRC of a block that is collected to be added, in its turn (crc_sum)."""
    COUNT = len(jobs)
    asks, summed = [job.sum for job in jobs], [job.summed for job in jobs]
    turns = [turn, *(word(COUNT) for _ in range(SUM_CLOCKS))]
    hot, asked = word(COUNT), word(COUNT)
    late = turns[-1]
    delays = [turn_delay(clk, before, after) for before, after in pairwise(turns)]
    pick = hot_tree(None, offsets, hot, offset)

    @always_comb
    def look():
        for n in range(COUNT):
            hot.next[n] = asks[n] and late[n]

    @always_comb
    def ask():
        ended.next = hot != 0

    @always(clk.posedge)
    def keep():
        asked.next = hot

    @always_comb
    def answer():
        for n in range(COUNT):
            summed[n].next = absorb and asked[n]

    return delays, pick, look, ask, keep, answer


@block
def turn_delay(clk: Any, before: Any, after: Any) -> Any:
    """Give whose turn it is a clock later."""

    @always(clk.posedge)
    def follow():
        after.next = before

    return follow


@block
def barrel_builder(
    clk: Any, rst: Any, m_axis: Stream, bytes_in: Sequence[Stream], s_axis_raw: Stream, s_axis_head: Stream,
    clear: Any, jobs: Sequence[CollectJob], pairs: PairJob, total: FrameSum, leaving: Leaving, heading: Any,
) -> Any:  # fmt: skip
    """Collect blocks of bytes side by side, one of each unit, and send what was collected.

    m_axis: frames_out, each frame whole behind the one before. bytes_in: Stream(128, keep=16) of each unit;
    s_axis_raw, s_axis_head: Stream(16, keep=2). clear (strobe): a new frame. jobs: what units ask of their
    collectors. heading (level): what comes in pairs is the frame's head. A collector writes a word of
    the store in its turn, so of U units each in one of U clocks. rst: nothing is collected, nothing leaves.
    """
    COUNT, size, BITS, PLACE_BITS = len(jobs), len(m_axis.tkeep), len(leaving.words), len(pairs.place)
    FULL = (1 << (BITS - 2)) - 1
    first_job, gathered, first_bytes, takes = CollectJob(PLACE_BITS), *(
        Stream(128, keep=WORD_BYTES) for _ in range(2)
    ), bit()  # fmt: skip
    own_jobs, streams = [first_job, *jobs[1:]], [first_bytes, *bytes_in[1:]]
    turn, base, limit, nothing_left = word(COUNT, 1), word(BITS), word(BITS - 2), bit()
    given, gives, firsts = [word(9 * size) for _ in jobs], [bit() for _ in jobs], [bit() for _ in jobs]
    offsets, mines = [word(BITS) for _ in jobs], [bit() for _ in jobs]
    written, state, ended, offset, absorb = Written(size, BITS), word(32), bit(), word(BITS), bit()
    advance, read_address, left, head = bit(), word(BITS), word(BITS), bit()
    lanes = [word(16) for _ in range(size // 2)]

    parts = [
        pair_words(clk, rst, s_axis_raw, s_axis_head, heading, gathered),
        pair_collect(clk, rst, pairs, gathered, jobs[0], first_job, takes),
        two_streams(bytes_in[0], gathered, takes, first_bytes),
        turn_words(clk, base, turn, given, gives, firsts, offsets, head, written),
        turn_sums(clk, turn, own_jobs, offsets, ended, offset, absorb),
        word_crc(clk, written.valid, written.first, written.data, written.head, state, turns=COUNT),
        crc_sum(
            clk, rst, clear=clear, ended=ended, state=state, offset=offset, absorb=absorb,
            finish=total.finish, pad=total.pad, idle=total.idle, crc=total.crc, word_bytes=size,
        ),
        frame_reader(
            clk, rst, start=leaving.send, words=leaving.words, tail=leaving.tail, peer=leaving.peer,
            idle=leaving.sent, left=left, address=read_address, advance=advance, m_axis=m_axis,
        ),
        joined(lanes, m_axis.tdata),
    ]  # fmt: skip
    parts += [
        barrel_collector(
            clk, rst, own_jobs[n], streams[n], mines[n], limit, nothing_left, given[n], gives[n], firsts[n],
            offsets[n],
        )
        for n in range(COUNT)
    ]  # fmt: skip
    parts += [zero(clk, job.claimed) for job in jobs[1:]]
    parts += [store_lane(clk, written, advance, read_address, lane, lane=n) for n, lane in enumerate(lanes)]

    @always_comb
    def split():
        for n in range(COUNT):
            mines[n].next = turn[n]
        head.next = heading and takes

    # `limit` may be late, as `left` falls while collectors run.
    @always(clk.posedge)
    def follow():
        limit.next = FULL - left[BITS:2]
        nothing_left.next = left == 0 and not leaving.send
        if leaving.send:
            base.next = base + leaving.words
        if rst:
            base.next = 0

    return parts, split, follow
