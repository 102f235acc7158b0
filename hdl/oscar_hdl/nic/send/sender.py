"""Sends frames: has blocks coded, collects them behind header and directory, and lets the whole go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.coder.ports import EncoderJob, RawJob
from oscar_hdl.coder.tables.learn_turn import learn_turn
from oscar_hdl.nic.ports import TopPort
from oscar_hdl.nic.send.dealer import dealer
from oscar_hdl.nic.send.frame_builder import frame_builder
from oscar_hdl.nic.send.head_writer import HeadFields, head_writer
from oscar_hdl.nic.send.judge import judge
from oscar_hdl.nic.send.ports import (
    RESULT_BITS,
    CollectPort,
    EntryPort,
    FrameSum,
    JobLists,
    Judging,
    Leaving,
    OpenBlocks,
    PlannedFrame,
    SentFrame,
)
from oscar_hdl.nic.send.raw_packer import raw_packer
from oscar_hdl.nic.send.send_front import send_front
from oscar_hdl.streams.bundles import Stream, bit, word

TOO_LONG, DESCRIPTOR = 4, 5  # FrameCommand.error
KEPT = RESULT_BITS - 1


@block
def job_port(
    clk: Any, rst: Any, job: EncoderJob, base: Any, lists: JobLists, settled: Any, *, index: int
) -> Any:  # fmt: skip
    """Connect an encoder's job and its block's first row with the lists; keep a result until it is settled.

    So an encoder has two open blocks: one that it codes, or has coded, and the one before.
    """
    start, values, row, bank = lists.starts[index], lists.values[index], lists.rows[index], lists.banks[index]
    thinning, idle, bads = lists.thinnings[index], lists.idles[index], lists.bads[index]
    result, keeps, INDEX, ended = lists.results[index], lists.keeps[index], index, bit()

    @always_comb
    def connect():
        job.start.next = start
        job.values.next = values
        job.bank.next = bank
        job.thinning.next = thinning
        base.next = row
        idle.next = job.idle
        bads.next[0] = job.done and job.bad and not bank
        bads.next[1] = job.done and job.bad and bank

    @always(clk.posedge)
    def keep():
        ended.next = (ended and result[KEPT]) or job.done
        keeps.next = ended and not result[KEPT] and not rst
        if not result[KEPT]:
            result.next = concat(
                ended, job.bytes, job.last, job.first, job.seeds, job.bits, job.value[0], job.constant
            )
        if settled[INDEX] or rst:
            result.next[KEPT] = False
        if rst:
            ended.next = False

    return connect, keep


@block
def sender(
    clk: Any, rst: Any, m_axis_tx: Any, command: Any, row: Any, top: TopPort, tables: Any,
    jobs: Sequence[Any], bytes_in: Sequence[Any], bases: Sequence[Any], source: Any, *, bus_bits: int = 64,
    store_log2: int = 12, block_log2: int = 0, banks: int = 1,
) -> Any:  # fmt: skip
    """Run two FrameCommands at a time: one is planned and dealt while the other is coded and collected.

    m_axis_tx: frames_out(bus_bits), a frame without a pause. row: the first row of the frame
    in the memory, and bases: that of each unit's block; as wide as row.
    top: TopPort, of which row and count are the command's. tables: TablesPort. jobs: E EncoderJobs; bytes_in:
    E Stream(16, keep=2) from the encoders. An encoder is not idle in the clock after start; its stream ends
    with tlast, also if it was bad, but if the block is constant it gives nothing. source: SourcePort of
    raw_packer, unit E.

    bus_bits: 64, 128, 256 or 512; store_log2: words of bus_bits in the store; the longest frame has less than
    four words less. block_log2, banks: see unit_choice.
    """
    if bus_bits not in (64, 128, 256, 512):
        raise ValueError(f"bus_bits is 64, 128, 256 or 512, got {bus_bits}")
    if not 6 <= store_log2 <= 16:
        raise ValueError(f"store_log2 is 6 to 16, got {store_log2}")
    if not 1 <= len(jobs) == len(bytes_in) == len(bases) - 1 <= 128:
        raise ValueError(
            f"expected 1 to 128 jobs, as many streams and one base more, "
            f"got {len(jobs)}, {len(bytes_in)} and {len(bases)}"
        )
    units = len(jobs)
    size = bus_bits // 8
    collectors = min(units, bus_bits // 16)
    BYTES_LOG2 = size.bit_length() - 1
    FRAME_BITS = store_log2 + BYTES_LOG2
    PLACE_BITS = max(FRAME_BITS, 19) + 1
    FULL = (1 << (store_log2 - 2)) - 1
    choices = len(range(0, units, collectors)) + 2
    lists = JobLists(units, len(row))
    bads = lists.bads

    states = enum(
        "IDLE", "TAKE", "TAKEN", "BEGIN", "BEGUN", "BLOCKS", "REST", "CLOSE", "HEAD", "PAD", "TOP", "HAND",
        "DONE",
    )  # fmt: skip
    state = Signal(states.IDLE)
    error, bad, wrong, excess, exceeded = word(5), word(2), word(2), bit(), bit()
    frame, coded = PlannedFrame(), SentFrame(len(row))
    fields, length = HeadFields(), word(PLACE_BITS)
    ask, owed, blocked, begun, deal, dealing = bit(), bit(), bit(), bit(), bit(), bit()
    blocks, judging, entries, final = OpenBlocks(units), Judging(), EntryPort(), bit()
    collect, total = CollectPort(collectors, choices, PLACE_BITS), FrameSum(BYTES_LOG2)
    leaving, resting = Leaving(store_log2, BYTES_LOG2), bit()
    raw, raw_stream, head_stream = RawJob(), Stream(16, keep=2), Stream(16, keep=2)

    ports = [
        job_port(clk, rst, jobs[n], bases[n], lists, blocks.settled, index=n) for n in range(units)
    ]  # fmt: skip
    front = send_front(clk, rst, command, top, tables, blocked, dealing, begun, frame)
    learn = learn_turn(
        clk, rst, tables, ask=ask, bank=coded.bank, failed=judging.failed, owed=owed, next_bank=frame.bank,
        blocked=blocked,
    )  # fmt: skip
    hand_out = dealer(
        clk, rst, start=deal, row=row, frame=frame, busy=dealing, blocks=blocks, jobs=lists, banks=banks,
        block_log2=block_log2,
    )  # fmt: skip
    settle = judge(
        clk, rst, frame=coded, blocks=blocks, judging=judging, jobs=lists, raw=raw, raw_row=bases[units],
        collect=collect, entries=entries, collectors=collectors,
    )  # fmt: skip
    pack = raw_packer(
        clk, rst, raw, leaving.sent, source, raw_stream, depth_log2=max(4, (bus_bits // 16 + 7).bit_length())
    )
    write_head = head_writer(
        clk, rst, clear=coded.begin, entries=entries, fields=fields, length=length, crc=total.crc,
        start=judging.head, final=final, m_axis=head_stream,
    )  # fmt: skip
    builder = frame_builder(
        clk, rst, m_axis_tx, units=bytes_in, raw=raw_stream, head=head_stream, clear=coded.begin,
        collect=collect, total=total, leaving=leaving, resting=resting, collectors=collectors,
    )  # fmt: skip

    @always_comb
    def look():
        judging.run.next = state == states.BLOCKS and not coded.empty
        final.next = state == states.TOP
        total.finish.next = state == states.HEAD and judging.idle and resting and not judging.head
        leaving.send.next = state == states.HAND and leaving.sent

    @always_comb
    def tell():
        frame.taken.next = state == states.TAKE
        ask.next = state == states.CLOSE and not coded.empty
        deal.next = begun and not frame.empty
        excess.next = judging.overflow or (state == states.REST and judging.full)

    @always(clk.posedge)
    def take():
        """Keep what the first stage knows of the frame, to go on with the next."""
        if state == states.TAKE:
            coded.bank.next = frame.bank
            coded.empty.next = frame.empty
            coded.last_block.next = frame.last_block
            coded.size.next = frame.size
            coded.last_size.next = frame.last_size
            coded.row.next = row
            fields.step.next = command.step
            fields.chunk.next = command.chunk
            fields.sub.next = command.sub
            fields.width.next = command.width
            fields.sequence.next = command.sequence
            fields.count.next = command.count
            fields.checksum.next = frame.checksum
            fields.last.next = top.symbol
            fields.block_log2.next = command.block_log2
            leaving.peer.next = command.peer

    @always(clk.posedge)
    def watch():
        """Keep errors, and how long the frame is."""
        judging.full.next = (
            collect.place[FRAME_BITS : BYTES_LOG2 + 2] == FULL or collect.place[PLACE_BITS:FRAME_BITS] != 0
        )
        any_bad = modbv(0)[2:]
        for i in range(units):
            any_bad[:] = any_bad | bads[i]
        bad.next = any_bad
        for b in range(2):
            if bad[b]:
                wrong.next[b] = True
            if begun and frame.bank == b:
                wrong.next[b] = False
        if excess:
            exceeded.next = True
        if state == states.TAKE:
            exceeded.next = False
        judging.failed.next = excess or exceeded or (wrong[1] and coded.bank) or (wrong[0] and not coded.bank)
        error.next = 0
        if (wrong[1] and coded.bank) or (wrong[0] and not coded.bank):
            error.next = DESCRIPTOR
        elif exceeded:
            error.next = TOO_LONG
        collect.heading.next = state == states.CLOSE or state == states.HEAD
        if state == states.CLOSE:
            length.next = collect.place - HEADER_BYTES
            leaving.words.next = collect.place[FRAME_BITS:BYTES_LOG2]
            if collect.place[BYTES_LOG2:] != 0:
                leaving.words.next = collect.place[FRAME_BITS:BYTES_LOG2] + 1
            leaving.tail.next = collect.place[BYTES_LOG2:]
            total.pad.next = ~collect.place[BYTES_LOG2:] + 1

    @always(clk.posedge)
    def strobe():
        coded.begin.next = state == states.BEGIN
        judging.head.next = (state == states.CLOSE and not judging.failed) or (
            state == states.PAD and total.idle
        )
        command.done.next = state == states.DONE
        command.error.next = error
        if rst:
            coded.begin.next = False
            judging.head.next = False
            command.done.next = False

    @always(clk.posedge)
    def sequence():
        if state == states.IDLE:
            if frame.ready and not owed:
                state.next = states.TAKE
        elif state == states.TAKE:
            state.next = states.TAKEN
        elif state == states.TAKEN:  # the judge adds up where the first block goes
            state.next = states.BEGIN
        elif state == states.BEGIN:
            state.next = states.BEGUN
        elif state == states.BEGUN:
            state.next = states.BLOCKS
        elif state == states.BLOCKS:
            if coded.empty or (judging.over and judging.idle):
                state.next = states.REST
        elif state == states.REST:
            if judging.idle and resting and raw.idle:
                state.next = states.CLOSE
        elif state == states.CLOSE:
            state.next = states.HEAD
            if judging.failed:
                state.next = states.DONE
        elif state == states.HEAD:
            if judging.idle and resting and not judging.head:
                state.next = states.PAD
        elif state == states.PAD:
            if total.idle:
                state.next = states.TOP
        elif state == states.TOP:
            if judging.idle and resting and not judging.head:
                state.next = states.HAND
        elif state == states.HAND:
            if leaving.sent:
                state.next = states.DONE
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    parts = ports, front, learn, hand_out, settle, pack, write_head, builder
    return parts, look, tell, take, watch, strobe, sequence
