"""The store in which frames are made and from which they leave: bytes in, frames and their CRC out."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.coder.unit.ports import WORD_BYTES
from oscar_hdl.nic.crc.crc_sum import crc_sum
from oscar_hdl.nic.crc.frame_crc import crc_rest
from oscar_hdl.nic.send.byte_collector import byte_collector
from oscar_hdl.nic.send.frame_reader import frame_reader
from oscar_hdl.nic.send.head_words import head_words
from oscar_hdl.nic.send.ports import CollectJob, FrameSum, HeadJob, HeadLane, Leaving, PairJob, Written
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.hot_tree import hot_tree
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.linear_map import linear_map, step
from oscar_hdl.streams.zero import zero

SUM_CLOCKS = 3  # from a collector's turn to that of its CRC


@block
def pair_words(clk, rst, s_axis: Stream, m_axis: Stream):
    """Make words of sixteen bytes of pairs."""
    PAIRS = WORD_BYTES // 2
    lanes, at = [word(16) for _ in range(PAIRS)], word(3)

    whole = joined(lanes, m_axis.tdata)

    @always_comb
    def look():
        s_axis.tready.next = not m_axis.tvalid

    @always(clk.posedge)
    def gather():
        if m_axis.tvalid and m_axis.tready:
            m_axis.tvalid.next = False
            m_axis.tkeep.next = 0
        if s_axis.tvalid and not m_axis.tvalid:
            at.next = at + 1
            for i in range(PAIRS):
                if at == i:
                    lanes[i].next = s_axis.tdata
                    m_axis.tkeep.next[2 * i] = True
                    m_axis.tkeep.next[2 * i + 1] = s_axis.tkeep[1]
            m_axis.tlast.next = s_axis.tlast
            m_axis.tvalid.next = s_axis.tlast or at == PAIRS - 1
            if s_axis.tlast:
                at.next = 0
        if rst:
            at.next = 0
            m_axis.tvalid.next = False
            m_axis.tkeep.next = 0

    return whole, look, gather


@block
def pair_collect(clk, rst, pairs: PairJob, words: Stream, unit: CollectJob, collect: CollectJob, takes):
    """Let raw blocks have the first unit's collector when it is free, one at a time; `takes`: they have it.

    unit: what the unit asks of it; collect: the collector.
    """
    states = enum("IDLE", "CLAIM", "RUN", "SUM")
    state = Signal(states.IDLE)
    start, ended = bit(), bit()

    @always_comb
    def connect():
        collect.start.next = unit.start or start
        collect.place.next = unit.place
        if start:
            collect.place.next = pairs.place
        unit.busy.next = collect.busy
        unit.claimed.next = state != states.IDLE or pairs.raw

    # Without an `if`, as of the other collectors: all parts of an array of Verilog have one kind of driver.
    @always_comb
    def share():
        collect.discard.next = unit.discard
        collect.sum.next = unit.sum or state == states.SUM
        unit.summed.next = collect.summed and state != states.SUM
        pairs.idle.next = state == states.IDLE

    # The unit's own start comes a clock behind its begin, when it is not free any more.
    @always(clk.posedge)
    def run():
        start.next = state == states.CLAIM and unit.free and not rst
        # Not in the clock of start: the first word may wait already.
        takes.next = state == states.RUN and not (ended and not collect.busy) and not rst
        if state == states.IDLE:
            ended.next = False
            if pairs.raw:
                state.next = states.CLAIM
        elif state == states.CLAIM:
            if unit.free:
                state.next = states.RUN
        elif state == states.RUN:
            if words.tvalid and words.tready and words.tlast:
                ended.next = True
            if ended and not collect.busy:
                state.next = states.SUM
        elif collect.summed:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return connect, share, run


@block
def two_streams(first: Stream, second: Stream, takes, m_axis: Stream):
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
def store_lane(clk, written: Written, advance, read_address, data, *, lane: int):
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
    clk, rst, base, turn, mines: Sequence, given: Sequence, gives: Sequence, firsts: Sequence,
    offsets: Sequence, head: HeadLane, written: Written,
):  # fmt: skip
    """Take the word of the collector whose turn it is, if it gives one, or of the head, which takes the turn.

    turn: a bit for each collector. mines: levels, they may give. A word of the head is not `valid`, since its
    CRC is made elsewhere.
    """
    COUNT, BITS = len(given), 9 * len(written.enable)
    DATA = len(written.data)
    hot, whole, offset = word(COUNT + 1), word(BITS), word(len(base))
    pick_word = hot_tree(None, [*given, head.given], hot, whole)
    pick_offset = hot_tree(None, [*offsets, head.offset], hot, offset)

    @always_comb
    def look():
        for n in range(COUNT):
            hot.next[n] = gives[n]
        hot.next[COUNT] = head.granted

    @always(clk.posedge)
    def grant():
        head.granted.next = head.wants and not rst
        for n in range(COUNT):
            mines[n].next = turn[(n + COUNT - 1) % COUNT] and not head.wants

    @always(clk.posedge)
    def take():
        begins = modbv(0)[1:]
        for n in range(COUNT):
            if firsts[n] and hot[n]:
                begins[:] = 1
        written.first.next = begins == 1
        written.valid.next = hot[COUNT:] != 0
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

    return pick_word, pick_offset, look, grant, take, count


@block
def word_crc(clk, valid, first, data, state, *, turns: int):
    """Keep as many states as there are turns; in each clock it is the turn of the next.

    valid, first, data: a word of 8 to 64 bytes, and whether a block begins with it; bytes that are not the
    block's are 0. state u32: the CRC, not inverted, of this turn's block so far, which begins with 0.
    """
    BITS = len(data)
    COLUMNS = [step(0, 1 << i, BITS) for i in range(BITS)]
    MOVE = [step(1 << i, 0, BITS) for i in range(32)]
    rest, digest, moved = word(32), word(32), word(32)
    valid_1, valid_2, first_1, first_2 = (bit() for _ in range(4))
    later = [word(32) for _ in range(turns)]

    sums = crc_rest(clk, valid, data, rest, COLUMNS, at=0)
    move = linear_map(state, moved, MOVE)

    @always_comb
    def show():
        state.next = later[turns - 1]

    @always(clk.posedge)
    def follow():
        valid_1.next = valid
        first_1.next = first
        valid_2.next = valid_1
        first_2.next = first_1
        digest.next = rest

    @always(clk.posedge)
    def add():
        whole = modbv(0)[32:]
        whole[:] = state
        if valid_2:
            whole[:] = moved ^ digest
            if first_2:
                whole[:] = digest
        later[0].next = whole
        for i in range(1, turns):
            later[i].next = later[i - 1]

    return sums, move, show, follow, add


@block
def turn_sums(
    clk, turn, jobs: Sequence[CollectJob], offsets: Sequence, state, head: HeadLane, ended, sum_state, offset,
    absorb,
):  # fmt: skip
    """Ask for the CRC of a block that is collected to be added, in its turn, or of the head (crc_sum)."""
    COUNT = len(jobs)
    asks, summed = [job.sum for job in jobs], [job.summed for job in jobs]
    turns = [turn, *(word(COUNT) for _ in range(SUM_CLOCKS))]
    hot, asked = word(COUNT + 1), word(COUNT + 1)
    late = turns[-1]
    delays = [copied(clk, *two) for two in pairwise(turns)]
    pick = hot_tree(None, [*offsets, head.sum_at], hot, offset)

    @always_comb
    def look():
        some = modbv(0)[1:]
        for n in range(COUNT):
            hot.next[n] = asks[n] and late[n]
            if asks[n] and late[n]:
                some[:] = 1
        hot.next[COUNT] = head.sum and some == 0

    @always_comb
    def ask():
        ended.next = hot != 0
        sum_state.next = state
        if hot[COUNT]:
            sum_state.next = head.state

    @always(clk.posedge)
    def keep():
        asked.next = hot

    @always_comb
    def answer():
        for n in range(COUNT):
            summed[n].next = absorb and asked[n]
        head.summed.next = absorb and asked[COUNT]

    return delays, pick, look, ask, keep, answer


@block
def frame_builder(
    clk, rst, m_axis: Stream, bytes_in: Sequence[Stream], s_axis_raw: Stream, s_axis_head: Stream, begin,
    jobs: Sequence[CollectJob], pairs: PairJob, head: HeadJob, total: FrameSum, leaving: Leaving,
):  # fmt: skip
    """Collect blocks of bytes side by side, one of each unit, and send what was collected.

    m_axis: frames_out, each frame whole behind the one before. bytes_in: Stream(128, keep=16) of each unit;
    s_axis_raw, s_axis_head: Stream(16, keep=2). begin (strobe): a new frame. jobs: what units ask of their
    collectors. A collector writes a word of the store in its turn, so of U units each in one of U clocks, but
    for those that words of the frame's head take. rst: nothing is collected, nothing leaves.
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
    advance, read_address, left = bit(), word(BITS), word(BITS)
    lane, sum_state = HeadLane(size, BITS), word(32)
    lanes = [word(16) for _ in range(size // 2)]

    parts = [
        pair_words(clk, rst, s_axis_raw, gathered),
        pair_collect(clk, rst, pairs, gathered, jobs[0], first_job, takes),
        two_streams(bytes_in[0], gathered, takes, first_bytes),
        head_words(clk, rst, begin, s_axis_head, head, limit, nothing_left, total.crc, lane),
        turn_words(clk, rst, base, turn, mines, given, gives, firsts, offsets, lane, written),
        turn_sums(clk, turn, own_jobs, offsets, state, lane, ended, sum_state, offset, absorb),
        word_crc(clk, written.valid, written.first, written.data, state, turns=COUNT),
        crc_sum(
            clk, rst, clear=begin, ended=ended, state=sum_state, offset=offset, absorb=absorb,
            finish=total.finish, pad=total.pad, idle=total.idle, crc=total.crc, word_bytes=size,
        ),
        frame_reader(
            clk, rst, start=leaving.send, words=leaving.words, tail=leaving.tail, peer=leaving.peer,
            idle=leaving.sent, left=left, address=read_address, advance=advance, m_axis=m_axis,
        ),
        joined(lanes, m_axis.tdata),
    ]  # fmt: skip
    parts += [
        byte_collector(
            clk, rst, own_jobs[n], streams[n], mines[n], limit, nothing_left, given[n], gives[n], firsts[n],
            offsets[n],
        )
        for n in range(COUNT)
    ]  # fmt: skip
    parts += [zero(clk, job.claimed) for job in jobs[1:]]
    parts += [store_lane(clk, written, advance, read_address, lane, lane=n) for n, lane in enumerate(lanes)]

    # `limit` may be late, as `left` falls while collectors run.
    @always(clk.posedge)
    def follow():
        limit.next = FULL - left[BITS:2]
        nothing_left.next = left == 0 and not leaving.send
        if leaving.send:
            base.next = base + leaving.words
        if rst:
            base.next = 0

    return parts, follow
