"""The second half of a ring AllReduce: how its sums return to all nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

GatherName = Literal["forward", "boomerang", "duplex"]


@dataclass(frozen=True)
class Gather:
    """The way in which a ring returns its sums, and the work of codecs in it.

    name: "forward" passes final frames on unchanged, in the direction of the reduce-scatter. "boomerang" runs
    against that direction and sends each node the sum of the terms that it lacks. "duplex" runs a boomerang
    at the same time as the reduce-scatter. adopt: owners decode their own final frames, so that a lossy codec
    leaves all nodes identical. coded: an entropy coder works on the frames; otherwise coding costs nothing.

    Raises ValueError for an unknown name, and for `adopt` with a gather that sends no final frames.
    """

    name: GatherName = "forward"
    adopt: bool = False
    coded: bool = True

    def __post_init__(self) -> None:
        if self.name not in get_args(GatherName):
            raise ValueError(f"gather must be one of {', '.join(get_args(GatherName))}, got {self.name!r}")
        if self.adopt and self.boomerang:
            raise ValueError(f"adopt: the {self.name} gather sends no final frames; take the forward one")

    @property
    def boomerang(self) -> bool:
        """Whether the second half runs against the ring and sends the terms that each receiver lacks."""
        return self.name != "forward"

    @property
    def duplex(self) -> bool:
        """Whether both halves run at the same time."""
        return self.name == "duplex"


FORWARD, BOOMERANG, DUPLEX = (Gather(name) for name in get_args(GatherName))
RAW = Gather(coded=False)  # fp32 around a ring, as any library sends it
