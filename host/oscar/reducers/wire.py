"""The wire seam: what combines the messages of a scheme's workers, in process or between processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.collective.actions import Action
from oscar.collective.node import ChunkLayout, Node
from oscar.collective.schedule import Schedule
from oscar.collective.stats import Moved
from oscar.numerics.plans import ChunkPlan, make_plan
from oscar.schemes.base import Channel, Message
from oscar.state import Saved

KEPT_STEPS = 2048  # nodes times sub-frames, of all ranks that live here, of programs that are kept


@dataclass(frozen=True)
class Traffic:
    """What one message moved.

    moved: the frames of the wire's own ranks, or None where no frames are counted. sent_bytes: by these
    ranks. exchange_bytes: of an "agree", by these ranks. plan: how values were dealt to chunks. identical:
    the wire's ranks ended with the same bits. exact: the sum equals one computed directly; True where that is
    not checked. clipped: what the codec saturated, as in Codec.saturated. clocks: of devices, as in Stats.
    """

    moved: Moved | None = None
    sent_bytes: int = 0
    exchange_bytes: int = 0
    plan: str = ""
    identical: bool = True
    exact: bool = True
    clipped: Array = field(default_factory=lambda: np.zeros(2))
    clocks: Array | None = None


def check_parts(message: Message, nodes: int) -> None:
    """Raise ValueError unless an exchange has a part for every worker, which together are its data."""
    if message.op != "exchange":
        return
    if len(message.parts) != nodes or min(message.parts) < 0 or sum(message.parts) != message.data.size:
        raise ValueError(
            f"channel {message.channel}: expected {nodes} parts that make up {message.data.size} bytes, "
            f"got {message.parts}"
        )


class Wire(ABC):
    """Combines the messages of `ranks`, the workers that live here, with those of all others.

    channels: Scheme.channels; the links of coded messages live here, a node for each rank.
    """

    def __init__(self, nodes: int, ranks: Sequence[int], channels: Mapping[str, Channel]) -> None:
        self.nodes, self.ranks, self.channels = nodes, ranks, channels
        self.links: dict[str, list[Node]] = {}
        self._classes: dict[str, Array] = {}
        self._programs: dict[tuple[int, str], tuple[Action, ...]] = {}

    @abstractmethod
    def combine(self, messages: Sequence[Message]) -> tuple[Any, Traffic]:
        """Return the combined buffer, which is new, and what it moved; messages: those of `ranks`.

        Integers are followed by the sums of their riders. "gather" and "agree" return a list of all buffers
        by rank, "exchange" such a list for each of `ranks`: what came for it. Raises PeerError when a peer
        fails, GradientError where workers here disagree,
        ValueError for an integer that its field does not hold.
        """

    def announce(self, digests: Callable[[], Mapping[str, int]]) -> None:  # noqa: B027 - in process there is one state
        """Tell the peers the digests of the replicated state; a peer whose state differs raises."""

    def settle(self) -> None:  # noqa: B027
        """Raise PeerError where a peer has announced another state."""

    def _begin(self, messages: Sequence[Message]) -> tuple[ChunkPlan, Channel, list[Node]]:
        """Hand the values of coded messages to their nodes; return the plan, the channel, the nodes."""
        first = messages[0]
        channel, nodes = self.channels[first.channel], self._open(first.channel)
        if first.ride is not None:
            raise ValueError(
                f"channel {first.channel}: a coded message has no riders; append them to its data"
            )
        plan = first.plan
        if plan is None:
            size = first.data.size
            plan = make_plan(channel.plan, size, channel.schedule.chunks, granule=channel.granule, costs=None)
        classes = None
        if first.context is not None:
            classes = plan.gather(first.context, self._classes.get(first.channel))
            self._classes[first.channel] = classes
        elif channel.codec.uses_context:
            classes = np.zeros(first.data.size, np.uint8)
        layout = ChunkLayout(plan.bounds, channel.schedule.subframes)
        for node, message in zip(nodes, messages, strict=True):
            local = message.data if message.planned else plan.gather(message.data, node.local)
            node.begin(local, classes, layout)
        return plan, channel, nodes

    def _actions(self, rank: int, schedule: Schedule) -> Iterable[Action]:
        """Return what `rank` does; small schedules are kept, since every call has the same."""
        if len(self.ranks) * self.nodes * schedule.subframes > KEPT_STEPS:
            return schedule.actions(rank)
        key = rank, schedule.digest
        if key not in self._programs:
            self._programs[key] = tuple(schedule.actions(rank))
        return self._programs[key]

    def _open(self, name: str) -> list[Node]:
        """Return the nodes of a coded channel, made where it is new."""
        if name not in self.links:
            self.links[name] = self._make(self.channels[name])
        return self.links[name]

    def _make(self, channel: Channel) -> list[Node]:
        apart = channel.schedule.apart
        return [
            Node(rank, self.nodes, channel.codec, apart=apart, width=channel.width) for rank in self.ranks
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state of all coded links that end here."""
        return {name: [node.state_dict() for node in nodes] for name, nodes in self.links.items()}

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved, known = Saved.of(state), ", ".join(self.channels) or "none: nothing is coded"
        fresh = {}
        for name in saved.keys(self.channels.__contains__, known):
            fresh[name] = self._make(self.channels[name])
            for node, own in zip(fresh[name], saved[name].items(len(self.ranks)), strict=True):
                node.load_state_dict(own)
        self.links = fresh

    def snapshot(self) -> dict[str, list[Any]]:
        """Return a cheap token of all coded links for `restore`."""
        return {name: [node.snapshot() for node in nodes] for name, nodes in self.links.items()}

    def restore(self, token: dict[str, list[Any]]) -> None:
        """Go back to the links of `snapshot`; those made since then are dropped."""
        self.links = {name: nodes for name, nodes in self.links.items() if name in token}
        for name, saved in token.items():
            for node, state in zip(self.links[name], saved, strict=True):
                node.restore(state)
