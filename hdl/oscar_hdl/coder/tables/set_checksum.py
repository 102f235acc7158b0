"""The checksum of a table set, 16 bits a clock."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar.coding.asc.params import PRIOR, SYMBOLS, AscParams
from oscar_hdl.streams.bundles import word

POLY = 0xEDB88320  # bit 31 is x^0: the reflected form, in which the low bit of a byte goes first


def step(state: int) -> int:
    """Return a CRC's state 16 zero bits later."""
    for _ in range(16):
        state = (state >> 1) ^ (POLY if state & 1 else 0)
    return state


def unstep(state: int) -> int:
    """Return the state from which `step` leads to `state`."""
    for _ in range(16):
        state = ((state ^ POLY) << 1 | 1) if state >> 31 else state << 1
    return state


def initial_checksum(params: AscParams) -> int:
    """Return the checksum of a table set from which nothing was coded yet."""
    entries = [h for row in PRIOR for h in (*row, *[0] * (SYMBOLS - len(row)))]
    crc = zlib.crc32(struct.pack(f"<{len(entries)}H", *entries), params.fingerprint)
    return (crc ^ crc >> 16) & 0xFFFF


# What each four of the low 16 bits become. Each bit of a result is one 4-input function.
NIBBLE0 = tuple(step(value) for value in range(16))
NIBBLE1 = tuple(step(value << 4) for value in range(16))
NIBBLE2 = tuple(step(value << 8) for value in range(16))
NIBBLE3 = tuple(step(value << 12) for value in range(16))


@block
def set_checksum(clk: Any, clear: Any, run: Any, entry: Any, checksum: Any, *, params: AscParams) -> Any:
    """Take 512 entries u16, one a clock, with `run`, which stays one clock more with an entry of 0.

    clear: before; afterwards checksum u16 is docs/asc.md's, "Frame", and holds while run is low.
    """
    # The entry is added one step early, so that it is no part of the slow path.
    before_all = unstep(params.fingerprint ^ 0xFFFFFFFF)
    state = word(32)

    @always(clk.posedge)
    def move():
        part0 = modbv(0)[32:]
        part1 = modbv(0)[32:]
        part2 = modbv(0)[32:]
        part3 = modbv(0)[32:]
        part0[:] = NIBBLE0[int(state[4:])]
        part1[:] = NIBBLE1[int(state[8:4])]
        part2[:] = NIBBLE2[int(state[12:8])]
        part3[:] = NIBBLE3[int(state[16:12])]
        if run:
            state.next = state[32:16] ^ part0 ^ part1 ^ part2 ^ part3 ^ entry
        if clear:
            state.next = before_all

    @always_comb
    def fold():
        checksum.next = state[32:16] ^ state[16:]  # inverted twice: not at all

    return move, fold
