"""Plain AllReduces between the workers of one process, their frames counted as a ring would send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.executor import Ring
from oscar.collective.node import Layout, Node
from oscar.collective.ring import Phase, ring_chunk_sent
from oscar.errors import GradientError, OscarError
from oscar.numerics.plans import make_plan
from oscar.numerics.quantiser import sum_width
from oscar.schemes.base import RIDE_BITS, Message
from oscar.schemes.lanes import WORD_BITS, lane_limit, lanes_per_word, pack_lanes, unpack_lanes
from oscar.state import Saved
from oscar.timeline.link import LinkModel
from oscar.timeline.recurrence import ring_time
from oscar.timeline.sizes import received_bytes

BITMAP_BITS = 8  # of the bytes in which an index travels
NO_CHANNELS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Traffic:
    """Frames of one AllReduce, int64 [phase 2, step N-1, sender N, 1], as in Stats; and its modelled time.

    plan: how values were dealt to chunks. identical: every node ended with the same bits; of a message that
    is not coded there is one result, computed once, which cannot differ.
    """

    frame_bytes: Array
    counts: Array
    time_s: float
    boomerang: bool = False
    plan: str = "equal"
    identical: bool = True

    @property
    def received(self) -> Array:
        """Bytes that came into each node, int64 [N]."""
        return received_bytes(self.frame_bytes, boomerang=self.boomerang)


class LocalWire:
    """Combines the messages of all workers of this process; the links of coded channels live here.

    A message that is not coded goes round a ring in equal chunks of whole items (words, floats, bytes). Its
    frames' sizes follow from that alone, so they are computed. Integers must fit their lanes; the first
    message of each channel and width is also packed, added and unpacked as a real AllReduce of words would,
    and compared. channels: Scheme.coded_channels.
    """

    def __init__(
        self,
        nodes: int,
        *,
        codec: Codec,
        link: LinkModel,
        plan: str,
        granule: int,
        channels: Mapping[str, int] = NO_CHANNELS,
    ) -> None:
        self.nodes, self.codec, self.link = nodes, codec, link
        self.plan, self.granule, self.channels = plan, granule, channels
        self.links: dict[str, list[Node]] = {}
        self._proved: set[tuple[str, int]] = set()

    def combine(self, messages: Sequence[Message]) -> tuple[Array, Traffic]:
        """Return the combined buffer, which is new, and what it moved.

        Integers are followed by the sums of their riders. Raises GradientError where workers disagree, and
        ValueError where one of them has an integer that its lane does not hold.
        """
        first = messages[0]
        _check_alike(messages)
        if first.op == "gather":
            return self._gather(messages)
        if first.coded:
            return self._coded(messages)
        buffers = [message.data for message in messages]
        count = first.data.size
        if first.op == "or":
            total = np.logical_or.reduce(buffers)
            return total, self._ring(-(-count // BITMAP_BITS), 1, BITMAP_BITS)
        if first.op == "max":
            return np.maximum.reduce(buffers), self._ring(count, 4, 1)
        if first.data.dtype == np.float32:
            return self._ring_order(buffers), self._ring(count, 4, 1)
        total = self._sum_lanes(first.channel, first.bits, buffers)
        words = -(-count // lanes_per_word(first.bits))
        if first.ride is not None:
            riders = [message.ride for message in messages if message.ride is not None]
            total = np.concatenate([total, self._sum_lanes("ride", RIDE_BITS, riders)])
            words += -(-first.ride.size // lanes_per_word(RIDE_BITS))
        return total, self._ring(words, WORD_BITS // 8, lanes_per_word(first.bits))

    def _sum_lanes(self, channel: str, bits: int, buffers: Sequence[Array]) -> Array:
        """Return the integer sum; once per channel and width also by adding words, which must agree."""
        total, limit = np.zeros(buffers[0].size, np.int32), lane_limit(bits, self.nodes)
        for rank, buffer in enumerate(buffers):
            worst = max(int(buffer.max(initial=0)), -int(buffer.min(initial=0)))
            if worst > limit:  # its bytes would not be those that are counted
                raise ValueError(
                    f"channel {channel}: node {rank} sent a magnitude of {worst}, lanes of {bits} bits hold "
                    f"up to {limit} of each of {self.nodes} workers; clip, or use more bits"
                )
            total += buffer
        if (channel, bits) not in self._proved:
            words = [pack_lanes(buffer, bits, self.nodes) for buffer in buffers]
            summed = np.add.reduce(words, dtype=np.uint64)
            if not np.array_equal(unpack_lanes(summed, total.size, bits, self.nodes), total):
                raise OscarError(
                    f"channel {channel}: expected the direct sum from lanes of {bits} bits, got another: "
                    "this is a bug; please report it with the configuration"
                )
            self._proved.add((channel, bits))
        return total

    def _bounds(self, items: int) -> list[int]:
        return [items * chunk // self.nodes for chunk in range(self.nodes + 1)]

    def _ring(self, items: int, item_bytes: int, per_item: int) -> Traffic:
        """Return the frames of a ring AllReduce, forward, of `items` in equal chunks."""
        shape = (2, max(0, self.nodes - 1), self.nodes, 1)
        sizes, counts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        lengths = np.diff(self._bounds(items))
        for phase in Phase:
            for step in range(self.nodes - 1):
                sent = [
                    ring_chunk_sent(rank, self.nodes, phase, step, boomerang=False)
                    for rank in range(self.nodes)
                ]
                length = lengths[sent]
                counts[phase, step, :, 0] = length * per_item
                sizes[phase, step, :, 0] = np.where(length > 0, length * item_bytes + HEADER_BYTES, 0)
        return Traffic(sizes, counts, self._time(sizes, counts))

    def _time(self, sizes: Array, counts: Array) -> float:
        return ring_time(sizes, counts, self.link, coded=False) if self.nodes > 1 else 0.0

    def _ring_order(self, buffers: Sequence[Array]) -> Array:
        """Return the sum of floats in the order in which a ring adds them."""
        total = np.empty_like(buffers[0])
        bounds = self._bounds(total.size)
        for chunk in range(self.nodes):
            here = slice(bounds[chunk], bounds[chunk + 1])
            partial = buffers[chunk][here].copy()
            for hop in range(1, self.nodes):
                partial = buffers[(chunk + hop) % self.nodes][here] + partial
            total[here] = partial
        return total

    def _gather(self, messages: Sequence[Message]) -> tuple[Array, Traffic]:
        """Return all buffers, one after the other by rank; each is passed on N - 1 times."""
        shape = (2, max(0, self.nodes - 1), self.nodes, 1)
        sizes, counts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        lengths = np.array([message.data.size for message in messages])
        for step in range(self.nodes - 1):
            length = lengths[[(rank - step) % self.nodes for rank in range(self.nodes)]]
            counts[Phase.ALL_GATHER, step, :, 0] = length
            sizes[Phase.ALL_GATHER, step, :, 0] = np.where(length > 0, length + HEADER_BYTES, 0)
        busiest = sizes[Phase.ALL_GATHER].max(axis=(1, 2), initial=0)
        time_s = float(np.sum(busiest * self.link.seconds_per_byte + self.link.latency_s))
        return np.concatenate([message.data for message in messages]), Traffic(sizes, counts, time_s)

    def _coded(self, messages: Sequence[Message]) -> tuple[Array, Traffic]:
        """Run ASC over a boomerang ring; its tables go on from the channel's last message."""
        first = messages[0]
        nodes = self._open(first.channel)
        if first.ride is not None:
            raise ValueError(
                f"channel {first.channel}: a coded message has no riders; append them to its data"
            )
        plan = make_plan(self.plan, first.data.size, self.nodes, granule=self.granule, costs=None)
        classes = None if first.context is None else plan.gather(first.context)
        if classes is None and self.codec.uses_context:
            classes = np.zeros(first.data.size, np.uint8)
        layout = Layout(plan.bounds, 1)
        for node, message in zip(nodes, messages, strict=True):
            node.begin(plan.gather(message.data), classes, layout)
        ring = Ring(nodes, subframes=1, boomerang=True)
        ring.run()
        results = [node.result() for node in nodes]
        identical = all(np.array_equal(results[0], result) for result in results)
        total = plan.scatter(results[0])
        if not np.array_equal(total, np.sum([message.data for message in messages], axis=0)):
            raise OscarError(
                f"channel {first.channel}: expected the direct sum from the coded ring, got another: "
                "this is a bug; please report it with the configuration"
            )
        time_s = (
            ring_time(ring.frame_bytes, ring.counts, self.link, boomerang=True) if self.nodes > 1 else 0.0
        )
        traffic = Traffic(ring.frame_bytes, ring.counts, time_s, True, plan.name, identical)
        return total, traffic

    def _open(self, channel: str) -> list[Node]:
        """Return the ring nodes of a coded channel, made where it is new."""
        if channel not in self.links:
            self.links[channel] = [self._make(rank, self.channels[channel]) for rank in range(self.nodes)]
        return self.links[channel]

    def _make(self, rank: int, bits: int) -> Node:
        return Node(rank, self.nodes, self.codec, boomerang=True, width=partial(sum_width, bits))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state of all coded links."""
        return {
            channel: {"bits": self.channels[channel], "nodes": [node.state_dict() for node in nodes]}
            for channel, nodes in self.links.items()
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved, known = Saved.of(state), ", ".join(self.channels) or "none: nothing is coded"
        fresh = {}
        for channel in saved.keys(self.channels.__contains__, known):
            own = saved[channel].only("bits", "nodes")
            own.fits("bits", self.channels[channel])
            fresh[channel] = [self._make(rank, self.channels[channel]) for rank in range(self.nodes)]
            for node, end in zip(fresh[channel], own["nodes"].items(self.nodes), strict=True):
                node.load_state_dict(end)
        self.links = fresh

    def snapshot(self) -> dict[str, list[Any]]:
        """Return a cheap token of all coded links for `restore`."""
        return {channel: [node.snapshot() for node in nodes] for channel, nodes in self.links.items()}

    def restore(self, token: dict[str, list[Any]]) -> None:
        """Go back to the links of `snapshot`; those made since then are dropped."""
        self.links = {channel: nodes for channel, nodes in self.links.items() if channel in token}
        for channel, saved in token.items():
            for node, state in zip(self.links[channel], saved, strict=True):
                node.restore(state)


def _check_alike(messages: Sequence[Message]) -> None:
    """Raise GradientError unless all workers brought the same kind and shape of message."""
    first = messages[0]
    for rank, message in enumerate(messages):
        came, expected = _kind(message), _kind(first)
        if came != expected or (first.op != "gather" and message.data.shape != first.data.shape):
            raise GradientError(
                f"node {rank} sent {came} of {message.data.shape}, node 0 sent {expected} of "
                f"{first.data.shape}: all nodes must run the same scheme on the same model"
            )


def _kind(message: Message) -> tuple[object, ...]:
    ride = 0 if message.ride is None else message.ride.size
    return message.channel, message.op, message.bits, message.coded, message.data.dtype.str, ride
