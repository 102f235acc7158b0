"""Takes the bytes of a block from its encoder and makes words of the store of them, in a turn of its own."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.send.ports import CollectorPort
from oscar_hdl.streams.bundles import bit, word


@block
def collector(
    clk: Any, rst: Any, turn: Any, port: CollectorPort, ready: Any, mark: Any, next_pair: Any, words: Any,
    enables: Any, *, index: int,
) -> Any:  # fmt: skip
    """Shift the bytes of one job to where they belong, a pair a clock, and give a word when it is its turn.

    turn: counts the lanes (pairs of a word), one a clock, for ever; the collector's turn is `index`. All
    collectors of a store have other turns, so one word a clock is written at most.
    ready, mark, next_pair: of pick_stream; taken up to tlast while port.room is high.
    words (u16 for each lane), enables (u2 for each lane), port.valid: one clock behind its turn; 0 otherwise,
    and in bytes that are not the job's. A word is given once, when all is in it that the job has for it.
    """
    lanes = len(words)
    if lanes < 4 or lanes & (lanes - 1) or not 0 <= index < lanes:
        raise ValueError(f"expected a power of two of lanes from 4 on and an index, got {lanes} and {index}")
    LAST = lanes - 1
    AHEAD = 4  # clocks from the decision to ask until the pair is at its lane
    NEXT = (1 - index) % lanes

    slot = word(len(port.lane))  # lane that is loaded now
    wanted, ask, got, running = word(len(port.lane)), bit(), bit(), bit()
    shifted, got_1, last_1 = bit(), bit(), bit()
    pair, pair_valid, pair_two, pair_last = word(16), bit(), bit(), bit()
    carry, flush, begun = word(8), bit(), bit()
    half, half_enable, half_valid, half_last = word(16), word(2), bit(), bit()
    held = [word(16) for _ in range(lanes)]
    held_enable = [word(2) for _ in range(lanes)]
    complete, ending, opened, given, kept, dropped = (bit() for _ in range(6))
    mine, next_slot = bit(), word(len(port.lane))
    loads = [bit() for _ in range(lanes)]

    @always_comb
    def take():
        got.next = ask and mark[0]
        ready.next = ask
        next_slot.next = slot + 1

    @always(clk.posedge)
    def ask_pairs():
        slot.next = (turn + NEXT) & LAST
        mine.next = next_slot == 0
        ask.next = False
        if running and port.room and not port.cancel:
            if got:
                ask.next = not mark[1]
            else:
                ask.next = ((slot + AHEAD) & LAST) == wanted
        if port.start:
            wanted.next = port.lane
            running.next = True
            shifted.next = port.odd
        elif got:
            wanted.next = (wanted + 1) & LAST
        if (got and mark[1]) or port.cancel:
            running.next = False
        if rst:
            running.next = False
            ask.next = False

    @always(clk.posedge)
    def take_pair():
        got_1.next = got
        last_1.next = got and mark[1]
        pair.next = next_pair[16:]
        pair_two.next = next_pair[16]
        pair_valid.next = got_1
        pair_last.next = last_1
        if rst:
            got_1.next = False
            last_1.next = False
            pair_valid.next = False
            pair_last.next = False

    # With an odd first byte each pair's upper byte waits for the next one's lower.
    @always(clk.posedge)
    def shift():
        flush.next = pair_last and shifted and pair_two
        half_valid.next = pair_valid or flush
        half_last.next = flush or (pair_last and not (shifted and pair_two))
        if shifted:
            half.next = concat(pair[8:], carry)
            half_enable.next = concat(pair_valid, begun)
            if not pair_valid:
                half.next = carry
        else:
            half.next = pair
            half_enable.next = 3
            if not pair_two:
                half.next = pair[8:]
                half_enable.next = 1
        if pair_valid:
            carry.next = pair[16:8]
            begun.next = True
        if port.start:
            carry.next = 0
            begun.next = False
        if rst:
            flush.next = False
            half_valid.next = False

    @always(clk.posedge)
    def hold():
        for j in range(lanes):
            loads[j].next = (pair_valid or flush) and next_slot == j and not rst
            if loads[j]:
                held[j].next = half
                held_enable[j].next = half_enable
            elif port.start or (mine and complete):
                held[j].next = 0
                held_enable[j].next = 0

    @always(clk.posedge)
    def give():
        for j in range(lanes):
            words[j].next = 0
            enables[j].next = 0
            if mine and complete:
                words[j].next = held[j]
                enables[j].next = held_enable[j]

    @always(clk.posedge)
    def run():
        port.valid.next = mine and complete
        port.first.next = mine and complete and not opened
        port.ended.next = mine and given and kept and not rst
        if half_valid and (half_last or slot == LAST):
            complete.next = True
        elif mine:
            complete.next = False
        if half_valid and half_last:
            ending.next = True
        elif mine and complete:
            ending.next = False
        if mine and complete:
            opened.next = True
            given.next = ending
        if port.keep:
            kept.next = True
        if port.drop:
            dropped.next = True
        if port.start:
            port.busy.next = True
            opened.next = False
            kept.next = False
            dropped.next = False
        elif port.cancel or (given and dropped) or (port.absorb and slot == 3):
            port.busy.next = False
            given.next = False
        if rst:
            port.busy.next = False
            complete.next = False
            ending.next = False
            given.next = False

    return take, ask_pairs, take_pair, shift, hold, give, run
