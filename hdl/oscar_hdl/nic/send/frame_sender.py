"""Sends frames: has blocks coded, collects them behind header and directory, and lets the whole go."""

from collections.abc import Sequence

from myhdl import Signal, always, always_comb, block, enum, modbv

from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.coder.encode.ports import DrainPort, EncoderJob
from oscar_hdl.coder.ports import BANK_BITS, RawJob, SourcePort, TablesPort, banks_of
from oscar_hdl.coder.tables.learn_turn import learn_turn
from oscar_hdl.nic.ports import BankBlock, FrameCommand, TopPort, check_block
from oscar_hdl.nic.send import ports
from oscar_hdl.nic.send.block_judge import block_judge
from oscar_hdl.nic.send.encode_dealer import encode_dealer
from oscar_hdl.nic.send.frame_builder import frame_builder
from oscar_hdl.nic.send.frame_queue import frame_queue
from oscar_hdl.nic.send.head_writer import HeadFields, head_writer
from oscar_hdl.nic.send.raw_packer import raw_packer
from oscar_hdl.nic.send.send_front import send_front
from oscar_hdl.nic.send.unit_ring import unit_ring
from oscar_hdl.streams.balance import balance
from oscar_hdl.streams.bundles import Stream, bit, word

TOO_LONG, DESCRIPTOR = 4, 5  # FrameCommand.error


class EncodeUnits:
    """What a sender has of its units: lists with one of each, and of raw_packer its source and first row.

    jobs: EncoderJob. drains: DrainPort. streams: Stream(128, keep=16), bytes. blocks: BankBlock.
    """

    def __init__(
        self, jobs: Sequence[EncoderJob], drains: Sequence[DrainPort], streams: Sequence[Stream],
        blocks: Sequence[BankBlock], source: SourcePort, raw_row,
    ) -> None:  # fmt: skip
        self.jobs, self.drains, self.streams, self.blocks = jobs, drains, streams, blocks
        self.source, self.raw_row = source, raw_row


@block
def frame_sender(
    clk, rst, m_axis_tx: Stream, command: FrameCommand, row, top: TopPort, tables: TablesPort,
    units: EncodeUnits, *, bus_bits: int = 64, store_log2: int = 12, block_log2: int = 12,
):  # fmt: skip
    """Run FrameCommands side by side: one is planned, those before are coded, the oldest is collected.

    m_axis_tx: frames_out(bus_bits), a frame without a pause. row: the first row of the frame in the memory.
    top: its row and count are the command's. store_log2: of words of bus_bits in the store; the longest frame
    has less than four words less. block_log2: of all frames.
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
    check_block(block_log2)
    frames = banks_of(count)
    BYTES_LOG2 = (bus_bits // 8).bit_length() - 1
    FRAME_BITS = store_log2 + BYTES_LOG2
    PLACE_BITS = max(FRAME_BITS, 19) + 1
    states = enum(
        "IDLE", "TAKE", "TAKEN", "BEGIN", "BEGUN", "BLOCKS", "CLOSE", "COLLECT", "FINISH", "PAD", "SEAL",
        "SEALED", "HAND", "DONE",
    )  # fmt: skip
    state = Signal(states.IDLE)
    frame, coded = ports.PlannedFrame(), ports.SentFrame(len(row))
    fields, head = HeadFields(), ports.HeadJob(PLACE_BITS)
    ask, owed, blocked, begun, deal, dealing, take, some, crowded = (bit() for _ in range(9))
    under_way = word(BANK_BITS + 1)  # frames behind the first stage
    dealt, settled = ports.DealtBlock(len(row) - count.bit_length() + 1), ports.SettledBlock(PLACE_BITS)
    rings = [ports.UnitRing() for _ in range(count)]
    collects = [ports.CollectJob(PLACE_BITS) for _ in range(count)]
    judging, pairs, entries = ports.Judging(PLACE_BITS), ports.PairJob(PLACE_BITS), ports.EntryPort()
    total, leaving = ports.FrameSum(BYTES_LOG2), ports.Leaving(store_log2, BYTES_LOG2)
    drained, rests = bit(), [ring.drained for ring in rings]
    raw, raw_stream, head_stream = RawJob(), Stream(16, keep=2), Stream(16, keep=2)

    parts = [
        unit_ring(
            clk, rst, units.jobs[n], units.blocks[n], units.drains[n], dealt, rings[n], settled, collects[n]
        )
        for n in range(count)
    ]
    parts += [
        send_front(
            clk, rst, command, top, tables, crowded, blocked, dealing, begun, frame, frames=frames,
            block_log2=block_log2,
        ),
        frame_queue(
            clk, rst, put=begun, command=command, row=row, last=top.symbol, frame=frame, take=take,
            some=some, coded=coded, fields=fields, peer=leaving.peer, frames=frames,
        ),
        learn_turn(
            clk, rst, tables, ask=ask, bank=coded.bank, failed=judging.failed, owed=owed,
            next_bank=frame.bank, blocked=blocked,
        ),
        encode_dealer(
            clk, rst, start=deal, row=row, frame=frame, busy=dealing, dealt=dealt, rings=rings,
            block_log2=block_log2,
        ),
        block_judge(
            clk, rst, frame=coded, rings=rings, judging=judging, settled=settled, raw=raw,
            raw_row=units.raw_row, pairs=pairs, entries=entries, block_log2=block_log2,
            store_bits=store_log2, size_bits=BYTES_LOG2,
        ),
        balance(clk, rst, begun, command.done, under_way),
        raw_packer(clk, rst, raw, units.source, raw_stream),
        head_writer(
            clk, rst, begin=coded.begin, entries=entries, fields=fields, m_axis=head_stream,
            block_log2=block_log2,
        ),
        frame_builder(
            clk, rst, m_axis_tx, bytes_in=units.streams, s_axis_raw=raw_stream, s_axis_head=head_stream,
            begin=coded.begin, jobs=collects, pairs=pairs, head=head, total=total, leaving=leaving,
        ),
    ]  # fmt: skip

    @always_comb
    def look():
        judging.run.next = state == states.BLOCKS and not coded.empty
        total.finish.next = state == states.FINISH
        head.seal.next = state == states.SEAL
        leaving.send.next = state == states.HAND and leaving.sent
        take.next = state == states.TAKE
        ask.next = state == states.CLOSE and not coded.empty
        deal.next = begun and not frame.empty
        # What is learnt of a bank is asked for before its next build.
        crowded.next = under_way == frames or (owed and coded.bank == frame.bank)

    @always(clk.posedge)
    def watch():
        """Keep how long the frame is, and whether all is collected."""
        all_rest = modbv(1)[1:]
        for n in range(count):
            if not rests[n]:
                all_rest[:] = 0
        drained.next = all_rest == 1 and pairs.idle and total.idle and raw.idle
        if not head.over and not judging.failed:
            drained.next = False
        if state == states.CLOSE:
            head.length.next = judging.place - HEADER_BYTES
            leaving.words.next = judging.place[FRAME_BITS:BYTES_LOG2]
            if judging.place[BYTES_LOG2:] != 0:
                leaving.words.next = judging.place[FRAME_BITS:BYTES_LOG2] + 1
            leaving.tail.next = judging.place[BYTES_LOG2:]
            total.pad.next = ~judging.place[BYTES_LOG2:] + 1

    @always(clk.posedge)
    def strobe():
        coded.begin.next = state == states.BEGIN and not rst
        head.close.next = state == states.CLOSE and not judging.failed and not rst
        command.done.next = state == states.DONE and not rst
        command.error.next = 0
        if judging.wrong:
            command.error.next = DESCRIPTOR
        elif judging.long:
            command.error.next = TOO_LONG

    @always(clk.posedge)
    def sequence():
        if state == states.IDLE:
            if some and not owed:
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
                state.next = states.CLOSE
        elif state == states.CLOSE:
            state.next = states.COLLECT
        elif state == states.COLLECT:  # the last blocks, and the head's part of the CRC
            if drained:
                state.next = states.FINISH
                if judging.failed:
                    state.next = states.DONE
        elif state == states.FINISH:
            state.next = states.PAD
        elif state == states.PAD:
            if total.idle:
                state.next = states.SEAL
        elif state == states.SEAL:
            state.next = states.SEALED
        elif state == states.SEALED:
            if head.idle:
                state.next = states.HAND
        elif state == states.HAND:
            if leaving.sent:
                state.next = states.DONE
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return parts, look, watch, strobe, sequence
