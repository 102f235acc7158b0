"""CRC-32 (IEEE) of sixteen bits a clock, and the same polynomial arithmetic in plain integers."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, modbv

POLY = 0xEDB88320  # bit 31 is x^0: the reflected form, in which the low bit of a byte goes first
ONES = 0xFFFFFFFF


def step(state: int, data: int, bits: int = 16) -> int:
    """Return `state` moved on by `bits` of data, lowest first; neither is inverted."""
    state ^= data & ((1 << bits) - 1)
    for _ in range(bits):
        state = (state >> 1) ^ (POLY if state & 1 else 0)
    return state


def unstep(state: int, data: int, bits: int = 16) -> int:
    """Return the state from which `step` with the same data leads to `state`."""
    for _ in range(bits):
        state = ((state ^ POLY) << 1 | 1) if state >> 31 else state << 1
    return state ^ (data & ((1 << bits) - 1))


# What a group of four bits becomes after sixteen steps. Each bit of a result is one 4-input function, and
# the 15 that exist are shared, which is what makes this small.
NIBBLE0 = tuple(step(value, 0) for value in range(16))
NIBBLE1 = tuple(step(value << 4, 0) for value in range(16))
NIBBLE2 = tuple(step(value << 8, 0) for value in range(16))
NIBBLE3 = tuple(step(value << 12, 0) for value in range(16))


@block
def crc32(state: Any, data: Any, result: Any) -> Any:
    """Give as `result` the CRC after two more bytes; combinational, not inverted.

    state u32: the CRC so far, all ones at the start of a message; data u16: the low byte comes first;
    result u32.
    """

    @always_comb
    def move():
        mixed = modbv(0)[16:]
        part0 = modbv(0)[32:]
        part1 = modbv(0)[32:]
        part2 = modbv(0)[32:]
        part3 = modbv(0)[32:]
        mixed[:] = state[16:] ^ data
        part0[:] = NIBBLE0[int(mixed[4:])]
        part1[:] = NIBBLE1[int(mixed[8:4])]
        part2[:] = NIBBLE2[int(mixed[12:8])]
        part3[:] = NIBBLE3[int(mixed[16:12])]
        result.next = state[32:16] ^ part0 ^ part1 ^ part2 ^ part3

    return move
