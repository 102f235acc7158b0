"""Where collectors write: the word of each, in turn, and whether there is room behind it."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.nic.send.ports import Collectors, Written
from oscar_hdl.streams.bundles import bit, word


@block
def turn_places(
    clk: Any, rst: Any, turn: Any, first_word: Any, base: Any, left: Any, collectors: Collectors,
    written: Written,
) -> Any:  # fmt: skip
    """Keep the word of a frame at which each collector is, all in one ring that turns.

    A collector begins at `first_word`, which holds for two clocks from its start on. Only one at a time has a
    word. Words from `left` before the end of the ring on are not free.
    A collector that comes to the last four words stays there: its frame is too long.
    """
    starts, rooms = collectors.starts, collectors.rooms
    valids, firsts, endeds = collectors.valids, collectors.firsts, collectors.endeds
    count = len(starts)
    bits = len(base)
    TURNS = 1 << len(turn)
    FULL = (1 << (bits - 2)) - 1
    now, moved, limit = word(bits), word(bits), word(bits - 2)
    later = [word(bits) for _ in range(TURNS - 2)]
    LATER = len(later)
    begin, some, fits, full, back = bit(), bit(), bit(), bit(), word(len(turn))

    @always_comb
    def look():
        any_valid = modbv(0)[1:]
        for i in range(count):
            if valids[i]:
                any_valid[:] = 1
        some.next = any_valid == 1
        back.next = turn - 3
        full.next = now[bits:2] == FULL

    @always(clk.posedge)
    def move():
        begin.next = False
        for i in range(count):
            if starts[i]:
                begin.next = True
        moved.next = now
        if begin:
            moved.next = first_word
        elif some and not full:
            moved.next = now + 1
        later[0].next = moved
        for i in range(1, LATER):
            later[i].next = later[i - 1]
        now.next = later[LATER - 1]

    @always(clk.posedge)
    def give():
        written.valid.next = some
        written.first.next = False
        written.ended.next = False
        for i in range(count):
            if firsts[i]:
                written.first.next = True
            if endeds[i] and not rst:
                written.ended.next = True
        written.offset.next = now
        written.address.next = base + now

    # `limit` may be late, as `left` falls while collectors run.
    @always(clk.posedge)
    def allow():
        limit.next = FULL - left[bits:2]
        fits.next = moved[bits:2] < limit or moved[bits:2] == FULL
        for i in range(count):
            if starts[i]:
                rooms[i].next = False
            elif back == i:
                rooms[i].next = fits

    return look, move, give, allow
