"""crc_sum: blocks in any order give the CRC-32 of the whole, each in a few clocks."""

from __future__ import annotations

import zlib
from itertools import pairwise

import pytest

from oscar_hdl.nic.crc.crc_sum import crc_sum
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.bench import run_until

pytestmark = pytest.mark.usefixtures("seed")

ONES = 0xFFFFFFFF


def raw_crc(data: bytes) -> int:
    """Return the state, not inverted, that begins with 0."""
    return zlib.crc32(data, ONES) ^ ONES


@pytest.mark.parametrize(("size", "bits"), [(8, 12), (16, 6), (64, 9)])
def test_blocks_give_the_whole(size: int, bits: int) -> None:
    rng = dice(size)
    clk, rst, clear, ended, absorb, finish, idle = (bit() for _ in range(7))
    state, offset, pad, crc = word(32), word(bits), word(size.bit_length() - 1), word(32)
    top = crc_sum(
        clk, rst, clear, ended, state, offset, absorb, finish, pad, idle, crc, word_bytes=size
    )  # fmt: skip
    simulator = CycleSimulator(top, clk, lambda: None)
    for _ in range(4):
        words = rng.choice((1, 2, 40, (1 << bits) - 1))
        message = rng.randbytes(words * size - rng.randrange(size))
        cuts = sorted({0, len(message), *(rng.randrange(len(message)) for _ in range(rng.randrange(9)))})
        blocks = list(pairwise(cuts))
        rng.shuffle(blocks)
        clear.next = True
        simulator.run(1)
        clear.next = False
        reach = None
        for begin, end in blocks:
            first, last = begin // size, (end - 1) // size
            whole = bytes(begin % size) + message[begin:end] + bytes((last + 1) * size - end)
            assert len(whole) == (last - first + 1) * size
            ended.next, state.next, offset.next = True, raw_crc(whole), last
            simulator.run(1)
            ended.next = False
            simulator.run(1)
            assert absorb
            clocks = run_until(simulator, lambda: idle)
            apart = 0 if reach is None else abs(last - reach)
            reach = max(last, reach or 0)
            steps = apart >> 6, apart >> 3 & 7, apart & 7
            assert clocks == (4 + 2 * sum(steps) if apart else 2)
        pad.next, finish.next = -len(message) % size, True
        simulator.run(1)
        finish.next = False
        simulator.run(2)
        run_until(simulator, lambda: idle)
        assert int(crc) == raw_crc(message)
