"""What units get of the words of a bank whose turn it is: lanes, one a clock, and means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.bank_ports import FOUR_BITS, POSITION_FOUR, TURNS
from oscar_hdl.nic.memory.lane_shift import lane_shift
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree


@block
def engine_lanes(
    clk: Any, clocks: Any, turns: Any, place: Any, n: int, positions: Sequence[Any], sources: Sequence[Any],
    local: Any, live_later: Any, mean: Any, source_mean: Any,
) -> Any:  # fmt: skip
    """Give the unit at place n its lanes of those that the memories show, and means.

    turns: PlaceClocks. positions u4, sources u19: a lane of each memory. local u16: of the place.
    live_later: of side_bank.
    """
    live, sum_live = bit(), bit()
    BEFORE = (n - 1) % TURNS  # who takes a row in the turn behind this one's
    adopt = place.adopt
    position_port, source_port, sum_port = place.position, place.source, place.sums
    picks = [
        hot_tree(None, positions, turns.position, position_port.data),
        hot_tree(None, sources, turns.source, source_port.data),
    ]

    @always(clk.posedge)
    def notice() -> None:
        position_port.ok.next = True
        source_port.ok.next = True
        if clocks.is_3 and clocks.takes[n]:
            position_port.mean.next = mean
            source_port.mean.next = source_mean
        if clocks.is_0 and clocks.takes[BEFORE]:
            live.next = live_later
        if clocks.is_3 and clocks.sums[n]:
            sum_live.next = live and not adopt
        sum_port.local.next = 0
        if sum_live:
            sum_port.local.next = local

    return picks, notice


@block
def raw_lanes(
    clk: Any, clocks: Any, memories: Sequence[Any], raw: Any, positions: Sequence[Any],
    values: Sequence[Any], live: Any, mean: Any, position: Any, local: Any, source: Any,
) -> Any:  # fmt: skip
    """Give the raw units theirs: u4, u16 and u16; the source's mean and distances are not asked for."""
    position_four, local_four, source_four = word(POSITION_FOUR), word(FOUR_BITS), word(FOUR_BITS)
    decode_live, decode_adds, encode_live = bit(), bit(), bit()
    shown_local, shown_source = word(16), word(16)
    picks = [
        hot_tree(None, positions, clocks.raw_down, position_four),
        hot_tree(None, values, clocks.raw_down, local_four),
        hot_tree(None, values, clocks.raw_up, source_four),
        lane_shift(clk, memories[0].is_1, position_four, position, down=True),
        lane_shift(clk, memories[1].is_2, local_four, shown_local, down=True),
        lane_shift(clk, memories[2].is_2, source_four, shown_source, down=False),
    ]

    # The first word of a row comes in the clock in which its class is found, in turn 0 and in turn 6. So
    # lanes are made 0 behind the registers that give them.
    @always_comb
    def show() -> None:
        local.next = 0
        source.next = 0
        if decode_live and decode_adds:
            local.next = shown_local
        if encode_live:
            source.next = shown_source

    @always(clk.posedge)
    def keep() -> None:
        if clocks.is_2 and clocks.turn == 0:
            decode_live.next = live
            decode_adds.next = not raw.adopt
        if clocks.is_2 and clocks.turn == 6:
            encode_live.next = live

    return picks, show, keep
