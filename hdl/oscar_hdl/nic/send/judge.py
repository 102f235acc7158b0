"""Decides how each block of a frame is sent, in order, and has its bytes collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.asc.params import DIRECTORY_BYTES, PREFIX_BYTES
from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree

RESULT_BITS = 43


@block
def job_port(
    job: Any, base: Any, start: Any, values: Any, row: Any, bank: Any, thinning: Any, idle: Any, bads: Any,
    result: Any,
) -> Any:  # fmt: skip
    """Connect an EncoderJob and its block's first row. bads: it ends now, and is bad, a bit for each bank.

    result: constant, value[0], bits u4, seeds u3, first u7, last u7, bytes u19, idle, the first one lowest.
    """

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
        result.next = concat(
            job.idle, job.bytes, job.last, job.first, job.seeds, job.bits, job.value[0], job.constant
        )

    return connect


CODED, RAW, CONSTANT = 0, 1, 2


@block
def entry_writer(
    clk: Any, go: Any, step: Any, constant: Any, raw: Any, width: Any, seeds: Any, first: Any, last: Any,
    length: Any, value: Any, final: Any, write: Any, entry: Any,
    entry_last: Any,
) -> Any:  # fmt: skip
    """Give pair `step` u2 (0..2) one clock after `go` (strobe), with `write`.

    constant, raw: the block's type; else it is coded. width u5: bits of a raw value; seeds u3, first u7,
    last u7: of a coded block; length u19: bytes; value u16: of a constant one. final: it is the
    last block's, whose last pair has entry_last.
    """

    @always(clk.posedge)
    def give():
        write.next = go
        entry_last.next = final and step == 2
        if constant:
            entry.next = 0
            if step == 0:
                entry.next = CONSTANT
            elif step == 1:
                entry.next = value
            elif value[15]:
                entry.next = 0xFFFF
        elif step == 0:
            entry.next = concat(last[4:], first, seeds, modbv(CODED)[2:])
            if raw:
                entry.next = concat(modbv(0)[9:], width, modbv(RAW)[2:])
        elif step == 1:
            entry.next = concat(length[8:], modbv(0)[5:], last[7:4])
            if raw:
                entry.next = concat(length[8:], modbv(0)[8:])
        else:
            entry.next = length[19:8]

    return give


@block
def judge(
    clk: Any, rst: Any, begin: Any, row: Any, unit: Any, empty: Any, run: Any, failed: Any, overflow: Any,
    open_blocks: Any, last_block: Any, size: Any, last_size: Any, judged: Any, settled: Any, over: Any,
    idle: Any, results: Sequence[Any], raw: Any, raw_row: Any, head: Any, head_kept: Any, place: Any,
    full: Any, launch: Any, target: Any, choice: Any, keep: Any, drop: Any, cancel: Any, launched: Any,
    busy: Any, first_busy: Any, write: Any, entry: Any, entry_last: Any, *, collectors: int,
) -> Any:  # fmt: skip
    """Start a collector on the oldest open block, wait for the results of its job, and settle what it is.

    begin (strobe): a frame, whose first row is `row` and its unit `unit`; empty: without values. place: where
    the next block begins, in bytes. full: of place; overflow (strobe): the frame is too long. run (level):
    there may be blocks; open_blocks: of dealer; last_block, size, last_size: of frame_plan. judged (strobe):
    the oldest block is settled; settled (strobes, a bit for each unit): whose. over (level): all are. failed
    (level): blocks are settled and forgotten. idle: nothing is under way. head (strobe, while idle): collect
    the frame's head, kept for the CRC or not (head_kept).
    results: of the encoders' jobs (job_port.py). raw: RawJob and raw_row: of raw_packer.
    launch .. busy: of launcher; first_busy: collector 0 is. Unit u has collector u modulo their number;
    raw_packer and the head have collector 0, behind its units.
    write, entry u16: the directory, three strobes for a block.
    """
    UNITS, CHOICES, LANE_BITS = len(results), len(choice), len(target)
    LAST_UNIT = UNITS - 1
    LAST_COLLECTOR = collectors - 1
    RAW_CHOICE = 1 << len(range(0, len(results), collectors))
    HEAD_CHOICE = RAW_CHOICE << 1
    HEAD = HEADER_BYTES + PREFIX_BYTES + DIRECTORY_BYTES
    states = enum(
        "IDLE", "START", "LAUNCH", "SETTLE", "LOOK", "SIZE", "COMPARE", "DECIDE", "PROBE", "PROBED", "FORGET",
        "ENTRY", "SETTLED",
    )  # fmt: skip
    state = Signal(states.IDLE)
    # As `foresee` has them at first: an event-driven simulator does not run it before something changes.
    begun, decided = Signal(states.SETTLE), Signal(states.FORGET)
    index, base = word(8), word(len(row))
    hot = word(len(results), 1)  # the oldest block's unit
    own_target, own_choice = word(len(target)), word(len(choice))
    finished, result, constant, low, bits = bit(), word(RESULT_BITS), bit(), bit(), word(4)
    next_result = word(RESULT_BITS)
    seeds, first, last, coded_bytes, length = word(3), word(7), word(7), word(19), word(19)
    values, total, times, shorter = word(18), word(22), word(5), bit()
    free = bit()
    six_blocks, first_place = word(11), word(11)
    final, is_raw, for_head, probed, clocks, go, value = bit(), bit(), bit(), bit(), word(2), bit(), word(16)

    entries = entry_writer(
        clk,
        go,
        clocks,
        constant,
        is_raw,
        raw.width,
        seeds,
        first,
        last,
        length,
        value,
        final,
        write,
        entry,
        entry_last,
    )

    choose_result = hot_tree(clk, results, hot, next_result)

    @always(clk.posedge)
    def choose():
        result.next = next_result

    @always_comb
    def split():
        finished.next = result[42]
        constant.next = result[0]
        low.next = result[1]
        bits.next = result[6:2]
        seeds.next = result[9:6]
        first.next = result[16:9]
        last.next = result[23:16]
        coded_bytes.next = result[42:23]

    @always_comb
    def look():
        idle.next = state == states.IDLE and not judged
        launch.next = state == states.LAUNCH
        go.next = state == states.ENTRY
        value.next = 0
        if probed:
            value.next = raw.value
        elif low:
            value.next = 0xFFFF

    # A raw block's bytes: its values, as often as one has bits.
    @always(clk.posedge)
    def measure():
        final.next = index == last_block
        values.next = size
        if final:
            values.next = last_size
        shorter.next = coded_bytes < total[22:3]
        length.next = coded_bytes
        if is_raw:
            length.next = total[22:3]
        if state == states.SIZE:
            total.next = total + values
            times.next = times - 1
        else:
            times.next = bits
        if state == states.LOOK:
            total.next = 7

    @always(clk.posedge)
    def hand_raw():
        raw.start.next = False
        free.next = not busy and not first_busy and raw.idle
        if (state == states.PROBE or state == states.FORGET) and raw.idle:
            raw.values.next = values
            raw.width.next = bits + 1
            if constant:
                raw.width.next = 16
            raw.constant.next = constant
            raw_row.next = base
        if state == states.PROBE and raw.idle:
            raw.start.next = True
        if state == states.LAUNCH and launched and is_raw and not for_head:
            raw.start.next = True
        if rst:
            raw.start.next = False

    @always(clk.posedge)
    def step():
        """Follow the oldest block's place among units and in the frame."""
        judged.next = state == states.SETTLED and not rst
        settled.next = 0
        if state == states.SETTLED and not rst:
            settled.next = hot
        if state == states.SETTLED:
            over.next = final
            if not constant:
                place.next = place + length
            base.next = base + size[len(size) : 5]
            index.next = index + 1
            hot.next = hot << 1
            own_target.next = own_target + 1
            if own_target == LAST_COLLECTOR:
                own_target.next = 0
                own_choice.next = own_choice << 1
            if hot[LAST_UNIT]:
                hot.next = 1
                own_target.next = 0
                own_choice.next = 1
        six_blocks.next = concat(last_block, modbv(0)[2:]) + concat(last_block, modbv(0)[1:])
        first_place.next = six_blocks + HEAD
        if failed or head:
            place.next = 0
        if begin or rst:
            base.next = row
            index.next = 0
            over.next = False
            for n in range(UNITS):
                hot.next[n] = unit == n
            own_target.next = unit[LANE_BITS:]
            for n in range(CHOICES):
                own_choice.next[n] = (unit >> LANE_BITS) == n
            place.next = first_place
        if begin and empty:
            place.next = HEADER_BYTES

    @always_comb
    def foresee():
        """Say where LAUNCH and DECIDE lead."""
        begun.next = states.SETTLE
        if for_head:
            begun.next = states.IDLE
        elif is_raw:
            begun.next = states.ENTRY
        decided.next = states.FORGET
        if failed:
            decided.next = states.SETTLED
        elif constant and bits != 0:
            decided.next = states.PROBE
        elif constant or shorter:
            decided.next = states.ENTRY

    @always(clk.posedge)
    def act():
        overflow.next = state == states.START and full and not failed
        keep.next = False
        drop.next = False
        cancel.next = state == states.DECIDE and constant
        clocks.next = 0
        if state == states.IDLE:
            is_raw.next = False
            probed.next = False
            for_head.next = head
            target.next = own_target
            choice.next = own_choice
            if head:
                target.next = 0
                choice.next = HEAD_CHOICE
        elif state == states.LAUNCH and launched:
            keep.next = is_raw or (for_head and head_kept)
            drop.next = for_head and not head_kept
        elif state == states.SETTLE or state == states.ENTRY:
            clocks.next = clocks + 1
        elif state == states.DECIDE and not constant:
            keep.next = shorter and not failed
            drop.next = failed or not shorter
            is_raw.next = not shorter
        elif state == states.PROBED:
            probed.next = True
        elif state == states.FORGET and free:
            target.next = 0
            choice.next = RAW_CHOICE

    @always(clk.posedge)
    def sequence():
        if state == states.IDLE:
            if head:
                state.next = states.LAUNCH
            elif run and open_blocks != 0 and not judged and not over:
                state.next = states.START
        elif state == states.START:
            if failed or not full:
                state.next = states.LAUNCH
        elif state == states.LAUNCH:
            if launched:
                state.next = begun
        elif state == states.SETTLE:
            if clocks == 2:
                state.next = states.LOOK
        elif state == states.LOOK:
            if finished:
                state.next = states.SIZE
        elif state == states.SIZE:
            if times == 0:
                state.next = states.COMPARE
        elif state == states.COMPARE:
            state.next = states.DECIDE
        elif state == states.DECIDE:
            state.next = decided
        elif state == states.PROBE:
            if raw.idle:
                state.next = states.PROBED
        elif state == states.PROBED:
            if raw.done:
                state.next = states.ENTRY
        elif state == states.FORGET:
            if free:
                state.next = states.LAUNCH
        elif state == states.ENTRY:
            if clocks == 2:
                state.next = states.SETTLED
        else:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    return choose_result, entries, choose, split, look, measure, hand_raw, step, foresee, act, sequence
