"""Sends frames: has blocks coded, collects them behind header and directory, and lets the whole go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import Signal, always, always_comb, block, enum, modbv

from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.coder.ports import RawJob
from oscar_hdl.coder.tables.learn_turn import learn_turn
from oscar_hdl.nic.first_unit import unit_word
from oscar_hdl.nic.send.dealer import dealer
from oscar_hdl.nic.send.frame_builder import frame_builder
from oscar_hdl.nic.send.head_writer import HeadFields, head_writer
from oscar_hdl.nic.send.judge import RESULT_BITS, job_port, judge
from oscar_hdl.nic.send.raw_packer import raw_packer
from oscar_hdl.nic.send.send_front import PlannedFrame, send_front
from oscar_hdl.streams.bundles import Stream, bit, word

TOO_LONG, DESCRIPTOR = 4, 5  # FrameCommand.error


@block
def sender(
    clk: Any, rst: Any, m_axis_tx: Any, command: Any, row: Any, tables: Any, jobs: Sequence[Any],
    bytes_in: Sequence[Any], bases: Sequence[Any], source: Any, *, bus_bits: int = 64, store_log2: int = 12,
) -> Any:  # fmt: skip
    """Run two FrameCommands at a time: one is planned and dealt while the other is coded and collected.

    m_axis_tx: Stream(bus_bits, keep=bus_bits / 8), a frame without a pause. row: the first row of the frame
    in the memory, and bases: that of each unit's block; as wide as row.
    tables: TablesPort. jobs: E EncoderJobs; bytes_in: E Stream(16, keep=2) from the encoders. An encoder is
    not idle in the clock after start; its stream ends with tlast, also if it was bad, but if the block is
    constant it gives nothing. source: SourcePort of raw_packer, unit E.

    bus_bits: 64, 128, 256 or 512; store_log2: words of bus_bits in the store; the longest frame has less than
    four words less.
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
    starts, banks = ([bit() for _ in range(units)] for _ in range(2))
    idles, bads, thinnings = ([word(n) for _ in range(units)] for n in (1, 2, 2))
    values, rows = [word(18) for _ in range(units)], [word(len(row)) for _ in range(units)]
    results = [word(RESULT_BITS) for _ in range(units)]

    states = enum(
        "IDLE",
        "TAKE",
        "TAKEN",
        "BEGIN",
        "BEGUN",
        "BLOCKS",
        "REST",
        "CLOSE",
        "HEAD",
        "PAD",
        "TOP",
        "HAND",
        "DONE",
    )
    state = Signal(states.IDLE)
    bank, empty, failed, error, bad, wrong = bit(), bit(), bit(), word(5), word(2), word(2)
    excess, exceeded = bit(), bit()
    frame, fields, first_row, length = PlannedFrame(units), HeadFields(), word(len(row)), word(PLACE_BITS)
    first = unit_word(units)
    last_block, block_size, last_size = word(8), word(18), word(18)
    ask, owed, blocked, begun, deal, dealing = bit(), bit(), bit(), bit(), bit(), bit()
    begin, run, judged, settled, open_blocks = bit(), bit(), bit(), word(units), word(units.bit_length())
    over, judging, overflow, full = bit(), bit(), bit(), bit()
    head, final, place, write, entry, entry_last = bit(), bit(), word(PLACE_BITS), bit(), word(16), bit()
    launch, target, choice = (
        bit(),
        word(max(1, (collectors - 1).bit_length())),
        word(choices),
    )
    keep, drop, cancel, launched, busy, first_busy = (bit() for _ in range(6))
    heading, resting, finish, pad, crc, crc_idle = bit(), bit(), bit(), word(BYTES_LOG2), word(32), bit()
    send, words, tail, sent = bit(), word(store_log2), word(BYTES_LOG2), bit()
    raw, raw_stream, head_stream = RawJob(), Stream(16, keep=2), Stream(16, keep=2)

    ports = [
        job_port(job, base, *fields)
        for job, base, *fields in zip(
            jobs, bases[:units], starts, values, rows, banks, thinnings, idles, bads, results, strict=True
        )
    ]
    front = send_front(clk, rst, command, row, tables, blocked, dealing, begun, frame, units=units)
    learn = learn_turn(clk, rst, tables, ask, bank, failed, owed, frame.bank, blocked)
    hand_out = dealer(
        clk, rst, deal, row, frame, dealing, judged, settled, starts, values, rows, banks, thinnings, idles,
        open_blocks,
    )  # fmt: skip
    settle = judge(
        clk, rst, begin, first_row, first, empty, run, failed, overflow, open_blocks, last_block, block_size,
        last_size, judged, settled, over, judging, results, raw, bases[units], head, heading, place, full,
        launch, target, choice, keep, drop, cancel, launched, busy, first_busy, write, entry, entry_last,
        collectors=collectors,
    )  # fmt: skip
    pack = raw_packer(
        clk, rst, raw, sent, source, raw_stream, depth_log2=max(4, (bus_bits // 16 + 7).bit_length())
    )
    top = head_writer(
        clk, rst, begin, write, entry, entry_last, fields, length, crc, head, final, head_stream
    )
    builder = frame_builder(
        clk, rst, m_axis_tx, bytes_in, raw_stream, head_stream, begin, launch, target, choice, keep, drop,
        cancel, place, heading, launched, busy, first_busy, resting, finish, pad, crc, crc_idle, send, words,
        tail, sent, collectors=collectors,
    )  # fmt: skip

    @always_comb
    def look():
        run.next = state == states.BLOCKS and not empty
        final.next = state == states.TOP
        finish.next = state == states.HEAD and judging and resting and not head
        send.next = state == states.HAND and sent

    @always_comb
    def tell():
        frame.taken.next = state == states.TAKE
        ask.next = state == states.CLOSE and not empty
        deal.next = begun and not frame.empty
        excess.next = overflow or (state == states.REST and full)

    @always(clk.posedge)
    def take():
        """Keep what the first stage knows of the frame, to go on with the next."""
        if state == states.TAKE:
            bank.next = frame.bank
            empty.next = frame.empty
            last_block.next = frame.last_block
            block_size.next = frame.size
            last_size.next = frame.last_size
            first_row.next = row
            first.next = frame.first
            fields.step.next = command.step
            fields.chunk.next = command.chunk
            fields.sub.next = command.sub
            fields.width.next = command.width
            fields.sequence.next = command.sequence
            fields.count.next = command.count
            fields.checksum.next = frame.checksum
            fields.last.next = command.last
            fields.block_log2.next = command.block_log2

    @always(clk.posedge)
    def watch():
        """Keep errors, and how long the frame is."""
        full.next = place[FRAME_BITS : BYTES_LOG2 + 2] == FULL or place[PLACE_BITS:FRAME_BITS] != 0
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
        failed.next = excess or exceeded or (wrong[1] and bank) or (wrong[0] and not bank)
        error.next = 0
        if (wrong[1] and bank) or (wrong[0] and not bank):
            error.next = DESCRIPTOR
        elif exceeded:
            error.next = TOO_LONG
        heading.next = state == states.CLOSE or state == states.HEAD
        if state == states.CLOSE:
            length.next = place - HEADER_BYTES
            words.next = place[FRAME_BITS:BYTES_LOG2]
            if place[BYTES_LOG2:] != 0:
                words.next = place[FRAME_BITS:BYTES_LOG2] + 1
            tail.next = place[BYTES_LOG2:]
            pad.next = ~place[BYTES_LOG2:] + 1

    @always(clk.posedge)
    def strobe():
        begin.next = state == states.BEGIN
        head.next = (state == states.CLOSE and not failed) or (state == states.PAD and crc_idle)
        command.done.next = state == states.DONE
        command.error.next = error
        if rst:
            begin.next = False
            head.next = False
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
            if empty or (over and judging):
                state.next = states.REST
        elif state == states.REST:
            if judging and resting and raw.idle:
                state.next = states.CLOSE
        elif state == states.CLOSE:
            state.next = states.HEAD
            if failed:
                state.next = states.DONE
        elif state == states.HEAD:
            if judging and resting and not head:
                state.next = states.PAD
        elif state == states.PAD:
            if crc_idle:
                state.next = states.TOP
        elif state == states.TOP:
            if judging and resting and not head:
                state.next = states.HAND
        elif state == states.HAND:
            if sent:
                state.next = states.DONE
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    parts = ports, front, learn, hand_out, settle, pack, top, builder
    return parts, look, tell, take, watch, strobe, sequence
