"""Counts of the hook's state."""

from __future__ import annotations

from dataclasses import dataclass

from oscar.reducers.communicator import PeerStats


@dataclass
class Totals:
    """Counts so far; `Counted` documents each."""

    values: int = 0
    sent_bytes: int = 0
    clipped: int = 0
    clipped_energy: float = 0.0
    uncompressed_values: int = 0

    def note(self, stats: PeerStats) -> None:
        """Add a call of the communicator."""
        self.sent_bytes += stats.sent_bytes
        self.clipped += stats.clipped
        self.clipped_energy = max(self.clipped_energy, stats.clipped_energy)


class Counted:
    """Totals as attributes."""

    _totals: Totals

    @property
    def values(self) -> int:
        """Values that were reduced so far."""
        return self._totals.values

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent for gradients, uncompressed buckets included (not those only measured)."""
        return self._totals.sent_bytes

    @property
    def clipped(self) -> int:
        """Values of this rank that saturated so far."""
        return self._totals.clipped

    @property
    def clipped_energy(self) -> float:
        """The largest share of a bucket's energy that saturation took so far, 0 to 1."""
        return self._totals.clipped_energy

    @property
    def uncompressed_values(self) -> int:
        """Values so far that went uncompressed because of their dtype, layout or device (docs/ddp.md)."""
        return self._totals.uncompressed_values
