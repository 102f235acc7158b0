"""The statistics of symbols and the next shift, against the state's own rule."""

from __future__ import annotations

import random

import pytest
from myhdl import block, instance

from oscar_hdl.format2.params import WEIGHT
from oscar_hdl.format2.state import TableState
from oscar_hdl.shift_tracker import shift_tracker
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.bench import clock, simulate
from oscar_sim.seeds import dice


def expected(symbols: list[int], shift: int) -> tuple[int, bool]:
    """Shift after a frame in which these symbols were counted, and whether it is another."""
    state = TableState.initial()
    state.shift[0] = shift
    state.adapt_shift(sum(s > 0 for s in symbols), sum(WEIGHT[s] for s in symbols))
    return int(state.shift[0]), int(state.shift[0]) != shift


def run(frames: list[tuple[list[int], int]], every: int) -> list[tuple[int, bool]]:
    """What the block says of frames (symbols, shift), with a symbol in each `every`-th clock."""
    clk, rst, clear, valid, finish, done, changed = (bit() for _ in range(7))
    sym, shift, new_shift = word(4), word(4), word(4)
    said: list[tuple[int, bool]] = []

    @block
    def top():
        dut = shift_tracker(clk, rst, clear, valid, sym, finish, shift, done, new_shift, changed)

        @instance
        def drive():
            rng = dice(7)
            for number, (symbols, k) in enumerate(frames):
                # Something to forget: a part of a frame, then a reset or a clear beside a symbol.
                for _ in range(5):
                    sym.next, valid.next = 15, True
                    finish.next = number == 2  # a comparison is under way at the reset
                    yield clk.posedge
                valid.next, rst.next, clear.next, finish.next = True, number & 1 == 0, number & 1, False
                yield clk.posedge
                rst.next, clear.next, valid.next, shift.next = False, False, False, k
                for i, s in enumerate(symbols):
                    sym.next, valid.next, finish.next = s, True, i == len(symbols) - 1
                    yield clk.posedge
                    valid.next, finish.next, sym.next = False, False, rng.randrange(16)
                    for _ in range(every - 1):
                        yield clk.posedge
                if not symbols:
                    finish.next = True
                    yield clk.posedge
                valid.next, finish.next = False, False
                clocks = 0
                while not done:
                    yield clk.posedge
                    clocks += 1
                said.append((int(new_shift), bool(changed)))
                yield clk.posedge
                assert not done
                assert clocks <= 37

        return dut, drive, clock(clk)

    simulate(top, clk, until=lambda: len(said) == len(frames), limit=100_000)
    return said


def mixed(rng: random.Random, size: int) -> list[int]:
    """Symbols around a random level."""
    level = rng.randrange(16)
    return [min(15, max(0, level + rng.randrange(-2, 3))) for _ in range(size)]


@pytest.mark.parametrize("every", [1, 2])
def test_follows_the_rule(every: int) -> None:
    rng = dice(every)
    frames = [(mixed(rng, rng.randrange(40)), rng.randrange(16)) for _ in range(60)]
    assert run(frames, every) == [expected(*frame) for frame in frames]


def test_edges_of_every_octave_and_both_ends_of_the_shift() -> None:
    # Means just below, at and above 2, 4, ... 128 out of symbols of 2, 4, ... and their neighbours.
    frames = []
    for low, high in [(1, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)]:
        for share in range(9):
            symbols = [low] * (8 - share) + [high] * share
            frames += [(symbols, k) for k in (0, 3, 14, 15)]
    exact = [([4] * 24 + [9] * 32, 7), ([0] * 5, 9), ([], 4), ([15] * 3000, 0), ([1] * 3000, 2)]
    frames += exact
    assert run(frames, 1) == [expected(*frame) for frame in frames]
