"""Words of the store become pairs of bytes for decoders, the last pair first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import Stream, bit, word


@block
def feed(
    valid: Any, landed: Any, blocked: Any, n: int, data: Any, last: Any, take: Any, stream: Stream
) -> Any:
    """Give data and last where bit n of valid is 1; `take`: a word may come."""

    @always_comb
    def connect():
        take.next = not landed and not blocked[n]
        stream.tvalid.next = valid[n]
        stream.tdata.next = data
        stream.tlast.next = last

    return connect


@block
def feeder(
    clk: Any, rst: Any, land: Any, pairs: Any, top: Any, low: Any, final: Any, tick: Any,
    takes: Sequence[Any], streams: Sequence[Stream], *, first: int, stride: int,
) -> Any:  # fmt: skip
    """Give the pairs top to low of a word to one of its streams, a pair a clock.

    land: bit first + n stride (strobe): there is a word for stream n, while takes[n]: pairs (16 bits each),
    top, low; final: the word is the last of its block, tlast goes with its last pair. tick (strobe): a
    stream that was not ready gets nothing until the next, so that it does not keep others waiting.
    """
    clients, bits, ALONE = len(streams), len(pairs), len(streams) == 1
    readies = [stream.tready for stream in streams]
    # A word that landed, the word whose pairs go out, and the pair that waits for its stream.
    landed, landed_who, landed_pairs = bit(), word(clients), word(len(pairs))
    landed_top, landed_low, landed_final = word(len(top)), word(len(top)), bit()
    active, who, word_now = bit(), word(clients), word(len(pairs))
    index, least, closing, ending = word(len(top)), word(len(top)), bit(), bit()
    landed_ending, nearly = bit(), bit()
    valid, pair, data, last = word(clients), word(16), word(16), bit()
    stall, blocked, waiting = bit(), word(clients), word(clients)

    mine = word(clients)
    sides = [
        feed(valid, landed, blocked, n, data, last, takes[n], stream) for n, stream in enumerate(streams)
    ]

    @always_comb
    def choose():
        moved = modbv(0)[bits:]
        moved[:] = word_now >> concat(index, modbv(0)[4:])
        pair.next = concat(moved[8:], moved[16:8])  # the upper byte pops first

    @always_comb
    def judge():
        for n in range(clients):
            waiting.next[n] = valid[n] and not readies[n]
            mine.next[n] = land[first + n * stride]

    @always_comb
    def flow():
        stall.next = waiting != 0
        nearly.next = index - 1 == least

    @always(clk.posedge)
    def take():
        if not landed:
            landed_who.next = mine
            landed_pairs.next = pairs
            landed_top.next = top
            landed_low.next = low
            landed_final.next = final
            landed_ending.next = top == low
        if mine != 0:
            landed.next = True
        elif not active:
            landed.next = False
        blocked.next = blocked | waiting
        if tick or rst or ALONE:
            blocked.next = 0
        if rst:
            landed.next = False

    @always(clk.posedge)
    def give():
        if not active:
            active.next = landed
            who.next = landed_who
            word_now.next = landed_pairs
            index.next = landed_top
            least.next = landed_low
            closing.next = landed_final
            ending.next = landed_ending
        elif not stall:
            index.next = index - 1
            ending.next = nearly
            active.next = not ending
        if not stall:
            valid.next = 0
            if active:
                valid.next = who
            data.next = pair
            last.next = closing and ending
        if rst:
            active.next = False
            valid.next = 0

    return sides, choose, judge, flow, take, give
