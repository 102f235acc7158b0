"""The barrel decoder: eight lanes a clock, eight blocks that take turns (docs/engine.md, "Barrel units")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.coder.barrel.ports import THREADS, WIDTH
from oscar_hdl.coder.barrel_decode.block_ends import block_ends, block_faults
from oscar_hdl.coder.barrel_decode.byte_rings import byte_rings
from oscar_hdl.coder.barrel_decode.decode_lanes import decode_lanes
from oscar_hdl.coder.barrel_decode.decode_request import decode_stage
from oscar_hdl.coder.barrel_decode.decode_turns import decode_turns
from oscar_hdl.coder.barrel_decode.group_classes import group_classes
from oscar_hdl.coder.barrel_decode.lane_levels import lane_levels
from oscar_hdl.coder.barrel_decode.ports import (
    PLACE_BITS,
    WORDS_BITS,
    Begin,
    DecodePlan,
    Found,
    GroupClasses,
    LaneBytes,
    LaneLevels,
    Put,
    Settled,
)  # fmt: skip
from oscar_hdl.coder.barrel_decode.ring_fill import block_begin, feed_words, ring_levels
from oscar_hdl.coder.barrel_decode.sum_rows import sum_rows
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined


@block
def decode_bytes(
    clk: Any, rst: Any, phase: Any, job: Any, feed: Any, plan25: Any, plan29: Any, taken: Any, over: Any,
    enough: Any, settled: Any,
) -> Any:  # fmt: skip
    """Keep bytes of blocks and give them to lanes.

    job: BarrelDecoderJob. feed: BarrelFeed. plan25, plan29: DecodePlan. taken: LaneBytes of each lane. over,
    enough, settled: of ring_levels.
    """
    begin, put, looked, open_to, room = Begin(), Put(), word(3), word(THREADS), word(THREADS)
    place1, words1 = word(PLACE_BITS), word(WORDS_BITS)
    start = block_begin(clk, rst, phase, job, begin)
    fill = feed_words(clk, rst, feed, begin, open_to, put, looked, words1)
    rings = byte_rings(clk, phase, plan25, plan29, begin, put, taken, looked, place1)
    levels = ring_levels(clk, rst, phase, job, begin, words1, place1, over, enough, room, settled)

    @always_comb
    def share() -> None:
        looked.next = phase[3:]
        open_to.next = room | over
        feed.room.next = room | over

    return start, fill, rings, levels, share


@block
def barrel_decoder(
    clk: Any, rst: Any, phase: Any, job: Any, tables: Any, feed: Any, position: Any, sums: Any, counts: Any
) -> Any:
    """Decode blocks (docs/asc.md, format 3), eight lanes a clock, of eight threads in turns of four clocks.

    phase u4: counts up by one a clock; a turn begins where its two lower bits are 0. job: BarrelDecoderJob.
    tables: TableWrites. feed: BarrelFeed. position: BarrelPosition. sums: BarrelSums. counts: BarrelCounts.

    A number in a name is the clock in which a signal belongs to a turn's first lanes, 0 that of its answer.
    """
    plans = [DecodePlan() for _ in range(9)]
    plan, plan5, plan9, plan13, plan17, plan21, plan25, plan29, plan33 = plans
    group, levels, found, settled = GroupClasses(), LaneLevels(), Found(), Settled()
    taken = [LaneBytes() for _ in range(WIDTH)]
    two_of, twos24 = [lane.two24 for lane in taken], word(WIDTH)
    enough, over, ended, wrongs, alive33 = word(THREADS), word(THREADS), word(THREADS), word(THREADS), bit()
    mean1, data3, local3 = word(4), word(4 * WIDTH), word(16 * WIDTH)

    order = decode_turns(clk, rst, phase, job, enough, group, position, plan, plan9, plan17)
    stages = [decode_stage(clk, phase, plans[n], plans[n + 1]) for n in range(8)]
    level = lane_levels(clk, phase, plan5, plan9, plan13, plan17, plan21, plan25, plan33, alive33, levels)
    lanes = decode_lanes(
        clk, rst, phase, tables, plan, plan5, plan17, plan21, plan25, plan29, mean1, data3, local3, levels,
        taken, found,
    )  # fmt: skip
    classes = group_classes(clk, phase, found.symbols15, levels.active14, plan13, plan17, group, alive33)
    store = decode_bytes(clk, rst, phase, job, feed, plan25, plan29, taken, over, enough, settled)
    rows = sum_rows(clk, rst, phase, plan29, found.totals30, sums, ended)
    twos = joined(two_of, twos24)
    faults = block_faults(clk, phase, plan9, plan21, plan25, plan29, found, twos24, levels.present29, wrongs)
    ends = block_ends(clk, rst, job, wrongs, ended, settled, over)

    @always(clk.posedge)
    def take() -> None:
        data3.next = position.data
        local3.next = position.local
        if phase[2:] == 0:
            mean1.next = position.mean

    @always(clk.posedge)
    def count() -> None:
        counts.valid.next = 0
        if levels.counted35:
            counts.valid.next = levels.present35
        if phase[2:] == 3:
            counts.step.next = plan33.step
            counts.bank.next = plan33.bank
        if rst:
            counts.valid.next = 0

    @always_comb
    def show() -> None:
        counts.address.next = found.addresses36

    return order, stages, level, lanes, classes, store, rows, twos, faults, ends, take, count, show
