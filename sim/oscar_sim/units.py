"""Decoders and encoders of converted RTL, one at a time, with rows, bytes and counts around them in C++.

Lists of blocks run without Python (verilator/decoder.cpp, encoder.cpp and those of barrels): memory that is
not always ready, bytes that come and go with gaps, resets, and tables that are written while the frame before
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
FAULTS = (  # enum Fault of memory.h
    "took a row that memory did not allow", "took rows in less than a slot", "took a row that is not there",
    "gave a total unasked", "took a row to add twice", "gave a total behind the last value",
    "described a row wrongly", "counted after the end",
    "took or gave too many bytes", "left bytes", "changed an offer", "ended bytes wrongly", "hangs",
    "is done without a block",
)  # fmt: skip

_ROWS = [
    ("distances", "u8"),
    ("means", "u8"),
    ("headers", "u8"),
    ("values", "u8"),
    ("rows", "u4"),
    ("count", "u4"),
]
_STRESS = [("idle", "u4"), ("busy", "u4"), ("refuse", "u4")]
DECODER_BLOCK = np.dtype([
    *_ROWS, *((n, "u8") for n in ("bytes", "local", "totals", "described", "counts")),
    *((n, "u4") for n in ("size", "frame", "bank", "thinning", "seeds", "first", "last")),
    ("reset_at", "i4"), ("early", "u4"), *_STRESS,
    *((n, "u4") for n in ("bad", "faults", "taken", "headers_taken", "resets", "clocks")),
], align=True)  # fmt: skip
ENCODER_BLOCK = np.dtype([
    *_ROWS, *((n, "u8") for n in ("bytes", "counts")),
    *((n, "u4") for n in ("room", "frame", "bank", "thinning")),
    ("reset_at", "i4"), *_STRESS,
    *((n, "u4") for n in ("bad", "constant", "value", "seeds", "first", "last", "size", "bits", "given")),
    *((n, "u4") for n in ("faults", "taken", "headers_taken", "resets", "clocks")),
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
    """Blocks (DECODER_BLOCK or ENCODER_BLOCK) and frames in C; `keep` holds the arrays that they point to."""

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
    """A decoder or an encoder, or a barrel of either.

    kind: which; top: a name of oscar_hdl.flow.tops, or module:function. The C++ takes the names of
    ports that the registered tops have.
    """

    def __init__(self, kind: str, top: str, **parameters: Any) -> None:
        self.kind = kind
        self.model = Model(top, harness=HERE / f"{kind}.cpp", **parameters)
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
