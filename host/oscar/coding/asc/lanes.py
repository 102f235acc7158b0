"""The states of a block's 32 lanes in plain integers (docs/reference/asc.md, "The coder")."""

from __future__ import annotations

from collections.abc import Sequence

from oscar.coding.asc.params import (
    FLUSH_BYTES,
    LANES,
    PROB_BITS,
    RAW_STEP,
    STATE_LOW,
    TOTAL,
)  # fmt: skip
from oscar.errors import FrameError

Step = tuple[int, int, int, int]  # frequency, cumulative frequency, raw bits, their number


def raw_steps(value: int, bits: int) -> list[Step]:
    """Return the raw steps of a value's `bits` low bits, lowest first."""
    steps = []
    for at in range(0, bits, RAW_STEP):
        size = min(RAW_STEP, bits - at)
        steps.append((TOTAL, 0, (value >> at) & ((1 << size) - 1), size))
    return steps


class Lanes:
    """The states of a block's 32 lanes, the bytes that they emitted, and how many each `pop` took back."""

    def __init__(self, states: list[int], data: bytes = b"") -> None:
        self.states, self.data = states, bytearray(data)
        self.taken: list[int] = []

    def push(self, steps: Sequence[Step]) -> None:
        """Code one step in each lane, lane 0 first."""
        for lane, (f, c, raw, size) in enumerate(steps):
            x = self.states[lane]
            while x >= f << (14 - size):
                self.data.append(x & 255)
                x >>= 8
            x = x << size | raw
            self.states[lane] = ((x // f) << PROB_BITS) + c + x % f

    def pop(self, tables: Sequence[tuple[list[int], Sequence[int]]]) -> list[tuple[int, int]]:
        """Undo one step in each lane, the last lane first; return the symbol and raw bits of each.

        tables: for each lane, the frequencies and the numbers of raw bits of all symbols. Raises FrameError
        if bytes are missing.
        """
        out, before = [], len(self.data)
        for lane in reversed(range(len(tables))):
            x, (freq, sizes) = self.states[lane], tables[lane]
            slot, s, c = x % TOTAL, 0, 0
            while c + freq[s] <= slot:
                c += freq[s]
                s += 1
            x = freq[s] * (x >> PROB_BITS) + slot - c
            raw = x & ((1 << sizes[s]) - 1)
            x >>= sizes[s]
            while x < STATE_LOW:
                if not self.data:
                    raise FrameError("a block's bytes end before its values do")
                x = x << 8 | self.data.pop()
            self.states[lane] = x
            out.append((s, raw))
        self.taken.append(before - len(self.data))
        return out[::-1]

    def flush(self) -> bytes:
        """Return all bytes: those emitted, the low byte of each state, then the upper two of each."""
        low = bytes(x & 255 for x in self.states)
        return bytes(self.data) + low + b"".join((x >> 8).to_bytes(2, "little") for x in self.states)

    @classmethod
    def load(cls, data: bytes) -> Lanes:
        """Return the coder whose `flush` returned `data`; raises FrameError if a state is below 2^16."""
        body, low, up = data[:-FLUSH_BYTES], data[-FLUSH_BYTES : -2 * LANES], data[-2 * LANES :]
        states = [low[i] | int.from_bytes(up[2 * i : 2 * i + 2], "little") << 8 for i in range(LANES)]
        if min(states) < STATE_LOW:
            raise FrameError("a coder state is below 2^16")
        return cls(states, body)
