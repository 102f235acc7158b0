"""frame_crc against zlib."""

from __future__ import annotations

import zlib

import pytest

from oscar_hdl.nic.crc.frame_crc import frame_crc
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.bench import run_until

pytestmark = pytest.mark.usefixtures("seed")


@pytest.mark.parametrize(("size", "lead"), [(8, 4), (8, 0), (16, 4), (32, 4), (64, 0)])
def test_a_message_has_the_crc_that_zlib_gives(size: int, lead: int):
    rng = dice(f"crc {size}")
    clk, rst, valid, last, done = (bit() for _ in range(5))
    data, missing, result = word(8 * size), word((size - 1).bit_length()), word(32)
    top = frame_crc(clk, rst, valid, data, last, missing, done, result, lead=lead)
    got: list[int] = []
    sim = CycleSimulator(top, clk, lambda: got.append(int(result)) if done else None)
    lengths = [
        1,
        size - lead,
        size - lead + 1,
        2 * size - lead - 1,
        1000,
        *(rng.randrange(1, 200) for _ in range(15)),
    ]
    for length in lengths:
        message = rng.randbytes(length)
        if rng.random() < 0.3:  # a reset forgets what came
            for n in range(rng.randrange(1, 6)):
                data.next, last.next, valid.next = rng.getrandbits(8 * size), n > 2, True
                sim.run(1)
            valid.next, rst.next = False, True
            sim.run(1)
            rst.next = False
        padded = bytes(lead) + message
        padded += bytes(-len(padded) % size)
        for at in range(0, len(padded), size):
            while rng.random() < 0.3:
                data.next, last.next = rng.getrandbits(8 * size), rng.random() < 0.5
                sim.run(1)
            data.next = int.from_bytes(padded[at : at + size], "little")
            last.next, valid.next = at + size == len(padded), True
            missing.next = len(padded) - lead - length
            sim.run(1)
            valid.next = False
        got.clear()
        clocks = run_until(sim, lambda: got)
        assert got == [zlib.crc32(message)]
        assert clocks == 6 + sum(divmod(len(padded) - lead - length, 4))
