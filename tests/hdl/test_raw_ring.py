"""The ring of raw words: order, taking back, fullness and overflow."""

from __future__ import annotations

import pytest
from myhdl import block, instance

from oscar_hdl.params import LaneParams
from oscar_hdl.raw_ring import MARGIN, raw_ring
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import clock, randomly, simulate, sink
from oscar_sim.seeds import dice

LATE = 14  # words that a source sends after `full`, at the most


class Ring:
    """A bench: blocks of words are written by `script`, what is read comes into `taken`."""

    def __init__(self, width_max: int, pause: float) -> None:
        self.params = LaneParams(block_log2=10, width_max=width_max)
        self.capacity = (3 if width_max <= 12 else 4) << 8
        self.clk, self.rst, self.valid, self.last, self.commit, self.rewind, self.flush = (
            bit() for _ in range(7)
        )
        self.full, self.overflow = bit(), bit()
        self.data, self.own, self.m_axis = word(16), word(11), Stream(16)
        self.taken: list[tuple[int, bool]] = []
        self.pause = pause
        self.rng = dice(3)

    def write(self, words: list[int], most: int = 1 << 20):
        """Send a block's words unless `full` (or after `most` stalled clocks, nevertheless)."""
        recent = [False] * LATE
        for i, w in enumerate(words):
            self.valid.next = False
            while recent[-1] or self.rng.random() < self.pause / 2:
                yield self.clk.posedge
                recent = [bool(self.full), *recent[:-1]]
            self.valid.next, self.data.next, self.last.next = True, w, i == len(words) - 1
            yield self.clk.posedge
            recent = [bool(self.full), *recent[:-1]]
        self.valid.next = False
        for _ in range(3):
            yield self.clk.posedge

    def strobe(self, signal):
        signal.next = True
        yield self.clk.posedge
        signal.next = False
        yield self.clk.posedge

    def run(self, script, limit: int) -> None:
        finished: list[bool] = []

        @block
        def top():
            dut = raw_ring(
                self.clk, self.rst, self.valid, self.last, self.data, self.commit, self.rewind, self.flush,
                self.own, self.full, self.overflow, self.m_axis, params=self.params,
            )  # fmt: skip
            reader = sink(self.clk, self.rst, self.m_axis, self.taken, randomly(self.pause, 5))

            @instance
            def drive():
                yield self.clk.posedge
                yield from script()
                finished.append(True)

            return clock(self.clk), dut, reader, drive

        simulate(top, self.clk, until=lambda: bool(finished), limit=limit)


@pytest.mark.parametrize("pause", [0.0, 0.3])
@pytest.mark.parametrize("width_max", [12, 16])
def test_order_across_full_and_taken_back(width_max, pause):
    ring = Ring(width_max, pause)
    expected: list[tuple[int, bool]] = []

    def script():
        rng = dice(9)
        for number in range(14):
            size = rng.choice([1, 7, 200, 500, ring.capacity - MARGIN - 1])
            words = [rng.randrange(1 << 16) for _ in range(size)]
            yield from ring.write(words)
            assert ring.own == size
            assert not ring.overflow
            if number % 3 == 1:
                yield from ring.strobe(ring.rewind)
            else:
                yield from ring.strobe(ring.commit)
                expected.extend((w, i == size - 1) for i, w in enumerate(words))
        while len(ring.taken) < len(expected):
            yield ring.clk.posedge

    ring.run(script, 60_000)
    assert ring.taken == expected


def test_overflow_is_dropped_and_flush_or_reset_empties():
    ring = Ring(12, 0.2)

    def script():
        for number, forget in enumerate((ring.flush, ring.rst, ring.rewind)):
            yield from ring.write([1, 2, 3])
            yield from ring.strobe(ring.commit)
            while len(ring.taken) < 6 * number + 3:
                yield ring.clk.posedge
            yield from ring.write([9] * 1000)  # never stalls for good
            assert ring.overflow
            assert ring.own >= ring.capacity - MARGIN  # with 18 words of states as long as 12 bits a value
            yield from ring.strobe(forget)
            yield ring.clk.posedge
            assert not ring.overflow
            assert ring.own == 0
            yield from ring.write([4, 5, 6])
            yield from ring.strobe(ring.commit)
            while len(ring.taken) < 6 * number + 6:
                yield ring.clk.posedge
            assert [w for w, _ in ring.taken[-6:]] == [1, 2, 3, 4, 5, 6]

    ring.run(script, 20_000)
