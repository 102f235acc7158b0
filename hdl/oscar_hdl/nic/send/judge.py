"""Decides how each block of a frame is sent, in order, and has its bytes collected."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.asc.params import DIRECTORY_BYTES, PREFIX_BYTES
from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.coder.ports import RawJob
from oscar_hdl.nic.send.ports import (
    RESULT_BITS,
    CollectPort,
    EntryPort,
    JobLists,
    Judging,
    OpenBlocks,
    SentFrame,
)
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree

CODED, RAW, CONSTANT = 0, 1, 2  # types of blocks in the directory
MINUS = 0xFFFF  # the upper half of a negative value


@block
def judge(
    clk: Any, rst: Any, frame: SentFrame, blocks: OpenBlocks, judging: Judging, jobs: JobLists, raw: RawJob,
    raw_row: Any, collect: CollectPort, entries: EntryPort, *, collectors: int,
) -> Any:  # fmt: skip
    """Start a collector on the oldest open block, wait for the results of its job, and settle what it is.

    raw, raw_row: raw_packer's job and the first row of its block, which is for raw_packer where the encoder's
    bytes are no shorter, and where a constant block's value is asked for. rst: nothing is under way.
    """
    results = jobs.results
    CHOICES, LANE_BITS = len(collect.choice), len(collect.target)
    RAW_CHOICE = 1 << len(range(0, len(results), collectors))
    HEAD_CHOICE = RAW_CHOICE << 1
    HEAD = HEADER_BYTES + PREFIX_BYTES + DIRECTORY_BYTES
    states = enum(
        "IDLE", "READ", "START", "LAUNCH", "WITHDRAW", "LOOK", "SIZE", "DECIDE", "PROBE", "PROBED",
        "FORGET", "SETTLED",
    )  # fmt: skip
    state = Signal(states.IDLE)
    # As `foresee` has them at first: an event-driven simulator does not run it before something changes.
    begun, decided = Signal(states.LOOK), Signal(states.FORGET)
    index, base = word(8), word(len(frame.row))
    finished, result, constant, low, bits = bit(), word(RESULT_BITS), bit(), bit(), word(4)
    next_result = word(RESULT_BITS)
    seeds, first, last, coded_bytes, length = word(3), word(7), word(7), word(19), word(19)
    values, width, product, total, shorter = word(18), word(5), word(23), word(22), bit()
    free, gone, taken = bit(), bit(), bit()
    six_blocks, first_place = word(11), word(11)
    final, is_raw, for_head, probed, clocks, value = bit(), bit(), bit(), bit(), word(2), word(16)
    entry, pairs, ending = word(48), word(2), bit()

    choose_result = hot_tree(clk, results, blocks.hot, next_result)

    @always(clk.posedge)
    def choose():
        result.next = next_result

    @always_comb
    def split():
        finished.next = result[42]
        gone.next = result[42] and result[0] and not for_head
        constant.next = result[0]
        low.next = result[1]
        bits.next = result[6:2]
        seeds.next = result[9:6]
        first.next = result[16:9]
        last.next = result[23:16]
        coded_bytes.next = result[42:23]

    @always_comb
    def look():
        judging.idle.next = state == states.IDLE and not blocks.judged and pairs == 0
        collect.launch.next = state == states.LAUNCH and not gone
        value.next = 0
        if probed:
            value.next = raw.value
        elif low:
            value.next = 0xFFFF

    # A raw block's bytes: its values, as often as one has bits.
    @always(clk.posedge)
    def measure():
        final.next = index == frame.last_block
        values.next = frame.size
        if final:
            values.next = frame.last_size
        width.next = bits + 1
        product.next = values * width
        total.next = product[22:] + 7
        shorter.next = coded_bytes < total[22:3]
        length.next = coded_bytes
        if is_raw:
            length.next = total[22:3]

    @always(clk.posedge)
    def hand_raw():
        raw.start.next = False
        free.next = not collect.busy and not collect.first_busy and raw.idle
        if (state == states.PROBE or state == states.FORGET) and raw.idle:
            raw.values.next = values
            raw.width.next = bits + 1
            if constant:
                raw.width.next = 16
            raw.constant.next = constant
            raw_row.next = base
        if state == states.PROBE and raw.idle:
            raw.start.next = True
        if state == states.LAUNCH and collect.launched and is_raw and not for_head:
            raw.start.next = True
        if rst:
            raw.start.next = False

    # A block's entry goes into the directory while the next one is looked at: a pair a clock.
    @always(clk.posedge)
    def write():
        entries.write.next = pairs != 0 and not rst
        entries.last.next = ending and pairs == 1
        entries.entry.next = entry[16:]
        entry.next = entry[48:16]
        if pairs != 0:
            pairs.next = pairs - 1
        if state == states.SETTLED and not judging.failed:
            pairs.next = 3
            ending.next = final
            entry.next = concat(modbv(0)[5:], length, modbv(0)[5:], last, first, seeds, modbv(CODED)[2:])
            if is_raw:
                entry.next = concat(modbv(0)[5:], length, modbv(0)[17:], raw.width, modbv(RAW)[2:])
            if constant:
                entry.next = concat(modbv(0)[16:], value, modbv(CONSTANT)[16:])
                if value[15]:
                    entry.next = concat(modbv(MINUS)[16:], value, modbv(CONSTANT)[16:])
        if rst:
            pairs.next = 0

    @always(clk.posedge)
    def step():
        """Follow the oldest block's place in the frame."""
        blocks.judged.next = state == states.SETTLED and not rst
        blocks.settled.next = 0
        if state == states.SETTLED and not rst:
            blocks.settled.next = blocks.hot
        if state == states.SETTLED:
            judging.over.next = final
            if not constant:
                collect.place.next = collect.place + length
            base.next = base + frame.size[len(frame.size) : 5]
            index.next = index + 1
        six_blocks.next = concat(frame.last_block, modbv(0)[2:]) + concat(frame.last_block, modbv(0)[1:])
        first_place.next = six_blocks + HEAD
        if judging.failed or judging.head:
            collect.place.next = 0
        if frame.begin or rst:
            base.next = frame.row
            index.next = 0
            judging.over.next = False
            collect.place.next = first_place
        if frame.begin and frame.empty:
            collect.place.next = HEADER_BYTES

    @always_comb
    def foresee():
        """Say where LAUNCH and DECIDE lead."""
        begun.next = states.LOOK
        if for_head:
            begun.next = states.IDLE
        elif is_raw:
            begun.next = states.SETTLED
        decided.next = states.FORGET
        if judging.failed:
            decided.next = states.SETTLED
        elif constant and bits != 0:
            decided.next = states.PROBE
        elif constant or shorter:
            decided.next = states.SETTLED

    @always(clk.posedge)
    def act():
        judging.overflow.next = state == states.START and judging.full and not judging.failed
        collect.keep.next = False
        collect.drop.next = False
        collect.cancel.next = state == states.DECIDE and constant and taken
        clocks.next = 0
        if state == states.IDLE:
            taken.next = False
        elif collect.launched:
            taken.next = True
        if state == states.IDLE:
            is_raw.next = False
            probed.next = False
            for_head.next = judging.head
            collect.target.next = blocks.unit[LANE_BITS:]
            for n in range(CHOICES):
                collect.choice.next[n] = (blocks.unit >> LANE_BITS) == n
            if judging.head:
                collect.target.next = 0
                collect.choice.next = HEAD_CHOICE
        elif state == states.LAUNCH and collect.launched:
            collect.keep.next = is_raw or (for_head and collect.heading)
            collect.drop.next = for_head and not collect.heading
        elif state == states.SIZE:
            clocks.next = clocks + 1
        elif state == states.DECIDE and not constant:
            collect.keep.next = shorter and not judging.failed
            collect.drop.next = judging.failed or not shorter
            is_raw.next = not shorter
        elif state == states.PROBED:
            probed.next = True
        elif state == states.FORGET and free:
            collect.target.next = 0
            collect.choice.next = RAW_CHOICE

    @always(clk.posedge)
    def sequence():
        if state == states.IDLE:
            if judging.head:
                state.next = states.LAUNCH
            elif judging.run and blocks.ready and not blocks.judged and not judging.over:
                state.next = states.READ
        elif state == states.READ:
            state.next = states.START
        elif state == states.START:
            if gone:
                state.next = states.LOOK
            elif judging.failed or not judging.full:
                state.next = states.LAUNCH
        elif state == states.LAUNCH:
            if collect.launched:
                state.next = begun
            elif gone:
                state.next = states.WITHDRAW
        elif state == states.WITHDRAW:
            state.next = states.LOOK
        elif state == states.LOOK:
            if finished:
                state.next = states.SIZE
        elif state == states.SIZE:
            if clocks == 2:
                state.next = states.DECIDE
        elif state == states.DECIDE:
            state.next = decided
        elif state == states.PROBE:
            if raw.idle:
                state.next = states.PROBED
        elif state == states.PROBED:
            if raw.done:
                state.next = states.SETTLED
        elif state == states.FORGET:
            if free:
                state.next = states.LAUNCH
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return choose_result, choose, split, look, measure, hand_raw, write, step, foresee, act, sequence
