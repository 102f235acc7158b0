"""What one AllReduce moved and how long the time model says it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule


@dataclass(frozen=True)
class Moved:
    """What one message moved: its frames, the schedule that sent them, and whether a coder works on them.

    clock: returns the seconds that the time model gives this message; None where nobody models it.
    """

    schedule: Schedule
    coded: bool
    frames: Frames = field(repr=False)
    clock: Callable[[Moved], float] | None = field(default=None, repr=False)

    @cached_property
    def time_s(self) -> float:
        """Seconds by the time model, which runs when this is first asked for; 0 without a clock."""
        return 0.0 if self.clock is None else self.clock(self)


@dataclass(frozen=True)
class Stats:
    """moved: every message whose frames are counted, in order.

    exact: every node ended bit-identical and equal to the sum computed directly in the codec's arithmetic
    (False for lossy codecs); identical: every node ended bit-identical; clipped: values that saturated in
    the quantiser or the codec; clipped_energy: the share of the gradient's energy (its sum of squares, mean
    over the workers) that saturation cut off, 0 .. 1, with error feedback for this call only; of a codec that
    saturates, of what it sent; reset: state was started anew because nodes or shapes changed;
    exchange_bytes: sent to agree on steps, by all nodes together; clocks: of a simulated NIC, rows of
    collective.frames.CLOCKS, or None.
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
        """Seconds of all messages by the time model, one after the other."""
        return sum(one.time_s for one in self.moved)

    @property
    def wire_bytes(self) -> int:
        """Bytes sent by all nodes together, with headers and the exchange of steps."""
        return self.frames.bytes + self.exchange_bytes

    @property
    def step_sync_bytes(self) -> int:
        """Sum over the steps of the busiest sender's bytes: what ranks wait for that keep step."""
        return int(self.frames.by_step(self.nodes).max(axis=1, initial=0).sum())

    @property
    def busiest_egress(self) -> int:
        """Bytes of frames that the node which sends most has sent."""
        return int(self.frames.sent(self.nodes).max(initial=0))

    @property
    def busiest_ingress(self) -> int:
        """Bytes of frames that the node which receives most has received."""
        return int(self.frames.received(self.nodes).max(initial=0))

    @property
    def transfers(self) -> int:
        """Values that cross links in a ring, and in a direct schedule: 2 (N-1) times the gradient."""
        return 2 * (self.nodes - 1) * self.values

    @property
    def bits_per_value(self) -> float:
        """Wire bits per value that crossed a link; 0 on one node."""
        return 8 * self.wire_bytes / self.transfers if self.transfers else 0.0

    @property
    def step_sync_bits(self) -> float:
        """Step-synchronous bits per value: as if every link always carried what the busiest one does."""
        return 8 * self.step_sync_bytes * self.nodes / self.transfers if self.transfers else 0.0

    @property
    def efficiency(self) -> float:
        """Mean over busiest link, averaged over the steps by bytes; 1 is perfect balance."""
        sent = self.frames.bytes
        return sent / (self.step_sync_bytes * self.nodes) if self.step_sync_bytes else 1.0


@dataclass(frozen=True)
class AllReduceResult:
    """mean[tensor]: float32 in the tensor's shape, the same on every node; sums: the integers behind it."""

    mean: list[np.ndarray]
    sums: np.ndarray = field(repr=False)
    stats: Stats
