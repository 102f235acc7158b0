"""Who reads the store next: contexts of all readers go round, each reads a word when it passes."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word


@block
def shift_line(clk: Any, x: Any, y: Any, clocks: int) -> Any:
    """Give as y what x was `clocks` (0 or more) clocks before: registers without enable or reset."""
    if clocks == 0:

        @always_comb
        def pass_on():
            y.next = x

        return pass_on
    if clocks == 1:

        @always(clk.posedge)
        def hold():
            y.next = x

        return hold
    half = word(len(x))
    return shift_line(clk, x, half, clocks - 1), shift_line(clk, half, y, 1)


class Span:
    """A reader's next span of the store, for fetch_ring: `put` (level) until `placed` (strobe).

    slot: one bit for each reader. at: the first word to read; bottom, low: the last word, and the first pair
    in it; top, none: the last pair in the first word, or that it has none; odd: pairs begin at odd bytes.
    """

    def __init__(self, slots: int, at_bits: int, pair_bits: int) -> None:
        self.put, self.placed, self.slot = bit(), bit(), word(slots)
        self.at, self.bottom = word(at_bits), word(at_bits)
        self.low, self.top = word(pair_bits), word(pair_bits)
        self.none, self.odd = bit(), bit()


@block
def fetch_ring(
    clk: Any, rst: Any, span: Span, avail: Any, rd_addr: Any, rd_data: Any, land: Any, pairs: Any, top: Any,
    low: Any, final: Any,
) -> Any:  # fmt: skip
    """Read the store for `len(avail)` readers in turn: all but the last downward, the last one upward.

    span: see Span. avail: a bit for each reader, whether it can take a word in the next clock. rd_addr, and
    rd_data two clocks later: the store. land: one bit, of the reader for whom there is a word: pairs, the
    word with what precedes it in the order of pairs (the last reader takes rd_data as it is); top, low: the
    pairs that count; final: it was the last.
    A reader that is not available gets the same word a turn later. A turn is len(avail) clocks, 5 at least.
    """
    slots, bits, at_bits, pair_bits = len(avail), len(rd_data), len(rd_addr), len(top)
    TURN = max(slots, 5)
    FULL, LOWER = (1 << pair_bits) - 1, (1 << at_bits) - 1
    UP = slots - 1  # the last reader
    # Stage 0 is the address register, the word is there at stage 2, `at` moves behind stage 3, and a new
    # span comes in behind the last stage. Reader n is at stage s when bit n + s of `token` is 1.
    token, live = word(TURN, 1), word(TURN)
    at_0, at_1, at_2, at_3, at_4, at_end = (word(at_bits) for _ in range(6))
    still_0, still_2, still_end = (word(at_bits + pair_bits + 1) for _ in range(3))  # bottom, low, odd
    moves_0, moves_2, moves_3, moves_end = (word(pair_bits + 9) for _ in range(4))  # top, none, held byte
    step, moved, down = word(at_bits), bit(), bit()
    same_1, end_2, ok_2, taken, enters = bit(), bit(), bit(), bit(), bit()
    here_1, here_2, here_soon = word(slots), word(slots), word(slots)
    turned, turned_1, turned_2, turned_soon = word(TURN), word(TURN), word(TURN), word(TURN)

    lines = [
        shift_line(clk, still_0, still_2, 2),
        shift_line(clk, still_2, still_end, TURN - 3),
        shift_line(clk, moves_0, moves_2, 2),
        shift_line(clk, moves_3, moves_end, TURN - 4),
        shift_line(clk, at_4, at_end, TURN - 5),
    ]

    @always_comb
    def tokens():
        turned_1.next = concat(token[1:], token[TURN:1])
        turned_2.next = concat(token[2:], token[TURN:2])
        turned_soon.next = concat(token[TURN - 2 :], token[TURN : TURN - 2])
        turned.next = concat(token[TURN - 1 :], token[TURN - 1])

    @always_comb
    def readers():
        here_1.next = turned_1[slots:]
        here_2.next = turned_2[slots:]
        here_soon.next = turned_soon[slots:]

    @always_comb
    def judge():
        rd_addr.next = at_0
        taken.next = live[2] and ok_2
        span.placed.next = enters

    @always_comb
    def give():
        land.next = 0
        if taken and not moves_2[8]:
            land.next = here_2
        pairs.next = rd_data
        if still_2[0]:
            pairs.next = concat(moves_2[8:], rd_data[bits:8])
        top.next = moves_2[pair_bits + 9 : 9]
        low.next = 0
        if end_2:
            low.next = still_2[pair_bits + 1 : 1]
        final.next = end_2

    @always_comb
    def steps():
        step.next = 0
        if down:
            step.next = LOWER
        elif moved:
            step.next = 1

    @always(clk.posedge)
    def move():
        token.next = turned
        enters.next = span.put and not enters and (span.slot & here_soon) != 0
        if rst:
            enters.next = False
        ok_2.next = (here_1 & avail) != 0
        same_1.next = at_0 == still_0[at_bits + pair_bits + 1 : pair_bits + 1]
        end_2.next = same_1
        at_1.next = at_0
        at_2.next = at_1
        at_3.next = at_2
        moved.next = taken
        down.next = taken and not here_2[UP]
        moves_3.next = moves_2
        if taken:
            moves_3.next = concat(modbv(FULL)[pair_bits:], False, rd_data[8:])
        at_4.next = at_3 + step

    @always(clk.posedge)
    def enter():
        live.next = concat(live[TURN - 1 :], live[TURN - 1])
        live.next[3] = live[2] and not (taken and end_2 and not here_2[UP])
        at_0.next = at_end
        still_0.next = still_end
        moves_0.next = moves_end
        if enters:
            live.next[0] = True
            at_0.next = span.at
            still_0.next = concat(span.bottom, span.low, span.odd)
            moves_0.next = concat(span.top, span.none, rd_data[8:])
        if rst:
            live.next = 0

    return lines, tokens, readers, judge, give, steps, move, enter
