"""frame_receiver with barrel decoders: frames of the host become sums in memory, in any order of blocks."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest

from hdl.test_frame_receiver import forge
from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.frame import HEADER_BYTES
from oscar.errors import FrameError
from oscar_hdl.coder.rows import frame_rows
from oscar_sim.seeds import dice
from support.nic_bench import gradient
from support.receiver_sums_bench import LANES, ROWS, ReceiverSumsBench

pytestmark = pytest.mark.usefixtures("seed")

BLOCK_LOG2, GOOD, BLOCK = 10, 0, 3


class Sums:
    """A bench, what its memory must hold, and of which rows nothing is known: of frames with a bad block."""

    def __init__(self, rng: random.Random, **shape: float) -> None:
        self.rng = rng
        self.bench = ReceiverSumsBench(rng, block_log2=BLOCK_LOG2, store_log2=11, **shape)
        self.expected, self.unknown = np.zeros((ROWS, LANES), np.int16), np.zeros((ROWS, LANES), bool)
        self.open: deque[tuple[bool, slice, bool, np.ndarray]] = deque()
        self.number, self.ended = 0, [0, 0]

    def give(self, values: np.ndarray, positions: np.ndarray, row: int, adopt: bool, damage: int = 0) -> None:
        """Send a frame, some bytes of which are changed, and start its command once one is taken."""
        rng, bench = self.rng, self.bench
        params = AscParams(block_log2=BLOCK_LOG2, sent_rows=False)
        frame = Encoder(params).encode(values, step=3, context=positions, width=16, chunk=self.number)
        entries = -(-values.size // (1 << BLOCK_LOG2))
        blocks = len(frame) - HEADER_BYTES - 2 - 6 * entries
        changes: dict[int, int] = {}
        for _ in range(damage):
            at = len(frame) - 1 - rng.randrange(max(1, blocks // 2))
            changes[at] = frame[at] ^ 1 << rng.randrange(8)
        frame = forge(frame, changes)
        try:
            values = Decoder(params).decode(frame, step=3, context=positions)
            refused = False
        except FrameError:
            refused = True
        bench.send(frame)
        for _ in range(10_000):
            if bench.command.idle:
                break
            self.take()
        else:
            raise TimeoutError("no command is taken within 80,000 clocks")
        bench.known.append(frame_rows(values.astype(np.int32), positions))
        bench.start(frame, fresh=1, load=self.number % 4, save=self.number % 4, where=(row, adopt))
        self.open.append((refused, slice(LANES * row, LANES * row + values.size), adopt, values))
        self.number += 1

    def take(self) -> None:
        """Go on; keep what a command that has ended did."""
        self.bench.sim.run(8)
        while self.bench.dones:
            refused, place, adopt, values = self.open.popleft()
            error = self.bench.dones.popleft().error
            assert bool(error) == refused, (error, refused)
            self.ended[refused] += 1
            flat, unknown = self.expected.reshape(-1), self.unknown.reshape(-1)
            if adopt and not refused:
                flat[place.start : -(-place.stop // LANES) * LANES] = 0
                unknown[place] = False
            flat[place] += values.astype(np.int16)
            # A frame that adopts had its rows cleared before a bad block was found.
            unknown[place.start : -(-place.stop // LANES) * LANES if adopt else place.stop] |= refused

    def end(self) -> None:
        """Wait for all commands, and compare memory."""
        limit = self.bench.sim.clocks + 100_000
        while self.open:
            self.take()
            assert self.bench.sim.clocks < limit, "the receiver hangs"
        got = np.where(self.unknown, self.expected, self.bench.memory)
        np.testing.assert_array_equal(got, self.expected)


def test_two_frames_add_to_the_same_rows_at_once() -> None:
    """The second one's blocks do not wait for the first one's."""
    rng = dice("sums twins")
    sums = Sums(rng, units=1, bus_bits=64)
    positions = np.full(3008, 6, np.uint8)
    for n in range(6):
        values, _ = gradient(rng, 3008, "normal")
        sums.give(values, positions, 0, n == 0)
    sums.end()
    assert sums.bench.twins > 0


def test_a_reset_at_any_clock_forgets_everything() -> None:
    rng = dice("sums reset")
    sums = Sums(rng, units=2, bus_bits=128)
    for _ in range(4):
        for _ in range(rng.randrange(1, 3)):
            values, positions = gradient(rng, rng.randrange(1, 4000), "normal")
            sums.give(values, positions, row=0, adopt=True)
        sums.bench.sim.run(rng.randrange(1, 1500))
        sums.bench.reset()
        sums.open.clear()
        sums.bench.memory[:] = sums.expected
        values, positions = gradient(rng, rng.randrange(1, 3000), "normal")
        sums.give(values, positions, row=0, adopt=True)
        sums.end()
