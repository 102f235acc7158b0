"""What a simulated lane takes and gives, whatever simulates it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from oscar.errors import OscarError
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams


class RtlError(OscarError):
    """The simulated hardware did what it must not: a bug of the RTL, never of the input."""


@dataclass
class LinkTables:
    """What a link's step keeps between frames: histograms, uint16 [256], and shift.

    fresh: start from the initial tables instead (`hist` is not looked at).
    """

    hist: np.ndarray
    shift: int = 0
    fresh: bool = False

    @classmethod
    def of(cls, state: TableState) -> LinkTables:
        """Return what a lane needs of the host's table set."""
        return cls(state.hist.reshape(-1).astype(np.uint16), int(state.shift[0]))


@dataclass
class Outcome:
    """What a run gave. values: int16 in lane order (decoding); payload: bytes (encoding); clocks: how long.

    status: "done" or "reset"; error: the decoder's reason, 0 if none; redos: how often values of a raw block
    were asked for again; decoder, encoder: tables after the frame; strobes: how often each of
    oscar_hdl.nic_lane.STROBES was high (converted RTL only); streaming: clocks from the second local
    value, which does not wait for tables, to the last (same).
    """

    status: str
    clocks: int
    values: np.ndarray | None = None
    payload: bytes | None = None
    error: int = 0
    redos: int = 0
    decoder: LinkTables | None = None
    encoder: LinkTables | None = None
    strobes: list[int] = field(default_factory=list)
    streaming: int = 0


@dataclass(frozen=True)
class Stress:
    """Idle gaps of sources and back-pressure of sinks (0..1), repeatable; a clock at which reset strikes.

    reset_at: 0 is the clock in which a lane at rest is told to start.
    """

    idle: float = 0.0
    busy: float = 0.0
    seed: int = 1
    reset_at: int | None = None


NO_STRESS = Stress()


def check_width(params: LaneParams, encoder: LinkTables | None, enc_width: int) -> None:
    """Raise ValueError for a frame to encode that is wider than the lane: it would come out with raw blocks
    where the host codes.
    """
    if encoder is not None and enc_width > params.width_max:
        raise ValueError(f"expected a frame of at most {params.width_max} bits for {params}, got {enc_width}")


class Lane(Protocol):
    """A simulated nic_lane of `params`."""

    params: LaneParams

    def run(
        self,
        classes: np.ndarray,
        *,
        local: np.ndarray | None = None,
        payload: bytes | None = None,
        decoder: LinkTables | None = None,
        encoder: LinkTables | None = None,
        dec_width: int = 16,
        enc_width: int = 16,
        stress: Stress = NO_STRESS,
    ) -> Outcome:
        """Run one command over values in lane order: decode `payload` with `decoder`, add `local`, encode.

        classes: uint8 [count]; local: int16 [count], added to what is decoded, or encoded without a payload;
        `decoder` and `encoder` are the tables to use, and say what is done.
        Raises RtlError when the hardware misbehaves.
        """
