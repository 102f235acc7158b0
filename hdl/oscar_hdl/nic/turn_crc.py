"""CRC-32 of several blocks side by side, of each a word when it is its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.nic.frame_crc import ONES, step, unstep
from oscar_hdl.nic.linear_map import linear_map
from oscar_hdl.streams.bundles import bit, word

PIPELINE = 3  # clocks from a word to its state


@block
def turn_crc(clk: Any, words: Sequence[Any], valid: Any, first: Any, head: Any, state: Any) -> Any:
    """Keep as many states as a word has lanes; in each clock it is the turn of the next.

    words u16 for each lane, valid, first: a word, and whether a block begins with it; bytes that are not the
    block's are 0. head (level): the block is the frame's head, whose CRC begins with ones, behind four bytes
    of 0; all others begin with 0. state u32: the CRC, not inverted, of the words of this turn's block so far
    without the one that comes now.
    """
    lanes = len(words)
    START = unstep(ONES, 32)
    START_LOW, START_HIGH = START & 0xFFFF, START >> 16
    mixed = [word(16) for _ in range(lanes)]
    parts = [word(32) for _ in range(lanes)]
    sums = [word(32) for _ in range(lanes)]
    maps = [
        linear_map(mixed[j], parts[j], [step(0, 1 << (16 * j + i), 16 * lanes) for i in range(16)])
        for j in range(lanes)
    ]
    valid_1, hold_1, hold_2 = bit(), word(32), word(32)
    later = [word(32) for _ in range(lanes - PIPELINE + 1)]
    LATER = len(later)

    @always(clk.posedge)
    def mix():
        for j in range(lanes):
            mixed[j].next = words[j]
        if not first:
            mixed[0].next = words[0] ^ state[16:]
            mixed[1].next = words[1] ^ state[32:16]
        elif head:
            mixed[0].next = words[0] ^ START_LOW
            mixed[1].next = words[1] ^ START_HIGH
        valid_1.next = valid
        hold_1.next = state
        if valid:
            hold_1.next = 0

    @always(clk.posedge)
    def move():
        for j in range(lanes):
            sums[j].next = parts[j]
            if not valid_1:
                sums[j].next = 0
        hold_2.next = hold_1

    @always(clk.posedge)
    def add():
        total = modbv(0)[32:]
        total[:] = hold_2
        for j in range(lanes):
            total[:] = total ^ sums[j]
        later[0].next = total
        for i in range(1, LATER):
            later[i].next = later[i - 1]

    @always_comb
    def give():
        state.next = later[LATER - 1]

    return maps, mix, move, add, give
