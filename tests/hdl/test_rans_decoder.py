"""The decoder's core against the plain-integer coder: what was encoded comes back, whatever the pauses."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from myhdl import block, instance

from oscar_hdl.format2.params import CONTEXT_MAP, LANES, NEIGHBOUR_SHIFT, STATE_LOW, WEIGHT
from oscar_hdl.format2.reference import push_all
from oscar_hdl.rans_decoder import rans_decoder
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.bench import Pause, clock, never, randomly, simulate
from oscar_sim.seeds import dice

LATENCY, END_LATENCY, START = 8, 16, 34  # clocks, docs/hardware.md

Table = list[tuple[list[int], list[int]]]  # f and c of each context


@dataclass
class Block:
    """A block to decode, and what is to come of it."""

    table: Table
    zero: bool
    classes: list[int]
    pushes: list[int]
    symbols: list[tuple[int, int, int]]  # lane, context, symbol
    words: int


def table(rng: random.Random) -> Table:
    """Frequencies from flat to as steep as they get."""
    rows = []
    for _ in range(16):
        kind = rng.randrange(4)
        if kind == 0:
            f = [1] * 16
            f[rng.randrange(16)] = 4081
        elif kind == 1:
            f = [256] * 16
        else:
            weight = [rng.random() ** (1 if kind == 2 else 12) for _ in range(16)]
            f = [1 + int(4080 * w / sum(weight)) for w in weight]
            f[rng.randrange(16)] += 4096 - sum(f)
        rows.append((f, [sum(f[:s]) for s in range(16)]))
    return rows


def blocks(sizes: list[int], seed: int, *, rare: bool = False) -> list[Block]:
    """Blocks of one stream: neighbour states go on from one to the next, sometimes from 0.

    rare: symbols at random instead of as probable as the table says, so up to a word for each.
    """
    rng = dice(seed)
    states, made = [0] * LANES, []
    for number, n in enumerate(sizes):
        tab, zero = table(rng), number % 3 == 0
        if zero:
            states = [0] * LANES
        classes, symbols, coded = [], [], []
        for i in range(n):
            lane, position = i % LANES, rng.randrange(16)
            ctx = CONTEXT_MAP[position << 4 | states[lane].bit_length()]
            f, c = tab[ctx]
            s = rng.randrange(16) if rare or rng.random() < 0.1 else rng.choices(range(16), f)[0]
            states[lane] += (WEIGHT[s] - states[lane]) >> NEIGHBOUR_SHIFT
            classes.append(position)
            symbols.append((lane, ctx, s))
            coded.append((lane, f[s], c[s]))
        words, starts = push_all(coded)
        halves = [h for x in starts for h in (x & 4095, x >> 12)]
        made.append(Block(tab, zero, classes, halves + words, symbols, len(words)))
    return made


class Bench:
    """Drives the block: tables and words as early as they may come, symbols, and a reset if asked for."""

    def __init__(self, todo: list[Block], push: Pause, give: Pause, reset_at: int = 0) -> None:
        self.todo, self.push_pause, self.give_pause, self.reset_at = todo, push, give, reset_at
        self.symbols: list[tuple[int, int, int]] = []
        self.when: list[int] = []
        self.ends: list[tuple[int, bool]] = []

    def run(self) -> int:
        """Decode everything; return the clocks."""
        clk, rst, tw_en, push_valid, push_ready, words_end, start, start_bank = (bit() for _ in range(8))
        start_zero, in_valid, in_ready, in_final, in_end, out_valid, end_valid, end_ok = (
            bit() for _ in range(8)
        )
        tw_addr, tw_f, tw_c, push_word = word(9), word(12), word(12), word(12)
        in_class, out_lane, out_ctx, out_sym = (word(4) for _ in range(4))
        end_words = word(13)
        finished = False

        @block
        def top():
            dut = rans_decoder(
                clk, rst, tw_en, tw_addr, tw_f, tw_c, push_valid, push_ready, push_word, words_end, start,
                start_bank, start_zero, in_valid, in_ready, in_class, in_final, in_end, out_valid, out_lane,
                out_ctx, out_sym, end_valid, end_words, end_ok,
            )  # fmt: skip

            @instance
            def drive():
                nonlocal finished
                rng = dice(5)
                first = True
                while True:
                    at = 0
                    rst.next, in_valid.next, push_valid.next = True, False, False
                    start.next = tw_en.next = False
                    yield clk.posedge
                    rst.next = False
                    yield clk.posedge
                    pushes = [(w, b) for b, one in enumerate(self.todo) for w in one.pushes]
                    pushed, pushing = 0, False
                    limits = [sum(b <= number for _, b in pushes) for number in range(len(self.todo))]
                    writes = [
                        (number, (number & 1) << 8 | ctx << 4 | s, one.table[ctx][0][s], one.table[ctx][1][s])
                        for number, one in enumerate(self.todo)
                        for ctx in range(16)
                        for s in range(16)
                    ]
                    written = 0
                    current, offered, given = -1, False, 0
                    while len(self.ends) < len(self.todo):
                        # Words: a transfer in the clock that ended.
                        if pushing and push_ready:
                            pushed, pushing = pushed + 1, False
                        words_end.next = current >= 0 and pushed >= limits[current]
                        if offered and in_ready:
                            given, offered = given + 1, False
                        if out_valid:
                            self.symbols.append((int(out_lane), int(out_ctx), int(out_sym)))
                            self.when.append(at)
                        if end_valid:
                            self.ends.append((int(end_words), bool(end_ok)))
                        start.next = False
                        done = current < 0 or given == len(self.todo[current].classes)
                        ready = current + 1 < len(self.todo) and written >= 256 * (current + 2)
                        if done and ready and (written == 256 * (current + 2) or rng.random() < 0.5):
                            current, given = current + 1, 0
                            start.next, start_bank.next = True, current & 1
                            start_zero.next = self.todo[current].zero
                            words_end.next = False
                        if not pushing and pushed < len(pushes) and not self.push_pause():
                            pushing = True
                        push_valid.next = pushing
                        push_word.next = pushes[pushed][0] if pushing else rng.randrange(4096)
                        # A block's bank may be written once its predecessor's predecessor is out.
                        tw_en.next = False
                        number = writes[written][0] if written < len(writes) else len(self.todo)
                        if number < len(self.todo) and len(self.ends) >= number - 1 and rng.random() < 0.8:
                            tw_en.next = True
                            tw_addr.next, tw_f.next, tw_c.next = writes[written][1:]
                            written += 1
                        one = self.todo[max(current, 0)]
                        if not offered and given < len(one.classes) and current >= 0:
                            offered = not self.give_pause()
                        in_valid.next = offered
                        in_class.next = one.classes[given] if offered else rng.randrange(16)
                        in_final.next = given >= len(one.classes) - LANES if offered else rng.random() < 0.5
                        in_end.next = given == len(one.classes) - 1 if offered else rng.random() < 0.5
                        yield clk.posedge
                        at += 1
                        if first and at == self.reset_at:
                            break
                    if not (first and self.reset_at):
                        break
                    first = False
                    self.symbols, self.when, self.ends = [], [], []
                finished = True
                yield clk.posedge

            return dut, drive, clock(clk)

        return simulate(top, clk, until=lambda: finished, limit=60_000)


def check(bench: Bench) -> None:
    """Every symbol in order, every block's end."""
    assert bench.symbols == [s for one in bench.todo for s in one.symbols]
    assert bench.ends == [(one.words, True) for one in bench.todo]


@pytest.mark.parametrize(
    ("push", "give"),
    [
        (never, never),
        (randomly(0.4, 1), never),
        (never, randomly(0.3, 2)),
        (randomly(0.7, 3), randomly(0.7, 4)),
    ],
    ids=["steady", "slow words", "bubbles", "both"],
)
def test_decodes_what_was_encoded(push: Pause, give: Pause) -> None:
    bench = Bench(blocks([200, 100, 13, 36, 12, 77, 300], 1), push, give)
    bench.run()
    check(bench)


def test_one_symbol_per_clock() -> None:
    # Even when each symbol takes a word, which is what comes of symbols that the tables call rare.
    todo = blocks([400, 400], 2, rare=True)
    assert todo[1].words > 100
    bench = Bench(todo, never, never)
    bench.run()
    check(bench)
    for first, last in ((0, 399), (400, 799)):
        assert bench.when[last] - bench.when[first] == last - first
    # The next block is started in the clock after the last value, if its tables are there.
    assert bench.when[400] - bench.when[399] >= START + 1


@pytest.mark.parametrize("sizes", [[1], [5, 11, 3], [12, 1]])
def test_short_blocks(sizes: list[int]) -> None:
    bench = Bench(blocks(sizes, 3), never, randomly(0.2, 1))
    bench.run()
    check(bench)


@pytest.mark.parametrize("clocks", [150, 310, 323, 331, 345, 420])  # the middle ones in setup steps
def test_reset_forgets_everything(clocks: int) -> None:
    bench = Bench(blocks([90, 120], 4), randomly(0.2, 1), randomly(0.2, 2), reset_at=clocks)
    bench.run()
    check(bench)


def ends_right(one: Block) -> bool:
    """Whether all states of a block that begins with neighbour states of 0 end at the lowest."""
    halves, words = one.pushes[: 2 * LANES], iter(one.pushes[2 * LANES :])
    states = [low | high << 12 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    near = [0] * LANES
    for i, position in enumerate(one.classes):
        lane = i % LANES
        f, c = one.table[CONTEXT_MAP[position << 4 | near[lane].bit_length()]]
        slot = states[lane] & 4095
        s = max(s for s in range(16) if c[s] <= slot)
        x = f[s] * (states[lane] >> 12) + slot - c[s]
        states[lane] = x if x >= STATE_LOW else x << 12 | next(words, 0)
        near[lane] += (WEIGHT[s] - near[lane]) >> NEIGHBOUR_SHIFT
    return states == [STATE_LOW] * LANES


@pytest.mark.parametrize("places", [range(0, 2 * LANES, 2), range(-1, -9, -1)], ids=["start state", "word"])
def test_a_wrong_final_state_is_reported(places: range) -> None:
    # Another bit may also lead to other symbols and the right state: not every one is wrong.
    (one,) = blocks([60], 5)
    assert ends_right(one)
    for place in places:
        one.pushes[place] ^= 1
        if not ends_right(one):
            break
    bench = Bench([one], never, never)
    bench.run()
    assert [ok for _, ok in bench.ends] == [False]


@pytest.mark.parametrize("missing", [1, 40, -1, -20])
def test_missing_or_left_over_words_are_counted(missing: int) -> None:
    # It ends whatever is pushed. Left over words are all that is wrong with a block that has them.
    (one,) = blocks([300], 6, rare=True)
    pushed = one.words - missing
    one.pushes = one.pushes[:-missing] if missing > 0 else one.pushes + [5] * -missing
    bench = Bench([one], never, randomly(0.1, 1))
    bench.run()
    assert len(bench.symbols) == 300
    ((words, good),) = bench.ends
    assert words != pushed
    assert (words == one.words and good) or missing > 0  # what stands in for a word may be right
