"""What units get of the words of a bank whose turn it is: lanes, one a clock, and means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.bank_ports import FOUR, FOUR_BITS, POSITION_FOUR, TURNS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree


@block
def lane_shift(clk: Any, load: Any, four: Any, none: Any, data: Any, *, down: bool) -> Any:
    """Give a lane of `four` in the clock behind `load` (strobe, every fourth clock), then the others.

    down: from the highest lane to the lowest, otherwise from the lowest on. none: with load, lanes are 0.
    """
    WIDTH = len(data)
    if len(four) != FOUR * WIDTH:
        raise ValueError(f"a word of four lanes of {WIDTH} bits is needed, got {len(four)} bits")
    rest, first, behind = word(3 * WIDTH), word(WIDTH), word(3 * WIDTH)
    moved, next_lane = word(3 * WIDTH), word(WIDTH)

    if down:

        @always_comb
        def order() -> None:
            first.next = four[4 * WIDTH : 3 * WIDTH]
            behind.next = four[3 * WIDTH :]
            next_lane.next = rest[3 * WIDTH : 2 * WIDTH]
            moved.next = concat(rest[2 * WIDTH :], modbv(0)[WIDTH:])
    else:

        @always_comb
        def order() -> None:
            first.next = four[WIDTH:]
            behind.next = four[4 * WIDTH : WIDTH]
            next_lane.next = rest[WIDTH:]
            moved.next = concat(modbv(0)[WIDTH:], rest[3 * WIDTH : WIDTH])

    @always(clk.posedge)
    def shift() -> None:
        data.next = next_lane
        rest.next = moved
        if load:
            data.next = first
            rest.next = behind
            if none:
                data.next = 0
                rest.next = 0

    return order, shift


@block
def engine_lanes(
    clk: Any, clocks: Any, place: Any, n: int, four: Any, position: Any, live_later: Any, mean: Any,
    source_mean: Any, source: Any,
) -> Any:  # fmt: skip
    """Give the unit at place n its lanes out of the words whose turn it is, and means.

    four: u76 of SumPort in phase 0, source: u76 of the SourcePort in phase 3, modulo 4. live_later: of
    side_bank.
    """
    local, none, never, live, sum_live = word(FOUR_BITS), bit(), bit(), bit(), bit()
    BEFORE = (n - 1) % TURNS  # who takes a row in the turn behind this one's
    ports = place.position, place.source
    position_port, source_port = ports
    shifts = [
        lane_shift(clk, clocks.is_3, position, never, position_port.data, down=True),
        lane_shift(clk, clocks.is_3, source, never, source_port.data, down=False),
        lane_shift(clk, clocks.is_0, local, none, place.sums.local, down=True),
    ]

    @always_comb
    def cut() -> None:
        local.next = concat(four[73:57], four[54:38], four[35:19], four[16:])
        none.next = place.adopt or not sum_live

    @always(clk.posedge)
    def notice() -> None:
        never.next = False
        position_port.ok.next = True
        source_port.ok.next = True
        if clocks.is_3 and clocks.takes[n]:
            position_port.mean.next = mean
            source_port.mean.next = source_mean
        if clocks.is_0 and clocks.takes[BEFORE]:
            live.next = live_later
        if clocks.is_1 and clocks.sums[n]:
            sum_live.next = live

    return shifts, cut, notice


@block
def raw_lanes(
    clk: Any, clocks: Any, raw: Any, positions: Sequence[Any], values: Sequence[Any], live: Any,
    mean: Any, position: Any, local: Any, source: Any,
) -> Any:  # fmt: skip
    """Give the raw units theirs: u4, u16 and u16; the source's mean and distances are not asked for."""
    position_four, local_four, source_four = word(POSITION_FOUR), word(FOUR_BITS), word(FOUR_BITS)
    never, decode_live, encode_live = bit(), bit(), bit()
    shown_local, shown_source = word(16), word(16)
    picks = [
        hot_tree(None, positions, clocks.raw_down, position_four),
        hot_tree(None, values, clocks.raw_down, local_four),
        hot_tree(None, values, clocks.raw_up, source_four),
        lane_shift(clk, clocks.is_1, position_four, never, position, down=True),
        lane_shift(clk, clocks.is_2, local_four, never, shown_local, down=True),
        lane_shift(clk, clocks.is_2, source_four, never, shown_source, down=False),
    ]

    # The first word of a row comes in the clock in which its class is found, in turn 0 and in turn 6. So
    # lanes are made 0 behind the registers that give them.
    @always_comb
    def show() -> None:
        local.next = 0
        source.next = 0
        if decode_live:
            local.next = shown_local
        if encode_live:
            source.next = shown_source

    @always(clk.posedge)
    def keep() -> None:
        never.next = False
        if clocks.is_2 and clocks.turn == 0:
            decode_live.next = live and not raw.adopt
        if clocks.is_2 and clocks.turn == 6:
            encode_live.next = live

    return picks, show, keep
