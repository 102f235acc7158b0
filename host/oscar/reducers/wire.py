"""The contract of wires: they combine the messages of workers, in process or between processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.collective.actions import Action
from oscar.collective.frames import Moved
from oscar.collective.node import ChunkLayout, Node
from oscar.collective.schedule import Schedule
from oscar.numerics.plans import ChunkPlan, make_plan
from oscar.numerics.tensors import Room
from oscar.schemes.base import Channel, Message
from oscar.state import Saved

KEPT_STEPS = 8192  # local ranks times nodes times sub-frames, some 8 MB; larger programs are not cached


@dataclass(frozen=True)
class Traffic:
    """The traffic of one message, counted for the wire's own ranks.

    moved: frames; None where no frames are counted.
    sent_bytes: bytes sent.
    exchange_bytes: bytes of an "agree" message.
    plan: name of the chunk plan.
    identical: the ranks ended with the same bits.
    exact: the sum equals a direct sum; True where this is not checked.
    clipped: the codec's saturation, as in Codec.saturated.
    clocks: clock cycles of devices, as in Stats.
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
    """Raise ValueError unless an exchange has one part for each worker and the parts make up its data."""
    if message.op != "exchange":
        return
    if len(message.parts) != nodes or min(message.parts) < 0 or sum(message.parts) != message.data.size:
        raise ValueError(
            f"channel {message.channel}: expected {nodes} parts that make up {message.data.size} bytes, "
            f"got {message.parts}"
        )


class Wire(ABC):
    """Combines the messages of the local workers with the messages of all others.

    nodes: number of workers.
    ranks: the local workers.
    channels: as of Scheme.channels. The wire keeps the links of coded messages, as one Node for each local
        rank.
    values: of a call, where it is known; it bounds the lengths that peers may announce.
    weighs: whether nodes count a NIC's work.
    keeps: whether they leave what workers hand in as it is.
    """

    weighs: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    def __init__(self, nodes: int, ranks: Sequence[int], channels: Mapping[str, Channel]) -> None:
        self.nodes, self.ranks, self.channels = nodes, ranks, channels
        self.values: int | None = None
        self.links: dict[str, list[Node]] = {}
        self._classes: dict[str, Array] = {}
        self._programs: dict[tuple[int, str], tuple[Action, ...]] = {}
        self._layouts: dict[str, ChunkLayout] = {}
        self._sums: dict[str, Room] = {}

    @abstractmethod
    def combine(self, messages: Sequence[Message]) -> tuple[Any, Traffic]:
        """Return a new combined buffer, and its traffic. messages: one of each local rank.

        Sums of integers are followed by the sums of their riders. A message with a notice gets a pair: the
        sum, and the joined notices. "gather" and "agree" return all buffers by rank. "exchange" returns, for
        each local rank, the buffers sent to it, by source. Raises PeerError when a peer fails, GradientError
        where local workers disagree, ValueError for an integer that does not fit its field.
        """

    def announce(self, digests: Callable[[], Mapping[str, int]]) -> None:  # noqa: B027 - in process there is one state
        """Announce the digests of the replicated state; a peer with another state raises."""

    def settle(self) -> None:  # noqa: B027
        """Raise PeerError if a peer has announced another state."""

    def _begin(self, messages: Sequence[Message]) -> tuple[ChunkPlan, Channel, list[Node]]:
        """Hand the values of coded messages to their nodes; return plan, channel and nodes."""
        first = messages[0]
        if first.channel not in self.links:  # its nodes are made at its first use
            self.links[first.channel] = self._make(self.channels[first.channel])
        channel, nodes = self.channels[first.channel], self.links[first.channel]
        if first.ride is not None:
            raise ValueError(
                f"channel {first.channel}: a coded message has no riders; append them to its data"
            )
        plan = first.plan
        if plan is None:
            size = first.data.size
            plan = make_plan(channel.plan, size, channel.schedule.chunks, granule=channel.granule, costs=None)
        classes = first.context if first.planned else None
        if first.context is not None and not first.planned:
            classes = plan.gather(first.context, self._classes.get(first.channel))
            self._classes[first.channel] = classes
        elif classes is None and channel.codec.uses_context:
            classes = np.zeros(first.data.size, np.uint8)
        layout = self._layouts.get(first.channel)
        if layout is None or layout.bounds != plan.bounds:
            layout = self._layouts[first.channel] = ChunkLayout(plan.bounds, channel.schedule.subframes)
        for node, message in zip(nodes, messages, strict=True):
            local = message.data if message.planned else plan.gather(message.data, node.local)
            node.begin(local, classes, layout, message.notice or 0)
        return plan, channel, nodes

    def _answer(self, plan: ChunkPlan, message: Message, node: Node) -> Array | tuple[Array, int]:
        """Return the answer to a coded message: the sums of `node` in the order of the message's data."""
        sums = node.result()  # in the order of `plan`
        if not message.planned:
            room = self._sums.setdefault(message.channel, Room())
            sums = plan.scatter(sums, room.take(sums.size, sums.dtype))
        return sums if message.notice is None else (sums, node.notice)

    def _actions(self, rank: int, schedule: Schedule) -> Iterable[Action]:
        """Return the actions of `rank`. Small programs are cached, since every call runs the same."""
        if len(self.ranks) * self.nodes * schedule.subframes > KEPT_STEPS:
            return schedule.actions(rank)
        key = rank, schedule.digest
        if key not in self._programs:
            self._programs[key] = tuple(schedule.actions(rank))
        return self._programs[key]

    def _make(self, channel: Channel) -> list[Node]:
        apart = channel.schedule.apart
        how: dict[str, Any] = {"apart": apart, "width": channel.width}
        how |= {"weighs": self.weighs, "keeps": self.keeps}
        return [Node(rank, self.nodes, channel.codec.of(rank), **how) for rank in self.ranks]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state of all local ends of coded links."""
        return {name: [node.state_dict() for node in nodes] for name, nodes in self.links.items()}

    def load_state_dict(self, state: Any) -> None:
        """Load a state of `state_dict`. Raises ConfigError, and changes nothing, if it does not fit."""
        saved, known = Saved.of(state), ", ".join(self.channels) or "none: nothing is coded"
        fresh = {}
        for name in saved.keys(self.channels.__contains__, known):
            fresh[name] = self._make(self.channels[name])
            for node, state_of in zip(fresh[name], saved[name].items(len(self.ranks)), strict=True):
                node.load_state_dict(state_of)
        self.links = fresh

    def snapshot(self) -> dict[str, list[Any]]:
        """Return a cheap token of all coded links, for `restore`."""
        return {name: [node.snapshot() for node in nodes] for name, nodes in self.links.items()}

    def restore(self, token: dict[str, list[Any]]) -> None:
        """Restore the links of a `snapshot`; drop links made since then."""
        self.links = {name: nodes for name, nodes in self.links.items() if name in token}
        for name, saved in token.items():
            for node, state in zip(self.links[name], saved, strict=True):
                node.restore(state)
