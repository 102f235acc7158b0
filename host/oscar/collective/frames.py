"""The frames that an AllReduce sent, one row for each frame of any schedule, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.asc.turns import COLUMNS
from oscar.collective.actions import Action
from oscar.collective.schedule import Schedule

ROW = np.dtype([
    ("phase", np.int8), ("step", np.int32), ("sender", np.int32), ("receiver", np.int32), ("chunk", np.int32),
    ("sub", np.int32), ("terms", np.int32), ("count", np.int64), ("bytes", np.int64),
])  # fmt: skip
CLOCKS = np.dtype([  # clock cycles that a device needed for one frame
    ("encodes", np.bool_), ("phase", np.int8), ("step", np.int32), ("rank", np.int32), ("clocks", np.int64),
])  # fmt: skip
KEY = "phase", "sender", "chunk", "sub"  # identifies a frame; copies to several receivers share it
Key = tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class Frames:
    """The frames of one or more messages.

    Attributes:
        rows: Structured array [frame] of ROW, sorted by its fields. A frame to several receivers has a
            row for each.
        phase: 0 reduce-scatter, 1 all-gather.
        terms: Number of workers whose values the frame sums.
        count: Number of values.
        bytes: Size with header.
        cells: A NIC's work for a frame (`Codec.work`), by KEY; only for codecs that give it.

    >>> one = (0, 0, 0, 1, 0, 0, 1, 100, 240)  # rank 0 sends 100 values in 240 bytes to rank 1
    >>> frames = Frames.of([one])
    >>> frames.bytes, frames.sent(nodes=2).tolist()
    (240, [240, 0])
    """

    rows: Array
    cells: Mapping[Key, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, ...]] | Array, cells: Mapping[Key, Array] | None = None) -> Frames:
        """Return sorted frames.

        Args:
            rows: An array of ROW, or tuples with its fields.
        """
        if isinstance(rows, np.ndarray):
            return cls(np.sort(rows, order=ROW.names), cells or {})
        return cls(np.array(sorted(rows), ROW), cells or {})

    @classmethod
    def joined(cls, several: Iterable[Frames]) -> Frames:
        """Return the frames of several messages as one object."""
        parts = list(several)
        if len(parts) == 1:
            return parts[0]
        cells = {key: result for one in parts for key, result in one.cells.items()}
        return cls.of(np.concatenate([np.zeros(0, ROW), *(one.rows for one in parts)]), cells)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frames) and np.array_equal(self.rows, other.rows)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> Array:
        """Return one column."""
        return self.rows[column]

    @property
    def bytes(self) -> int:
        """Total bytes of all frames."""
        return int(self.rows["bytes"].sum())

    @property
    def values(self) -> int:
        """Total number of values in all frames."""
        return int(self.rows["count"].sum())

    @property
    def gradient(self) -> int:
        """Values of the gradient: each chunk's once."""
        _, first = np.unique(self.rows[["chunk", "sub"]], return_index=True)
        return int(self.rows["count"][first].sum())

    def sent(self, nodes: int) -> Array:
        """Return the bytes that each rank sent, int64 [nodes]."""
        return _total(self.rows["sender"], self.rows["bytes"], nodes)

    def received(self, nodes: int) -> Array:
        """Return the bytes that each rank received, int64 [nodes]."""
        return _total(self.rows["receiver"], self.rows["bytes"], nodes)

    def of_sender(self, rank: int) -> Frames:
        """Return the frames that `rank` sent."""
        cells = {key: result for key, result in self.cells.items() if key[1] == rank}
        return Frames(self.rows[self.rows["sender"] == rank], cells)

    def by_step(self, nodes: int) -> Array:
        """Return the bytes by step and sender, int64 [step, nodes]; both phases' steps, in order."""
        steps, at = np.unique(self.rows[["phase", "step"]], return_inverse=True)
        flat = _total(at * nodes + self.rows["sender"], self.rows["bytes"], len(steps) * nodes)
        return flat.reshape(-1, nodes)

    def sizes(self) -> dict[Key, tuple[int, int]]:
        """Return (count, bytes) of every frame by its key."""
        keys = zip(*(self.rows[name].tolist() for name in KEY), strict=True)
        sizes = zip(self.rows["count"].tolist(), self.rows["bytes"].tolist(), strict=True)
        return dict(zip(keys, sizes, strict=True))

    def work(self) -> dict[Key, Array]:
        """Return the cells of every frame by its key. A forwarded frame has the cells of its encoder."""
        origins = {(phase, chunk, sub): result for (phase, _, chunk, sub), result in self.cells.items()}
        result = {key: self.cells.get(key, origins.get((key[0], *key[2:]))) for key in self.sizes()}
        return {key: cells for key, cells in result.items() if cells is not None}

    def tree(self) -> dict[str, Any]:
        """Return columns by name and cells, for a JSON file; `from_tree` reads them."""
        columns: dict[str, Any] = {name: self.rows[name].tolist() for name in ROW.names or ()}
        return columns | {"cells": [[*key, self.cells[key].tolist()] for key in sorted(self.cells)]}

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Frames:
        """Return the frames of a tree that `Frames.tree` made."""
        rows = np.zeros(len(tree["phase"]), ROW)
        for name in ROW.names or ():
            rows[name] = tree[name]
        cells = {tuple(key): np.array(result) for *key, result in tree.get("cells", ())}
        # Results of before units took turns have other columns: the work of their frames is not known.
        return cls.of(rows, {key: result for key, result in cells.items() if result.shape[1] == COLUMNS})


class FrameLog:
    """Records frames as they are sent."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._cells: dict[Key, Array] = {}

    def add(self, action: Action, sender: int, size: int, count: int, cells: Array | None = None) -> None:
        """Record a frame that `sender` sends or forwards. cells: the NIC's work, if `sender` coded it."""
        a = action
        self._rows.append((a.phase, a.step, sender, a.peer, a.chunk, a.sub, a.workers, count, size))
        if cells is not None:
            self._cells[int(a.phase), sender, a.chunk, a.sub] = cells

    @property
    def bytes(self) -> int:
        """Total bytes of the recorded frames."""
        return sum(row[-1] for row in self._rows)

    def frames(self) -> Frames:
        """Return the recorded frames. Their rows are made when one looks at them, which few calls do."""
        return _Recorded(tuple(self._rows), self._cells)


class _Recorded(Frames):
    """Frames of a log."""

    def __init__(self, recorded: tuple[tuple[int, ...], ...], cells: Mapping[Key, Array]) -> None:
        vars(self).update(recorded=recorded, cells=cells)

    @cached_property
    def rows(self) -> Array:
        return np.array(sorted(vars(self)["recorded"]), ROW)


def _total(where: Array, weights: Array, size: int) -> Array:
    out = np.zeros(size, np.int64)
    np.add.at(out, where, weights)
    return out


@dataclass(frozen=True)
class Moved:
    """The traffic of one message: its frames, and the schedule that sent them.

    Attributes:
        coded: An entropy coder works on the frames.
        clock: Returns the seconds of this message by the time model; None where its time is not modelled.
    """

    schedule: Schedule
    coded: bool
    frames: Frames = field(repr=False)
    clock: Callable[[Moved], float] | None = field(default=None, repr=False)

    @cached_property
    def time_s(self) -> float:
        """Seconds by the time model, which runs at the first access; 0 without a clock."""
        return 0.0 if self.clock is None else self.clock(self)


@dataclass(frozen=True)
class Stats:
    """The statistics of one AllReduce in one process. `LocalCluster` has an example.

    Attributes:
        nodes: Number of nodes.
        values: Values of one gradient.
        plan: Name of the chunk plan.
        iteration: Number of the call, from 0.
        exact: All nodes ended bit-identical, and equal to the sum computed directly in the codec's
            arithmetic; False for lossy codecs.
        identical: All nodes ended bit-identical.
        clipped: Number of values that saturated in the quantiser or the codec.
        clipped_energy: Share of the gradient's energy (sum of squares, mean over workers) that saturation
            cut off, 0 to 1. With error feedback this share counts this call only. For a codec that
            saturates it is the share of the sent values' energy.
        reset: State was made anew because nodes or shapes changed.
        exchange_bytes: Bytes that all nodes together sent to agree on step sizes.
        moved: All messages whose frames are counted, in order.
        clocks: Clock cycles of a simulated NIC, rows of collective.frames.CLOCKS; None without one.
    """

    nodes: int
    values: int
    plan: str
    iteration: int
    exact: bool
    identical: bool
    clipped: int
    clipped_energy: float
    reset: bool
    exchange_bytes: int
    moved: tuple[Moved, ...] = field(repr=False)
    clocks: np.ndarray | None = field(default=None, repr=False)

    @cached_property
    def frames(self) -> Frames:
        """The frames of all messages together."""
        return Frames.joined(one.frames for one in self.moved)

    @property
    def time_s(self) -> float:
        """Seconds of all messages, one after the other, by the time model."""
        return sum(one.time_s for one in self.moved)

    @property
    def wire_bytes(self) -> int:
        """Bytes that all nodes together sent, with headers and the exchange of step sizes."""
        return self.frames.bytes + self.exchange_bytes

    @property
    def step_sync_bytes(self) -> int:
        """Bytes of the busiest sender of each step, summed over steps: the load of ranks in lockstep."""
        return int(self.frames.by_step(self.nodes).max(axis=1, initial=0).sum())

    @property
    def busiest_egress(self) -> int:
        """Most bytes of frames that one node sent."""
        return int(self.frames.sent(self.nodes).max(initial=0))

    @property
    def busiest_ingress(self) -> int:
        """Most bytes of frames that one node received."""
        return int(self.frames.received(self.nodes).max(initial=0))

    @property
    def transfers(self) -> int:
        """Values that cross links in a ring or a direct schedule: 2 (N-1) times the gradient's values."""
        return 2 * (self.nodes - 1) * self.values

    @property
    def bits_per_value(self) -> float:
        """Wire bits per value that crossed a link; 0 on one node."""
        return 8 * self.wire_bytes / self.transfers if self.transfers else 0.0

    @property
    def step_sync_bits(self) -> float:
        """Bits per value if every link carried as much as the busiest one at each step."""
        return 8 * self.step_sync_bytes * self.nodes / self.transfers if self.transfers else 0.0

    @property
    def efficiency(self) -> float:
        """Load of the mean link over that of the busiest one, averaged over steps; 1 is perfect balance."""
        sent = self.frames.bytes
        return sent / (self.step_sync_bytes * self.nodes) if self.step_sync_bytes else 1.0


@dataclass(frozen=True)
class AllReduceResult:
    """The result of one AllReduce in one process. `LocalCluster` has an example.

    Attributes:
        mean: float32 arrays [tensor] in the tensors' shapes, equal on all nodes.
        sums: The integers, or floats, from which the mean was computed.
        stats: Statistics of the call.
    """

    mean: list[np.ndarray]
    sums: np.ndarray = field(repr=False)
    stats: Stats
