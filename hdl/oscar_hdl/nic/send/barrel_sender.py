"""Sends frames: has blocks coded, collects them behind header and directory, and lets the whole go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import Signal, always, always_comb, block, enum, modbv

from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.coder.barrel_encode.ports import BarrelDrain, BarrelEncoderJob
from oscar_hdl.coder.ports import RawJob, SourcePort, TablesPort
from oscar_hdl.coder.tables.learn_turn import learn_turn
from oscar_hdl.nic.ports import BankBlock, FrameCommand, TopPort
from oscar_hdl.nic.send.barrel_builder import barrel_builder
from oscar_hdl.nic.send.barrel_dealer import barrel_dealer
from oscar_hdl.nic.send.barrel_judge import barrel_judge
from oscar_hdl.nic.send.barrel_ports import CollectJob, DealtBlock, Judging, PairJob, SettledBlock, UnitRing
from oscar_hdl.nic.send.head_writer import HeadFields, head_writer
from oscar_hdl.nic.send.ports import EntryPort, FrameSum, Leaving, PlannedFrame, SentFrame
from oscar_hdl.nic.send.raw_packer import raw_packer
from oscar_hdl.nic.send.send_front import send_front
from oscar_hdl.nic.send.unit_ring import unit_ring
from oscar_hdl.streams.bundles import Stream, bit, word

TOO_LONG, DESCRIPTOR = 4, 5  # FrameCommand.error


class EncodeUnits:
    """What a sender has of its units: lists with one of each, and of raw_packer its source and first row.

    jobs: BarrelEncoderJob. drains: BarrelDrain. streams: Stream(128, keep=16), bytes. blocks: BankBlock.
    """

    def __init__(
        self, jobs: Sequence[BarrelEncoderJob], drains: Sequence[BarrelDrain], streams: Sequence[Stream],
        blocks: Sequence[BankBlock], source: SourcePort, raw_row: Any,
    ) -> None:  # fmt: skip
        self.jobs, self.drains, self.streams, self.blocks = jobs, drains, streams, blocks
        self.source, self.raw_row = source, raw_row


@block
def barrel_sender(
    clk: Any, rst: Any, m_axis_tx: Stream, command: FrameCommand, row: Any, top: TopPort, tables: TablesPort,
    units: EncodeUnits, *, bus_bits: int = 64, store_log2: int = 12, block_log2: int = 0,
) -> Any:  # fmt: skip
    """Run two FrameCommands at a time: one is planned and dealt while the other is coded and collected.

    m_axis_tx: frames_out(bus_bits), a frame without a pause. row: the first row of the frame in the memory.
    top: TopPort, of which row and count are the command's. Block b of memory is for unit b modulo their
    number.

    bus_bits: 64, 128, 256 or 512; store_log2: words of bus_bits in the store; the longest frame has less than
    four words less. block_log2: see bank_place.
    """
    count = len(units.jobs)
    if bus_bits not in (64, 128, 256, 512):
        raise ValueError(f"bus_bits is 64, 128, 256 or 512, got {bus_bits}")
    if not 6 <= store_log2 <= 16:
        raise ValueError(f"store_log2 is 6 to 16, got {store_log2}")
    if count not in (1, 2, 4, 8) or not count == len(units.drains) == len(units.streams) == len(units.blocks):
        raise ValueError(
            f"expected 1, 2, 4 or 8 units with a drain, a stream and a BankBlock each, got {count} jobs, "
            f"{len(units.drains)} drains, {len(units.streams)} streams and {len(units.blocks)} BankBlocks"
        )
    BYTES_LOG2 = (bus_bits // 8).bit_length() - 1
    FRAME_BITS = store_log2 + BYTES_LOG2
    PLACE_BITS = max(FRAME_BITS, 19) + 1
    states = enum(
        "IDLE", "TAKE", "TAKEN", "BEGIN", "BEGUN", "BLOCKS", "REST", "CLOSE", "HEAD", "PAD", "TOP", "HAND",
        "DONE",
    )  # fmt: skip
    state = Signal(states.IDLE)
    frame, coded = PlannedFrame(), SentFrame(len(row))
    fields, length = HeadFields(), word(PLACE_BITS)
    ask, owed, blocked, begun, deal, dealing = bit(), bit(), bit(), bit(), bit(), bit()
    dealt, settled = DealtBlock(len(row) - count.bit_length() + 1), SettledBlock(PLACE_BITS)
    rings, collects = [UnitRing() for _ in range(count)], [CollectJob(PLACE_BITS) for _ in range(count)]
    judging, pairs, entries = Judging(PLACE_BITS), PairJob(PLACE_BITS), EntryPort()
    total, leaving = FrameSum(BYTES_LOG2), Leaving(store_log2, BYTES_LOG2)
    heading, resting, rests = bit(), bit(), [ring.resting for ring in rings]
    raw, raw_stream, head_stream = RawJob(), Stream(16, keep=2), Stream(16, keep=2)

    parts = [
        unit_ring(
            clk, rst, units.jobs[n], units.blocks[n], units.drains[n], dealt, rings[n], settled, collects[n]
        )
        for n in range(count)
    ]
    parts += [
        send_front(clk, rst, command, top, tables, blocked, dealing, begun, frame),
        learn_turn(
            clk, rst, tables, ask=ask, bank=coded.bank, failed=judging.failed, owed=owed,
            next_bank=frame.bank, blocked=blocked,
        ),
        barrel_dealer(
            clk, rst, start=deal, row=row, frame=frame, busy=dealing, dealt=dealt, rings=rings,
            block_log2=block_log2,
        ),
        barrel_judge(
            clk, rst, frame=coded, rings=rings, judging=judging, head=pairs.head, settled=settled, raw=raw,
            raw_row=units.raw_row, pairs=pairs, entries=entries, block_log2=block_log2,
            store_bits=store_log2, size_bits=BYTES_LOG2,
        ),
        raw_packer(clk, rst, raw, units.source, raw_stream),
        head_writer(
            clk, rst, clear=coded.begin, entries=entries, fields=fields, length=length, crc=total.crc,
            start=pairs.head, final=pairs.final, m_axis=head_stream,
        ),
        barrel_builder(
            clk, rst, m_axis_tx, bytes_in=units.streams, s_axis_raw=raw_stream, s_axis_head=head_stream,
            clear=coded.begin, jobs=collects, pairs=pairs, total=total, leaving=leaving, heading=heading,
        ),
    ]  # fmt: skip

    @always_comb
    def look():
        judging.run.next = state == states.BLOCKS and not coded.empty
        pairs.final.next = state == states.TOP
        total.finish.next = state == states.HEAD and resting and not pairs.head
        leaving.send.next = state == states.HAND and leaving.sent
        frame.taken.next = state == states.TAKE
        ask.next = state == states.CLOSE and not coded.empty
        deal.next = begun and not frame.empty
        heading.next = state == states.HEAD or state == states.TOP

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
            coded.width.next = command.width
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
        """Keep how long the frame is, and whether all is collected."""
        all_rest = modbv(1)[1:]
        for n in range(count):
            if not rests[n]:
                all_rest[:] = 0
        resting.next = all_rest == 1 and pairs.idle and total.idle and not pairs.head and raw.idle
        if state == states.CLOSE:
            length.next = judging.place - HEADER_BYTES
            leaving.words.next = judging.place[FRAME_BITS:BYTES_LOG2]
            if judging.place[BYTES_LOG2:] != 0:
                leaving.words.next = judging.place[FRAME_BITS:BYTES_LOG2] + 1
            leaving.tail.next = judging.place[BYTES_LOG2:]
            total.pad.next = ~judging.place[BYTES_LOG2:] + 1

    @always(clk.posedge)
    def strobe():
        coded.begin.next = state == states.BEGIN and not rst
        pairs.head.next = not rst and (
            (state == states.CLOSE and not judging.failed) or (state == states.PAD and total.idle)
        )
        command.done.next = state == states.DONE and not rst
        command.error.next = 0
        if judging.wrong:
            command.error.next = DESCRIPTOR
        elif judging.long:
            command.error.next = TOO_LONG

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
        elif state == states.REST:  # the head is collected beside the last blocks
            if judging.idle and (resting or (pairs.idle and not judging.failed)):
                state.next = states.CLOSE
        elif state == states.CLOSE:
            state.next = states.HEAD
            if judging.failed:
                state.next = states.DONE
        elif state == states.HEAD:
            if resting and not pairs.head:
                state.next = states.PAD
        elif state == states.PAD:
            if total.idle:
                state.next = states.TOP
        elif state == states.TOP:
            if resting and not pairs.head:
                state.next = states.HAND
        elif state == states.HAND:
            if leaving.sent:
                state.next = states.DONE
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return parts, look, take, watch, strobe, sequence
