"""What one AllReduce moved and how long the time model says it took."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Stats:
    """frame_bytes, counts: int64 [phase 2, step N-1, sender N, sub K], headers included.

    exact: every node ended bit-identical and equal to the sum computed directly in the codec's arithmetic
    (False for lossy codecs); identical: every node ended bit-identical; clipped: values that saturated in
    the quantiser or the codec; clipped_energy: the share of the gradient's energy (its sum of squares, mean
    over the workers) that saturation cut off, 0 .. 1, with error feedback for this call only; of a codec that
    saturates, of what it sent; reset: state was started anew because nodes or shapes changed;
    exchange_bytes: sent to agree on steps, by all nodes together; time_s: by the link model; received: bytes
    of frames that came into each node, int64 [N]; clocks: of a simulated NIC, int64 [encode or decode 2,
    phase 2, step N-1, node N], or None.
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
    time_s: float
    frame_bytes: np.ndarray = field(repr=False)
    counts: np.ndarray = field(repr=False)
    received: np.ndarray = field(repr=False)
    clocks: np.ndarray | None = field(default=None, repr=False)

    @property
    def wire_bytes(self) -> int:
        """Bytes sent by all nodes together, with headers and the exchange of steps."""
        return int(self.frame_bytes.sum()) + self.exchange_bytes

    @property
    def step_sync_bytes(self) -> int:
        """Sum over the steps of the busiest link's bytes: what a synchronous ring waits for."""
        return int(self.frame_bytes.sum(axis=3).max(axis=2, initial=0).sum())

    @property
    def busiest_egress(self) -> int:
        """Bytes of frames that the node which sends most has sent."""
        return int(self.frame_bytes.sum(axis=(0, 1, 3)).max(initial=0))

    @property
    def busiest_ingress(self) -> int:
        """Bytes of frames that the node which receives most has received."""
        return int(self.received.max(initial=0))

    @property
    def transfers(self) -> int:
        """Values that crossed links: 2 (N-1) times the gradient."""
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
        sent = int(self.frame_bytes.sum())
        return sent / (self.step_sync_bytes * self.nodes) if self.step_sync_bytes else 1.0


@dataclass(frozen=True)
class AllReduceResult:
    """mean[tensor]: float32 in the tensor's shape, the same on every node; sums: the integers behind it."""

    mean: list[np.ndarray]
    sums: np.ndarray = field(repr=False)
    stats: Stats
