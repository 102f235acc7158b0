"""The store in which frames are made and from which they leave: bytes in, frames and their CRC out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.nic.crc.crc_sum import crc_sum
from oscar_hdl.nic.crc.turn_crc import turn_crc
from oscar_hdl.nic.send.collector import collector
from oscar_hdl.nic.send.frame_reader import frame_reader
from oscar_hdl.nic.send.launcher import launcher
from oscar_hdl.nic.send.pick_stream import pick_stream
from oscar_hdl.nic.send.store_lane import store_lane
from oscar_hdl.nic.send.turn_places import turn_places
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.word_join import word_join


@block
def frame_builder(
    clk: Any, rst: Any, m_axis: Any, units: Sequence[Any], raw: Any, head: Any, clear: Any, launch: Any,
    target: Any, choice: Any, keep: Any, drop: Any, cancel: Any, place: Any, heading: Any, launched: Any,
    busy: Any, first_busy: Any, resting: Any, finish: Any, pad: Any, crc: Any, crc_idle: Any, send: Any,
    words: Any, tail: Any, sent: Any, *, collectors: int,
) -> Any:  # fmt: skip
    """Collect blocks of bytes side by side, a pair a clock each, and send what was collected.

    m_axis: Stream of whole frames. units, raw, head: Stream(16, keep=2), a block each up to tlast.
    clear (strobe): a new frame. launch (until launched), target, choice: have a collector take a block;
    unit u is bit u // collectors of choice of collector u % collectors, collector 0 has raw and head behind;
    place: where it begins in the frame, in bytes, until two clocks after launched. heading (level): it is
    the head. keep, drop, cancel (strobes): what becomes of it (collector.py). busy, first_busy: the target
    is, collector 0 is. resting: a clock ago no collector was busy, and all CRCs were added.
    finish (strobe), pad: the frame's CRC is to be without so many bytes at its end; crc u32, not inverted;
    crc_idle: it is complete.
    send (strobe, while `sent`): the first `words` words leave, of the last one `tail` bytes (0: all); the
    next frame is made behind them. sent: nothing is leaving.
    """
    lanes = len(m_axis.tdata) // 16
    LANES_LOG2 = lanes.bit_length() - 1
    BITS = len(words)
    turn, base = word(LANES_LOG2), word(BITS)
    busies, starts, keeps, drops, cancels, rooms = ([bit() for _ in range(collectors)] for _ in range(6))
    choices = [word(len(choice)) for _ in range(collectors)]
    readies, marks = [bit() for _ in range(collectors)], [word(2) for _ in range(collectors)]
    pairs = [word(17) for _ in range(collectors)]
    held = [[word(16) for _ in range(lanes)] for _ in range(collectors)]
    enables = [[word(2) for _ in range(lanes)] for _ in range(collectors)]
    valids, firsts, endeds = ([bit() for _ in range(collectors)] for _ in range(3))
    written = [word(16) for _ in range(lanes)]
    read = [word(16) for _ in range(lanes)]
    valid, first, ended, offset, address = bit(), bit(), bit(), word(BITS), word(BITS)
    first_word, lane, odd = word(BITS), word(LANES_LOG2), bit()
    absorb, state = bit(), word(32)
    advance, read_address, left = bit(), word(BITS), word(BITS)

    picks, takers = [], []
    for i in range(collectors):
        own = [*units[i::collectors], *((raw, head) if i == 0 else ())]
        picks.append(pick_stream(clk, own, choices[i], readies[i], marks[i], pairs[i]))
        takers.append(
            collector(
                clk, rst, turn, starts[i], odd, lane, keeps[i], drops[i], cancels[i], absorb, rooms[i],
                readies[i], marks[i], pairs[i], busies[i], held[i], enables[i], valids[i], firsts[i],
                endeds[i], index=i,
            )
        )  # fmt: skip
    start = launcher(
        clk, rst, launch, target, choice, keep, drop, cancel, launched, busy, turn, busies, starts, choices,
        keeps, drops, cancels,
    )  # fmt: skip
    places = turn_places(
        clk, rst, turn, starts, first_word, base, left, valids, firsts, endeds, rooms, valid, first, ended,
        offset, address,
    )  # fmt: skip
    store = [
        store_lane(
            clk,
            [h[j] for h in held],
            [e[j] for e in enables],
            address,
            written[j],
            advance,
            read_address,
            read[j],
        )
        for j in range(lanes)
    ]
    joined = word_join(read, m_axis.tdata)
    check = turn_crc(clk, written, valid, first, heading, state)
    total = crc_sum(
        clk, rst, clear, ended, state, offset, absorb, finish, pad, crc_idle, crc, word_bytes=2 * lanes
    )
    reader = frame_reader(clk, rst, send, words, tail, sent, left, read_address, advance, m_axis)

    @always_comb
    def look():
        first_busy.next = busies[0]
        odd.next = place[0]
        lane.next = place[LANES_LOG2 + 1 : 1]
        first_word.next = place[LANES_LOG2 + 1 + BITS : LANES_LOG2 + 1]

    @always(clk.posedge)
    def count():
        any_busy = modbv(0)[1:]
        for i in range(collectors):
            if busies[i]:
                any_busy[:] = 1
        resting.next = any_busy == 0 and crc_idle
        turn.next = turn + 1
        if send:
            base.next = base + words
        if rst:
            base.next = 0

    return picks, takers, start, places, store, joined, check, total, reader, look, count
