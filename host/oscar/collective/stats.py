"""Statistics of an AllReduce: the frames that it sent, and their time by the time model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule


@dataclass(frozen=True)
class Moved:
    """The traffic of one message: its frames, and the schedule that sent them.

    coded: an entropy coder works on the frames. clock: returns the seconds of this message by the time model;
    None where its time is not modelled.
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

    nodes: number of nodes. values: values of one gradient. plan: name of the chunk plan. iteration: number of
    the call, from 0.
    exact: all nodes ended bit-identical, and equal to the sum computed directly in the codec's arithmetic;
    False for lossy codecs. identical: all nodes ended bit-identical.
    clipped: number of values that saturated in the quantiser or the codec. clipped_energy: share of the
    gradient's energy (sum of squares, mean over workers) that saturation cut off, 0 to 1. With error feedback
    this share counts this call only. For a codec that saturates it is the share of the sent values' energy.
    reset: state was made anew because nodes or shapes changed.
    exchange_bytes: bytes that all nodes together sent to agree on step sizes.
    moved: all messages whose frames are counted, in order.
    clocks: clock cycles of a simulated NIC, rows of collective.frames.CLOCKS; None without one.
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

    mean: float32 arrays [tensor] in the tensors' shapes, equal on all nodes. sums: the integers, or floats,
    from which the mean was computed. stats: statistics of the call.
    """

    mean: list[np.ndarray]
    sums: np.ndarray = field(repr=False)
    stats: Stats
