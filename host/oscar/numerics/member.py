"""What one rank alone has beside its gradient: the residual of error feedback, and what clipping took."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.saturation import Saturation
from oscar.state import Reader, Saved, Stateful, optional


def read_residual(member: Any, saved: Saved) -> Array:
    """Return a residual of as many values as the gradient has, where that is known."""
    return saved.array(np.float32, np.shape(saved.value)[:1] if member.values is None else (member.values,))


class Member(Stateful):
    """The state of `rank`; values: of the gradient, where that is known.

    `pending` becomes the residual when the iteration has succeeded on this rank.
    """

    STATE: ClassVar[dict[str, Reader]] = {"residual": optional(read_residual)}

    def __init__(self, rank: int, values: int | None = None) -> None:
        self.rank, self.values = rank, values
        self.residual: Array | None = None
        self.pending: Array | None = None
        self.saturation = Saturation()  # of the last iteration
        self.dropped = Saturation()  # of a residual in the last iteration, see SaturationNotice.tell_dropped

    @property
    def unreturned(self) -> Saturation:
        """What this iteration's clipping lost for good: nothing where error feedback keeps it."""
        return self.saturation if self.pending is None else Saturation()

    def commit(self) -> None:
        """Keep what the iteration left over."""
        self.residual, self.pending = self.pending, None

    def forget(self) -> None:
        """Drop the residual, so that nothing of earlier iterations is added to the next gradient."""
        self.residual = self.pending = None

    def _follow(self) -> None:
        self.pending = None
