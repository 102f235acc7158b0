"""CRC-32 of several blocks side by side, of each a word when it is its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.linear_map import ONES, linear_map, step, unstep


@block
def crc_lane(clk: Any, data: Any, mix: Any, valid: Any, total: Any, *, columns: Sequence[int]) -> Any:
    """Give what a lane's data, mixed with a part of the state or with nothing (None), add to the next
    state, two clocks later."""
    mixed, moved, valid_1 = word(16), word(32), bit()
    move = linear_map(mixed, moved, columns)

    @always(clk.posedge)
    def run():
        valid_1.next = valid
        total.next = moved
        if not valid_1:
            total.next = 0

    if mix is None:

        @always(clk.posedge)
        def take():
            mixed.next = data

    else:

        @always(clk.posedge)
        def take():
            mixed.next = data ^ mix

    return move, run, take


PIPELINE = 3  # clocks from a word to its state
START = unstep(ONES, 32)


@block
def turn_crc(clk: Any, words: Sequence[Any], valid: Any, first: Any, head: Any, state: Any) -> Any:
    """Keep as many states as a word has lanes; in each clock it is the turn of the next.

    words u16 for each lane, valid, first: a word, and whether a block begins with it; bytes that are not the
    block's are 0. head (level): the block is the frame's head, whose CRC begins with ones, behind four bytes
    of 0; all others begin with 0. state u32: the CRC, not inverted, of the words of this turn's block so far
    without the one that comes now.
    """
    lanes = len(words)
    START_LOW, START_HIGH = START & 0xFFFF, START >> 16
    low, high = word(16), word(16)
    mixes = (low, high, *(None,) * (lanes - 2))
    sums = [word(32) for _ in range(lanes)]
    parts = [
        crc_lane(clk, words[j], mixes[j], valid, sums[j],
              columns=[step(0, 1 << (16 * j + i), 16 * lanes) for i in range(16)])
        for j in range(lanes)
    ]  # fmt: skip
    hold_1, hold_2, total = word(32), word(32), word(32)
    later = [word(32) for _ in range(lanes - PIPELINE)]
    LATER = len(later)

    @always_comb
    def mix():
        low.next = state[16:]
        high.next = state[32:16]
        if first:
            low.next = 0
            high.next = 0
            if head:
                low.next = START_LOW
                high.next = START_HIGH

    @always(clk.posedge)
    def add():
        hold_1.next = state
        if valid:
            hold_1.next = 0
        hold_2.next = hold_1
        later[0].next = total
        for i in range(1, LATER):
            later[i].next = later[i - 1]
        state.next = later[LATER - 1]

    @always_comb
    def gather():
        whole = modbv(0)[32:]
        whole[:] = hold_2
        for j in range(lanes):
            whole[:] = whole ^ sums[j]
        total.next = whole

    return parts, mix, add, gather
