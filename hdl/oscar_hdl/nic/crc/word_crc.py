"""CRC-32 of several blocks side by side, of each a word of the store when it is its turn."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.nic.crc.frame_crc import crc_rest
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.linear_map import ONES, linear_map, step, unstep

WORD_CLOCKS = 2  # from a word to the clock in which `state` is that of its turn, without it


@block
def word_crc(clk: Any, valid: Any, first: Any, data: Any, head: Any, state: Any, *, turns: int) -> Any:
    """Keep as many states as there are turns; in each clock it is the turn of the next.

    valid, first, data: a word of 8 to 64 bytes, and whether a block begins with it; bytes that are not the
    block's are 0. head, with first: it is the frame's head, whose CRC begins with ones, behind four bytes of
    0; all others begin with 0. state u32: the CRC, not inverted, of this turn's block so far.
    """
    BITS = len(data)
    COLUMNS = [step(0, 1 << i, BITS) for i in range(BITS)]
    MOVE = [step(1 << i, 0, BITS) for i in range(32)]
    HEAD = step(unstep(ONES, 32), 0, BITS)
    rest, digest, moved = word(32), word(32), word(32)
    valid_1, valid_2, first_1, first_2, head_1, head_2 = (bit() for _ in range(6))
    later = [word(32) for _ in range(turns)]
    LATER = turns

    sums = crc_rest(clk, valid, data, rest, COLUMNS, at=0)
    move = linear_map(state, moved, MOVE)

    @always_comb
    def show():
        state.next = later[LATER - 1]

    @always(clk.posedge)
    def follow():
        valid_1.next = valid
        first_1.next = first
        head_1.next = head
        valid_2.next = valid_1
        first_2.next = first_1
        head_2.next = head_1
        digest.next = rest

    @always(clk.posedge)
    def add():
        whole = modbv(0)[32:]
        whole[:] = state
        if valid_2:
            whole[:] = moved ^ digest
            if first_2:
                whole[:] = digest
                if head_2:
                    whole[:] = digest ^ HEAD
        later[0].next = whole
        for i in range(1, LATER):
            later[i].next = later[i - 1]

    return sums, move, show, follow, add
