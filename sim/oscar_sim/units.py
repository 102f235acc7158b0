"""Barrel units of converted RTL, one at a time, with rows, bytes and counts around them in C++.

Lists of blocks run without Python (verilator/barrel_decoder.cpp, barrel_encoder.cpp): memory that is not
always ready, bytes that come and go with gaps, resets, and tables that are written while the frame before
is coded.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oscar_sim.verilator import Model

HERE = Path(__file__).parent / "verilator"
FAULTS = (  # enum Fault of faults.h
    "asked for a row of no block", "asked for a row too early or beside a turn's begin",
    "asked for a row that is not there", "gave sums that nobody waits for", "asked for a row to add twice",
    "gave a sum behind the last value", "described a row wrongly", "counted beside its turns",
    "took or gave too many bytes", "left bytes", "changed an offer", "ended bytes wrongly", "hangs",
    "is done without a block",
)  # fmt: skip

BLOCK = np.dtype([  # struct Block of barrel.h
    *((n, "u8") for n in ("distances", "means", "headers", "values")), ("rows", "u4"), ("count", "u4"),
    *((n, "u8") for n in ("bytes", "local", "totals", "described", "counts")),
    *((n, "u4") for n in ("room", "given", "frame", "bank")),
    *((n, "u4") for n in ("size", "raw", "seeds", "first", "last", "bad", "constant", "value", "bits")),
    ("reset_at", "i4"), *((n, "u4") for n in ("idle", "busy", "refuse")),
    *((n, "u4") for n in ("faults", "resets", "began", "ended")),
], align=True)  # fmt: skip
FRAME = np.dtype([("writes", "u8"), ("count", "u4"), ("bank", "u4")])


@dataclass(frozen=True)
class Stress:
    """Shares of clocks or slots in which bytes idle or are not taken, memory is not ready; pry: nic.cpp's."""

    idle: float = 0.0
    busy: float = 0.0
    refuse: float = 0.0
    pry: float = 0.0


@dataclass
class Batch:
    """Blocks (BLOCK) and frames in C; `keep` holds the arrays that they point to."""

    blocks: np.ndarray
    frames: np.ndarray
    keep: list[Any] = field(default_factory=list)

    def hold(self, array: np.ndarray) -> int:
        """Return the address of an array that has to last as long as the batch."""
        self.keep.append(array)
        return array.ctypes.data


def faults(bits: int) -> str:
    """Return in words what a unit did."""
    return ", ".join(name for n, name in enumerate(FAULTS) if bits >> n & 1)


class Unit:
    """A barrel_decoder or a barrel_encoder (`kind`)."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.model = Model(kind, harness=HERE / f"{kind}.cpp")
        self._run = getattr(self.model.library, f"{kind}_run")
        self._run.restype = ctypes.c_uint64
        self._run.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32,
            ctypes.c_uint64, ctypes.c_void_p,
        ]  # fmt: skip

    def run(self, batch: Batch, seed: int) -> tuple[int, int]:
        """Run a batch; return clocks, and how many blocks ended before one had a fault."""
        done = np.zeros(1, np.uint32)
        clocks = self._run(
            self.model.handle, batch.blocks.ctypes.data, len(batch.blocks), batch.frames.ctypes.data,
            len(batch.frames), seed, done.ctypes.data,
        )  # fmt: skip
        return int(clocks), int(done[0])
