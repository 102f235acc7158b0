"""How the sums of a ring come back to all nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

GatherName = Literal["forward", "boomerang", "duplex"]


@dataclass(frozen=True)
class Gather:
    """The second half of a ring AllReduce, and what codecs do in it.

    name: "forward" passes final frames on unchanged, in the direction of the reduce-scatter. "boomerang" runs
    the other way and sends each node the sum of what it lacks. "duplex" is a boomerang beside the
    reduce-scatter instead of after it. adopt: owners decode their own final frames, so that a lossy codec
    leaves all nodes identical. coded: an entropy coder works on the frames; otherwise coding costs nothing.

    Raises ValueError for an unknown name, and for `adopt` where no final frame is sent.
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
        """Whether frames of the second half run against the ring and hold what their receiver lacks."""
        return self.name != "forward"

    @property
    def duplex(self) -> bool:
        """Whether both halves run at once."""
        return self.name == "duplex"


FORWARD, BOOMERANG, DUPLEX = (Gather(name) for name in get_args(GatherName))
RAW = Gather(coded=False)  # fp32 around a ring, as any library sends it
