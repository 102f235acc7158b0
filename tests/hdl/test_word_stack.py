"""The word stack: blocks come back last word first, whatever the pace, and `hold` keeps them apart."""

from __future__ import annotations

from typing import Any

import pytest
from myhdl import block, instance

from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.word_stack import word_stack
from oscar_sim.bench import clock, never, randomly, simulate
from oscar_sim.seeds import dice

UNDER_WAY = 38  # words that still come after `hold`
Blocks = list[list[int]]


class Bench:
    """A stack, a pusher that obeys the contract, and a reader that takes or gives up blocks."""

    def __init__(self, blocks: Blocks, push: Any, late_end: Any, pop: Any, rest: int = 0) -> None:
        self.blocks, self.push, self.late_end, self.pop, self.rest = blocks, push, late_end, pop, rest
        self.clk, self.rst, self.flush = bit(), bit(), bit()
        self.push_valid, self.push_word, self.push_end = bit(), word(12), bit()
        self.hold, self.hold_start = bit(), bit()
        self.valid, self.words, self.drop, self.m_axis = bit(), word(13), bit(), Stream(12)
        self.got: Blocks = []
        self.held = 0
        self.waited: list[int] = []  # clocks from blk_valid to the first word

    @block
    def dut(self) -> Any:
        """Everything, until all blocks were read."""
        dut = word_stack(
            self.clk, self.rst, self.flush, self.push_valid, self.push_word, self.push_end, self.hold,
            self.hold_start, self.valid, self.words, self.drop, self.m_axis,
        )  # fmt: skip

        @instance
        def pusher():
            under_way = [None] * UNDER_WAY  # a coder whose words come this much later
            for number, words in enumerate(self.blocks):
                items = [(w, False) for w in words]
                if not words or self.late_end():
                    items.append((None, True))
                else:
                    items[-1] = (words[-1], True)
                while len(self.got) < number - 1:
                    under_way = yield from self.clock_in(under_way, None)
                for i, item in enumerate(items):
                    while self.hold or (i == 0 and self.hold_start) or self.push():
                        self.held += bool(self.hold)
                        under_way = yield from self.clock_in(under_way, None)
                    under_way = yield from self.clock_in(under_way, item)
            while True:
                under_way = yield from self.clock_in(under_way, None)

        @instance
        def reader():
            while True:
                yield self.clk.posedge
                self.drop.next = False
                if not self.valid or self.drop:
                    continue
                taken: list[int] = []
                size, clocks, ready = int(self.words), 0, False
                for _ in range(self.rest):
                    yield self.clk.posedge
                if size > 1536:
                    taken = [0] * size
                while len(taken) < size:
                    ready = not self.pop()
                    self.m_axis.tready.next = ready
                    yield self.clk.posedge
                    clocks += 1
                    if self.m_axis.tvalid and ready:
                        if not taken:
                            self.waited.append(clocks)
                        taken.append(int(self.m_axis.tdata))
                        assert bool(self.m_axis.tlast) == (len(taken) == size)
                    assert self.valid
                    assert self.words == size
                self.m_axis.tready.next = False
                assert len(taken) == size
                self.got.append(taken[::-1])
                self.drop.next = True

        return dut, pusher, reader, clock(self.clk)

    def clock_in(self, under_way: list[Any], item: Any) -> Any:
        """Let an item go on its way; push what arrives. Yields one clock."""
        arrives = under_way[0]
        self.push_valid.next = arrives is not None and arrives[0] is not None
        self.push_word.next = 0 if arrives is None or arrives[0] is None else arrives[0]
        self.push_end.next = arrives is not None and arrives[1]
        yield self.clk.posedge
        return [*under_way[1:], item]

    def run(self, limit: int) -> int:
        """Return the clocks it took."""

        @block
        def top():
            return self.dut()

        return simulate(top, self.clk, until=lambda: len(self.got) == len(self.blocks), limit=limit)


def blocks_of(sizes: list[int], seed: int = 1) -> Blocks:
    """Blocks of random words."""
    rng = dice(seed)
    return [[rng.randrange(4096) for _ in range(size)] for size in sizes]


@pytest.mark.parametrize("push", [0.0, 0.6])
@pytest.mark.parametrize("pop", [0.0, 0.6])
def test_blocks_come_back_last_first(push: float, pop: float) -> None:
    blocks = blocks_of([1, 2, 3, 4, 5, 6, 7, 0, 0, 1, 0, 33, 200, 100, 8, 301, 302, 3, 303, 0, 12])
    bench = Bench(
        blocks,
        randomly(push, 1) if push else never,
        randomly(0.5, 2),
        randomly(pop, 3) if pop else never,
    )
    bench.run(20_000)
    assert bench.got == blocks
    if not pop:
        assert max(bench.waited) <= 5


def test_a_block_is_read_at_a_word_a_clock_and_the_next_pushed_meanwhile() -> None:
    blocks = blocks_of([1200, 300])
    bench = Bench(blocks, never, never, never)
    clocks = bench.run(10_000)
    assert bench.got == blocks
    assert clocks <= 1200 + UNDER_WAY + 1200 + 300 + 20
    assert bench.held == 0


def test_hold_keeps_the_next_block_from_the_rows_of_this_one() -> None:
    # 512 rows for one block; then two that do not fit beside each other, read late.
    blocks = blocks_of([1536, 800, 1535, 1534, 1000, 1000])
    bench = Bench(blocks, never, never, never, rest=1500)
    bench.run(40_000)
    assert bench.got == blocks
    assert bench.held > 1000


def test_a_block_too_long_is_counted_and_never_held_when_alone() -> None:
    blocks = blocks_of([4096, 7])
    bench = Bench(blocks, never, never, never)
    bench.run(20_000)
    assert [len(words) for words in bench.got] == [4096, 7]
    assert bench.got[1] == blocks[1]
    assert bench.held == 0


@pytest.mark.parametrize("signal", ["flush", "rst"])
def test_flush_and_reset_forget_both_blocks(signal: str) -> None:
    bench = Bench([], never, never, never)
    rng, words = dice(4), blocks_of([40], 7)[0]
    seen: list[int] = []

    @block
    def top() -> Any:
        dut = word_stack(
            bench.clk, bench.rst, bench.flush, bench.push_valid, bench.push_word, bench.push_end, bench.hold,
            bench.hold_start, bench.valid, bench.words, bench.drop, bench.m_axis,
        )  # fmt: skip
        forget = getattr(bench, signal)

        @instance
        def drive():
            for _ in range(10):
                # A block waits, being read; a second one is complete; a word of a third comes with the flush.
                for size in (rng.randrange(1, 30), rng.randrange(1, 30), 1):
                    for i in range(size):
                        bench.push_valid.next, bench.push_end.next = True, i == size - 1 and size > 1
                        yield bench.clk.posedge
                    bench.push_valid.next, bench.push_end.next = False, False
                    for _ in range(rng.randrange(4)):
                        yield bench.clk.posedge
                    bench.m_axis.tready.next = rng.random() < 0.5
                bench.push_valid.next, forget.next, bench.m_axis.tready.next = True, True, False
                yield bench.clk.posedge
                bench.push_valid.next, forget.next = False, False
                yield bench.clk.posedge
                assert not bench.valid
                assert not bench.m_axis.tvalid
                for i, w in enumerate(words):
                    bench.push_valid.next, bench.push_word.next = True, w
                    bench.push_end.next = i == len(words) - 1
                    yield bench.clk.posedge
                bench.push_valid.next, bench.push_end.next = False, False
                taken: list[int] = []
                bench.m_axis.tready.next = True
                while len(taken) < len(words):
                    yield bench.clk.posedge
                    if bench.m_axis.tvalid:
                        taken.append(int(bench.m_axis.tdata))
                        assert bench.words == len(words)
                assert taken[::-1] == words
                bench.drop.next, bench.m_axis.tready.next = True, False
                yield bench.clk.posedge
                bench.drop.next = False
                seen.append(1)

        return dut, drive, clock(bench.clk)

    simulate(top, bench.clk, until=lambda: len(seen) == 10, limit=20_000)
