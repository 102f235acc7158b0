"""A whole NIC of converted RTL, its memory included, with driver and network in C++ (verilator/nic.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from oscar.coding.asc.params import LANES
from oscar_hdl.coder.rows import DESCRIBED, DESCRIBED_TOP_AT, TOP_AT, FrameRows
from oscar_hdl.nic.control.registers import COUNTER_EVENTS, command_values
from oscar_hdl.nic.ports import TO_ALL
from oscar_sim.driver.row_packets import Lines, Quantised, packet_start, side_bytes
from oscar_sim.units import HERE, Stress, faults
from oscar_sim.verilator import Model

NO_STRESS = Stress()
HELD = 86  # clocks behind a reset in which a NIC of up to eight units holds it

COMMAND = np.dtype([
    *((n, "u4") for n in ("frame", "shape", "tables", "order")),
    *((n, "u4") for n in ("after_receives", "after_sends", "abort", "error", "clocks")),
])  # fmt: skip
ARRIVAL = np.dtype([("bytes", "u8"), *((n, "u4") for n in ("size", "after", "peer", "port"))])
WORDS = [("data", "u8"), ("last", "u8"), *((n, "u4") for n in ("count", "before", "during", "pause"))]
TAKEN = [("data", "u8"), ("last", "u8"), ("room", "u4"), ("count", "u4")]
RUN = np.dtype([
    *((n, WORDS) for n in ("values", "side", "read", "list")),
    *((n, TAKEN) for n in ("values_read", "descriptors_read")),
    *((n, "u8") for n in ("receives", "sends", "arrivals", "out", "out_ends", "out_peers")),
    ("out_room", "u8"),
    *((n, "u4") for n in ("receive_count", "send_count", "arrival_count", "out_frames")),
    *((n, "u4") for n in ("list_entries", "list_result")),
    *((n, "u4") for n in ("idle", "busy", "refuse", "pry")),
    ("seed", "u8"), ("limit", "u8"), ("reset_at", "i8"), ("clocks", "u8"), ("bad_frames", "u8"),
    *((n, "u4") for n in ("faults", "receives_ended", "sends_ended", "was_reset", "reasons", "refused")),
    ("counters", "u4", (16,)), ("drops", "u4", (16,)),
])  # fmt: skip
PACKET_ROWS = 8160  # of a packet, at most: whole groups, and less than 2^18 values


class Arrival(NamedTuple):
    """A frame that comes when so many RECEIVE commands have ended, and who made it."""

    data: bytes
    after: int = 0
    peer: int = 0


@dataclass(frozen=True)
class Making:
    """A packet of values, or of side rows, that comes while a list runs.

    Of `count` values from a row on; entry: of the list; refused: the NIC will not take it. adds: it adds its
    values to what memory holds, and no side rows come. floats: float32, which come instead of values, and how
    they are quantised.
    """

    side: bool
    row: int
    count: int
    entry: int
    refused: bool = False
    adds: bool = False
    floats: tuple[np.ndarray, Quantised] | None = None

    @property
    def rows(self) -> slice:
        """Its rows."""
        return slice(self.row, self.row - (-self.count // LANES))


class NicMemory:
    """Rows of a NIC's memory: loaded before a run, read behind it; the first `used` of them."""

    def __init__(self, rows: int) -> None:
        self.values = np.zeros((rows, LANES), np.int16)
        self.distances = np.zeros((rows, LANES), np.uint8)
        self.means, self.headers = np.zeros(rows, np.uint8), np.zeros(rows, np.uint16)
        self.used = 0

    def load(self, row: int, frame: FrameRows) -> None:
        """Hold a frame's rows; rows that fill up the last group are zeros."""
        used = slice(row, row + frame.means.size)
        whole = slice(row, row - (-frame.means.size // LANES) * LANES)
        for array in (self.values, self.distances, self.means, self.headers):
            array[whole] = 0
        self.values[used], self.distances[used] = frame.values, frame.distances
        self.means[used], self.headers[used] = frame.means, frame.headers
        self.used = max(self.used, whole.stop)

    def packets(self, block: int) -> Iterator[slice]:
        """Yield the rows of the packets that it is loaded and read with: whole blocks of so many rows."""
        step = PACKET_ROWS // block * block
        for first in range(0, self.used, step):
            yield slice(first, min(first + step, self.used))

    def poisoned(self, makings: Sequence[Making]) -> NicMemory:
        """Return one with other rows where some are made later: who reads them too early changes a byte."""
        made = NicMemory(len(self.means))
        made.used, made.values, made.distances = self.used, self.values.copy(), self.distances.copy()
        made.means, made.headers = self.means.copy(), self.headers.copy()
        for making in (each for each in makings if not each.refused):
            made.values[making.rows] = ~self.values[making.rows]
            made.headers[making.rows] = (
                self.headers[making.rows] & ~np.uint16(DESCRIBED) if making.adds or making.floats else 0
            )
        return made

    def take(self, values: np.ndarray, descriptors: np.ndarray, lines: Lines) -> None:
        """Hold what was read of all packets: words of values, and of descriptors, uint8 [words, bytes]."""
        at, described = 0, np.zeros(self.used, np.uint16)
        for rows in self.packets(lines.block):
            number = rows.stop - rows.start
            stop = at + lines.places(rows.start, number)[2]
            result = lines.in_rows(rows.start, number, values[4 * at : 4 * stop], 4)
            self.values[rows] = np.ascontiguousarray(result).reshape(number, -1).view("<i2")
            kinds = lines.in_rows(rows.start, number, descriptors[at:stop], 1)
            described[rows] = np.ascontiguousarray(kinds).reshape(number, -1).view("<u2")[:, 0]
            at = stop
        described = described & 0x7F | described >> DESCRIBED_TOP_AT << TOP_AT
        self.headers[: self.used] = self.headers[: self.used] & ~np.uint16(DESCRIBED) | described


class Packets:
    """Words of a stream into a NIC, packet by packet."""

    def __init__(self, word_bytes: int) -> None:
        self._size = word_bytes
        self._words: list[np.ndarray] = []
        self._last: list[np.ndarray] = []

    def packet(self, data: np.ndarray, rows: slice | None = None, made: Making | None = None) -> None:
        """Add a packet of words, given as bytes, behind one that says which rows they are of."""
        words = data.reshape(-1).view(np.uint8)
        if rows is not None:
            start = packet_start(rows.start, LANES * (rows.stop - rows.start))
            if made:
                how = made.floats[1] if made.floats else None
                start = packet_start(made.row, made.count, made.entry, adds=made.adds, floats=how)
            words = np.concatenate([np.frombuffer(start.to_bytes(self._size, "little"), np.uint8), words])
        self._words.append(words)
        last = np.zeros(words.size // self._size, np.uint8)
        last[-1] = 1
        self._last.append(last)

    @property
    def size(self) -> int:
        """Words so far."""
        return sum(last.size for last in self._last)

    def place(self, told: Any, keep: list[Any], *, before: int | None = None, first: bool = True) -> None:
        """Write WORDS. All come before commands, or `before` of them and the others meanwhile; or behind."""
        words = np.concatenate([*self._words, np.zeros(0, np.uint8)])
        last = np.concatenate([*self._last, np.zeros(0, np.uint8)])
        keep += [words, last]
        told["data"], told["last"], told["count"] = words.ctypes.data, last.ctypes.data, last.size
        told["during"] = last.size if first else 0
        told["before"] = told["during"] if before is None else before


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
        return tuple(command_values(name, **self.fields).values())


@dataclass
class Told:
    """What a run gave: errors and clocks of the commands that ended, frames, counters; why it stopped."""

    clocks: int
    receives: np.ndarray
    sends: np.ndarray
    frames: list[bytes]
    counters: dict[str, int] = field(default_factory=dict)
    fault: str = ""
    peers: list[int] = field(default_factory=list)  # to whom frames go
    listed: int = 0  # LIST_RESULT
    reset: bool = False
    reasons: int = 0
    refused: int = 0
    drops: list[int] = field(default_factory=list)  # PEER_DROPS of peers 0 to 15


class WholeNic:
    """A NIC of `units` barrel units, whose frames have blocks of 2^block_log2 values."""

    top, harness = "oscar_sim.nic_probe:nic_probe", "nic.cpp"

    def __init__(
        self, *, units: int = 1, bus_bits: int = 64, sets: int = 16, block_log2: int = 10,
        rows_log2: int = 12, **sizes: int,
    ) -> None:  # fmt: skip
        self.model = Model(
            self.top, harness=HERE / self.harness, units=units, bus_bits=bus_bits, sets=sets,
            block_log2=block_log2, rows_log2=rows_log2, **sizes,
        )  # fmt: skip
        self.units, self.rows, self.block_log2, self.bus = units, 1 << rows_log2, block_log2, bus_bits // 8
        self.lines = Lines(units, 1 << block_log2 - 5)
        for name in ("nic_run", "nic_reset"):
            getattr(self.model.library, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.model.library.nic_reset.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self.reset()

    def reset(self, clocks: int = HELD) -> None:
        """Reset, and wait for so many clocks."""
        self.model.library.nic_reset(self.model.handle, clocks)

    def comes(self, peer: int) -> int:
        """Return the port at which frames of a peer come."""
        return 0

    def leaves(self, peer: int) -> Sequence[int]:
        """Return the ports at which a frame for `peer` leaves."""
        return (0,)

    def run(
        self, memory: NicMemory, *, receives: Sequence[Order] = (), sends: Sequence[Order] = (),
        arrivals: Sequence[Arrival] = (), stress: Stress = NO_STRESS, seed: int = 1,
        entries: np.ndarray | None = None, makings: Sequence[Making] = (), pause: int = 0, reset_at: int = -1,
        limit: int = 1 << 40,
    ) -> Told:  # fmt: skip
        """Load memory, give commands to the NIC and frames to its port until all have ended, and read memory.

        Frames come when so many RECEIVE commands have ended. entries: (entries, 3) uint64, a list that gives
        these commands; then frames come at any time, and only LIST_RESULT tells of ends. makings: of a list,
        in their order on each stream, up to `pause` clocks apart.
        """
        keep: list[Any] = []
        commands = [self._commands(name, orders) for name, orders in (("RECEIVE", receives), ("SEND", sends))]
        came = np.zeros(max(1, len(arrivals)), ARRIVAL)
        for n, (data, after, peer) in enumerate(arrivals):
            keep.append(np.frombuffer(data, np.uint8))
            came[n] = (keep[-1].ctypes.data, len(data), after, peer, self.comes(peer))
        copies = [len(self.leaves(order.fields.get("peer", 0))) for order in sends]
        room = (
            sum(n * (8 * order.fields["count"] + 4000) for n, order in zip(copies, sends, strict=True)) + 64
        )
        out = np.zeros(room, np.uint8)
        ends, peers = (np.zeros(sum(copies) + 1, np.uint32) for _ in range(2))
        run = np.zeros(1, RUN)
        for name, array in (
            ("receives", commands[0]), ("sends", commands[1]), ("arrivals", came), ("out", out),
            ("out_ends", ends), ("out_peers", peers),
        ):  # fmt: skip
            run[name] = array.ctypes.data
        values_read, descriptors_read = self._rows(memory, makings, pause, run[0], keep)
        run["out_room"] = room
        if entries is None:
            run["receive_count"], run["send_count"] = len(receives), len(sends)
        else:
            packet = Packets(8)
            packet.packet(entries)
            packet.place(run[0]["list"], keep)
            run["list_entries"] = len(entries)
        run["arrival_count"], run["out_frames"] = len(arrivals), sum(copies)
        for name in ("idle", "busy", "refuse", "pry"):
            run[name] = int(65536 * getattr(stress, name))
        run["seed"], run["limit"], run["reset_at"] = seed, limit, reset_at
        self.model.library.nic_run(self.model.handle, run.ctypes.data)
        told = run[0]
        if not told["faults"] and not told["was_reset"]:
            memory.take(values_read, descriptors_read, self.lines)
        made = [0, *ends[: int(told["out_frames"])].tolist()]
        return Told(
            int(told["clocks"]), commands[0][: int(told["receives_ended"])],
            commands[1][: int(told["sends_ended"])],
            [out[a:b].tobytes() for a, b in pairwise(made)],
            {name: int(told["counters"][n]) for n, (name, _) in enumerate(COUNTER_EVENTS)},
            faults(int(told["faults"])), peers[: int(told["out_frames"])].tolist(), int(told["list_result"]),
            bool(told["was_reset"]), int(told["reasons"]), int(told["refused"]), told["drops"].tolist(),
        )  # fmt: skip

    def _rows(
        self, memory: NicMemory, makings: Sequence[Making], pause: int, run: Any, keep: list[Any]
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Tell what is loaded and read; return where what is read comes: values, and descriptors."""
        lines, size, steps = self.lines, 16 * self.units, 0
        values, side, read = Packets(size), Packets(size), Packets(8)
        loaded = memory.poisoned(makings)
        for rows in memory.packets(lines.block):
            values.packet(lines.value_bytes(rows.start, loaded.values[rows].reshape(-1)), rows)
            side.packet(self._side(loaded, rows), rows)
            read.packet(np.zeros(0, np.uint8), rows)
            steps += lines.places(rows.start, rows.stop - rows.start)[2]
        sizes = values.size, side.size
        for making in makings:
            rows = making.rows
            if making.side:
                side.packet(self._side(memory, rows), rows, making)
            else:
                made = memory.values[rows].reshape(-1)[: making.count]
                words = lines.value_bytes(rows.start, made)
                if making.floats:
                    words = lines.float_bytes(rows.start, *making.floats)
                values.packet(words, rows, making)
        values.place(run["values"], keep, before=sizes[0])
        side.place(run["side"], keep, before=sizes[1])
        run["values"]["pause"] = run["side"]["pause"] = pause
        read.place(run["read"], keep, first=False)
        result = np.zeros((4 * steps, size), np.uint8), np.zeros((steps, 2 * self.units), np.uint8)
        for name, array in zip(("values_read", "descriptors_read"), result, strict=True):
            last = np.zeros(len(array), np.uint8)
            keep.append(last)
            run[name]["data"], run[name]["last"] = array.ctypes.data, last.ctypes.data
            run[name]["room"], run[name]["count"] = last.size, 0
        return result

    def _side(self, memory: NicMemory, rows: slice) -> np.ndarray:
        """Return a packet's words of side rows."""
        words = side_bytes(memory.headers[rows], memory.distances[rows])
        return self.lines.in_words(rows.start, words[:, None])

    @staticmethod
    def _commands(name: str, orders: Sequence[Order]) -> np.ndarray:
        commands = np.zeros(max(1, len(orders)), COMMAND)
        for n, order in enumerate(orders):
            commands[n] = (*order.registers(name), *order.after, order.abort, 0, 0)
        return commands


class WholeSwitch(WholeNic):
    """A slice of a switch of four ports; Told.peers are ports at which frames left."""

    top, harness, ports = "switch_slice", "switch.cpp", 4

    def comes(self, peer: int) -> int:
        """See WholeNic.comes."""
        return peer

    def leaves(self, peer: int) -> Sequence[int]:
        """See WholeNic.leaves."""
        return range(self.ports) if peer == TO_ALL else [n for n in range(self.ports) if n == peer]
