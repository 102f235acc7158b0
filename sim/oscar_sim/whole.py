"""A whole NIC of converted RTL with driver, memory and network around it in C++ (verilator/nic.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from oscar.coding.asc.params import LANES
from oscar_hdl.coder.rows import FrameRows
from oscar_hdl.nic.control.registers import BY_NAME, COUNTER_EVENTS
from oscar_sim.units import HERE, Stress, faults
from oscar_sim.verilator import Model

NO_STRESS = Stress()
TOP = "oscar_sim.nic_flat:nic_flat"
HELD = 70  # clocks behind a reset in which a NIC holds it

COMMAND = np.dtype([
    *((n, "u4") for n in ("frame", "shape", "tables", "order")),
    *((n, "u4") for n in ("after_receives", "after_sends", "abort", "error", "clocks")),
])  # fmt: skip
ARRIVAL = np.dtype([("bytes", "u8"), *((n, "u4") for n in ("size", "after", "peer", "unused"))])
RUN = np.dtype([
    *((n, "u8") for n in ("distances", "means", "headers", "values")),
    *((n, "u8") for n in ("receives", "sends", "arrivals", "out", "out_ends")),
    ("out_room", "u8"),
    *((n, "u4") for n in ("rows", "units", "receive_count", "send_count", "arrival_count", "out_frames")),
    *((n, "u4") for n in ("idle", "busy", "refuse", "pry")),
    ("seed", "u8"), ("limit", "u8"), ("reset_at", "i8"), ("clocks", "u8"), ("bad_frames", "u8"),
    *((n, "u4") for n in ("faults", "receives_ended", "sends_ended", "was_reset", "reasons", "refused")),
    ("counters", "u4", (16,)),
])  # fmt: skip


class Arrival(NamedTuple):
    """A frame that comes when so many RECEIVE commands have ended, and who made it."""

    data: bytes
    after: int = 0
    peer: int = 0


class NicMemory:
    """Rows of a NIC's memory, as its units read and write them."""

    def __init__(self, rows: int) -> None:
        self.values = np.zeros((rows, LANES), np.int16)
        self.distances = np.zeros((rows, LANES), np.uint8)
        self.means, self.headers = np.zeros(rows, np.uint8), np.zeros(rows, np.uint16)

    def load(self, row: int, frame: FrameRows) -> None:
        """Hold a frame's rows; rows that fill up the last group are zeros."""
        used = slice(row, row + frame.means.size)
        whole = slice(row, row - (-frame.means.size // LANES) * LANES)
        for array in (self.values, self.distances, self.means, self.headers):
            array[whole] = 0
        self.values[used], self.distances[used] = frame.values, frame.distances
        self.means[used], self.headers[used] = frame.means, frame.headers


@dataclass
class Order:
    """A command: fields of its registers by name, how many of either direction must have ended before, and
    whether the driver has to abort it.
    """

    fields: dict[str, int]
    after: tuple[int, int] = (0, 0)
    abort: bool = False

    def registers(self, name: str) -> tuple[int, ...]:
        """Return FRAME, SHAPE, TABLES and COMMAND."""
        words = []
        for part in ("FRAME", "SHAPE", "TABLES", "COMMAND"):
            register = BY_NAME[f"{name}_{part}"]
            known = {f.name for f in register.fields}
            words.append(register.pack(**{k: v for k, v in self.fields.items() if k in known}))
        return tuple(words)


@dataclass
class Told:
    """What a run gave: errors and clocks of the commands that ended, frames, counters; why it stopped."""

    clocks: int
    receives: np.ndarray
    sends: np.ndarray
    frames: list[bytes]
    counters: dict[str, int] = field(default_factory=dict)
    fault: str = ""
    reset: bool = False
    reasons: int = 0
    refused: int = 0


class WholeNic:
    """A NIC of `engines` engines."""

    def __init__(self, *, engines: int = 2, bus_bits: int = 64, sets: int = 16, **sizes: int) -> None:
        self.model = Model(
            TOP, harness=HERE / "nic.cpp", engines=engines, bus_bits=bus_bits, sets=sets, **sizes
        )
        self.engines, self.rows = engines, 1 << sizes.get("rows_log2", 14)
        for name in ("nic_run", "nic_reset"):
            getattr(self.model.library, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.model.library.nic_reset.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self.reset()

    def reset(self, clocks: int = HELD) -> None:
        """Reset, and wait for so many clocks."""
        self.model.library.nic_reset(self.model.handle, clocks)

    def run(
        self, memory: NicMemory, *, receives: Sequence[Order] = (), sends: Sequence[Order] = (),
        arrivals: Sequence[Arrival] = (), stress: Stress = NO_STRESS, seed: int = 1,
        reset_at: int = -1, limit: int = 1 << 40,
    ) -> Told:  # fmt: skip
        """Give commands to the NIC and frames to its port until all have ended; frames come when so many
        RECEIVE commands have ended.
        """
        keep: list[Any] = []
        commands = [self._commands(name, orders) for name, orders in (("RECEIVE", receives), ("SEND", sends))]
        came = np.zeros(max(1, len(arrivals)), ARRIVAL)
        for n, (data, after, peer) in enumerate(arrivals):
            keep.append(np.frombuffer(data, np.uint8))
            came[n] = (keep[-1].ctypes.data, len(data), after, peer, 0)
        room = sum(8 * order.fields["count"] + 4000 for order in sends) + 64
        out, ends = np.zeros(room, np.uint8), np.zeros(max(1, len(sends)), np.uint32)
        run = np.zeros(1, RUN)
        for name, array in (
            ("distances", memory.distances), ("means", memory.means), ("headers", memory.headers),
            ("values", memory.values), ("receives", commands[0]), ("sends", commands[1]), ("arrivals", came),
            ("out", out), ("out_ends", ends),
        ):  # fmt: skip
            run[name] = array.ctypes.data
        run["out_room"], run["rows"], run["units"] = room, memory.means.size, self.engines + 1
        run["receive_count"], run["send_count"] = len(receives), len(sends)
        run["arrival_count"], run["out_frames"] = len(arrivals), len(sends)
        for name in ("idle", "busy", "refuse", "pry"):
            run[name] = int(65536 * getattr(stress, name))
        run["seed"], run["limit"], run["reset_at"] = seed, limit, reset_at
        self.model.library.nic_run(self.model.handle, run.ctypes.data)
        told = run[0]
        made = [0, *ends[: int(told["out_frames"])].tolist()]
        return Told(
            int(told["clocks"]), commands[0][: int(told["receives_ended"])],
            commands[1][: int(told["sends_ended"])],
            [out[a:b].tobytes() for a, b in pairwise(made)],
            {name: int(told["counters"][n]) for n, (name, _) in enumerate(COUNTER_EVENTS)},
            faults(int(told["faults"])), bool(told["was_reset"]), int(told["reasons"]), int(told["refused"]),
        )  # fmt: skip

    @staticmethod
    def _commands(name: str, orders: Sequence[Order]) -> np.ndarray:
        commands = np.zeros(max(1, len(orders)), COMMAND)
        for n, order in enumerate(orders):
            commands[n] = (*order.registers(name), *order.after, order.abort, 0, 0)
        return commands
