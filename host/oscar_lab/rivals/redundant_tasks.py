"""Tasks that several workers do: who does which, and the messages that bring their results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from oscar.array import Array
from oscar.errors import ConfigError

MAX_NODES = 256  # a frame's header names the task in its sub-frame field
ENVELOPE_BYTES = 8  # iteration u32, chunk u16, task u8, kind u8


class Kind(Enum):
    """What a message brings."""

    TASK = 0  # one task's values of a chunk, to the owner
    SUM = 1  # the sum of a chunk, to all
    AGAIN = 2  # the same, from a rank that is not its first sender


class TaskMessage(NamedTuple):
    """One frame on its way; task: of a TASK, otherwise 0."""

    kind: Kind
    iteration: int
    sender: int
    receiver: int
    chunk: int
    task: int
    frame: bytes

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return ENVELOPE_BYTES + len(self.frame)


@dataclass(frozen=True)
class Redundancy:
    """Who does which tasks: `copies` workers each of `nodes` tasks. Raises ConfigError.

    error_feedback: of the quantiser, which must be off. The integers of a task must be equal on all its
    workers: stochastic rounding takes its noise by task, not by worker.
    """

    nodes: int
    copies: int
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES or not 1 <= self.copies <= self.nodes:
            raise ConfigError(
                f"redundancy: expected 1 to {MAX_NODES} nodes and a redundancy of 1 to as many, "
                f"got nodes={self.nodes}, redundancy={self.copies}"
            )
        if self.error_feedback and self.copies > 1:
            raise ConfigError(
                f"redundancy {self.copies}: error feedback's residual would belong to {self.copies} workers: "
                "each task is done by as many, and which copy counts is known too late; "
                "switch off error_feedback or take redundancy 1"
            )

    def tasks(self, worker: int) -> tuple[int, ...]:
        """Return the tasks of `worker`, in the order in which it does them."""
        return tuple((worker + turn) % self.nodes for turn in range(self.copies))

    def workers(self, task: int) -> tuple[int, ...]:
        """Return who does `task`, the one that does it first at the front."""
        return tuple((task - turn) % self.nodes for turn in range(self.copies))


@dataclass(eq=False)
class Iteration:
    """One AllReduce as a rank sees it.

    sums: in plan order. held: chunks whose sum is here. covered: the tasks that were added here, by chunk.
    """

    number: int
    bounds: tuple[int, ...]
    classes: Array | None
    sums: Array
    held: set[int]
    covered: list[set[int]]

    def span(self, chunk: int) -> slice:
        """Return where a chunk's values lie."""
        return slice(self.bounds[chunk], self.bounds[chunk + 1])

    def context(self, chunk: int) -> Array | None:
        """Return the position classes of a chunk."""
        return None if self.classes is None else self.classes[self.span(chunk)]

    def empty(self, chunk: int) -> bool:
        """Whether a chunk has no values."""
        return self.bounds[chunk] == self.bounds[chunk + 1]
