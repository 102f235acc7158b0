"""The wire between workers of one process: counts plain messages as a ring sends them, runs coded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.frames import Frames, Moved
from oscar.collective.local import Fault, HandOver, LocalRun, association, handed_over
from oscar.collective.local import add_up as added
from oscar.collective.node import Node
from oscar.collective.ring import Ring, passed_on, ring_frames
from oscar.collective.schedule import Schedule
from oscar.errors import GradientError, OscarError
from oscar.numerics.integers import add_up, same_bits
from oscar.numerics.plans import ChunkPlan
from oscar.reducers.wire import Traffic, Wire, check_parts
from oscar.schemes.base import RIDE_BITS, Channel, Message
from oscar.schemes.fields import WORD_BITS, field_limit, fields_per_word, pack_fields, unpack_fields
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import Clock
from oscar.timeline.topology import Topology

BITMAP_BITS = 8  # positions in one byte of a bitmap


class LocalWire(Wire):
    """Combines the messages of all workers of this process.

    A plain message is counted as a ring in equal chunks of whole items (words, floats, bytes). The sizes of
    its frames follow from that, so no frame is made. Integers must fit their fields. The first message of
    each channel and width is also packed, added and unpacked as a real AllReduce of words, to prove the sum.
    A coded message runs its schedule, and the results of all nodes are compared. `faults` strike the next
    coded message.
    link: link model of the time model. topology: network of coded messages in the time model; None: all ranks
    at one switch.
    """

    def __init__(
        self,
        nodes: int,
        channels: Mapping[str, Channel],
        *,
        link: LinkModel,
        topology: Topology | None = None,
    ) -> None:
        super().__init__(nodes, range(nodes), channels)
        self.clock = Clock(link, topology)
        self.faults: Sequence[Fault] = ()
        self._proved: set[tuple[str, int]] = set()

    def combine(self, messages: Sequence[Message]) -> tuple[Any, Traffic]:
        first = messages[0]
        _check_alike(messages)
        if first.op in ("gather", "agree"):
            return self._gather(messages)
        if first.op == "exchange":
            return self._exchange(messages)
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
            bounds = self._bounds(count)
            return float_sum(buffers, bounds, Ring(self.nodes)), self._ring(count, 4, 1)
        total = self._sum_fields(first.channel, first.bits, buffers)
        words = -(-count // fields_per_word(first.bits))
        if first.aside:  # twice around, by all ranks but one
            return total, Traffic(exchange_bytes=2 * (self.nodes - 1) * words * WORD_BITS // 8)
        if first.ride is not None:
            riders = [message.ride for message in messages if message.ride is not None]
            total = np.concatenate([total, self._sum_fields("ride", RIDE_BITS, riders)])
            words += -(-first.ride.size // fields_per_word(RIDE_BITS))
        return total, self._ring(words, WORD_BITS // 8, fields_per_word(first.bits))

    def _sum_fields(self, channel: str, bits: int, buffers: Sequence[Array]) -> Array:
        """Return the integer sum. Once per channel and width, prove it by adding packed words."""
        total, limit = np.zeros(buffers[0].size, np.int32), field_limit(bits, self.nodes)
        for rank, buffer in enumerate(buffers):
            worst = max(int(buffer.max(initial=0)), -int(buffer.min(initial=0)))
            if worst > limit:  # it would need more bytes than were counted
                raise ValueError(
                    f"channel {channel}: node {rank} sent a magnitude of {worst}, fields of {bits} bits hold "
                    f"up to {limit} of each of {self.nodes} workers; clip, or use more bits"
                )
            total += buffer
        if (channel, bits) not in self._proved:
            words = [pack_fields(buffer, bits, self.nodes) for buffer in buffers]
            summed = np.add.reduce(words, dtype=np.uint64)
            if not np.array_equal(unpack_fields(summed, total.size, bits, self.nodes), total):
                raise OscarError(
                    f"channel {channel}: expected the direct sum from fields of {bits} bits, got another: "
                    "this is a bug; please report it with the configuration"
                )
            self._proved.add((channel, bits))
        return total

    def _bounds(self, items: int) -> list[int]:
        return [items * chunk // self.nodes for chunk in range(self.nodes + 1)]

    def _ring(self, items: int, item_bytes: int, per_item: int) -> Traffic:
        """Return the frames of a ring AllReduce of `items` in equal chunks."""
        lengths = np.diff(self._bounds(items))
        frames = ring_frames(lengths * per_item, lengths * item_bytes + HEADER_BYTES)
        return self._raw(Ring(self.nodes), frames)

    def _raw(self, schedule: Schedule, frames: Frames) -> Traffic:
        """Return the traffic of frames that nobody codes."""
        return self._traffic(Moved(schedule, coded=False, frames=frames, clock=self.clock), "equal")

    def _traffic(self, moved: Moved, plan: str, **more: Any) -> Traffic:
        return Traffic(moved=moved, sent_bytes=moved.frames.bytes, plan=plan, **more)

    def _gather(self, messages: Sequence[Message]) -> tuple[list[Array], Traffic]:
        """Return all buffers by rank; each takes N - 1 hops around the ring."""
        buffers = [message.data for message in messages]
        lengths = np.array([buffer.size for buffer in buffers])
        if messages[0].op == "agree":
            return buffers, Traffic(exchange_bytes=int(lengths.sum()) * (self.nodes - 1))
        frames = passed_on(lengths, lengths + HEADER_BYTES)
        return buffers, self._raw(Ring(self.nodes), frames)

    def _exchange(self, messages: Sequence[Message]) -> tuple[list[list[Array]], Traffic]:
        """Return the buffers for each rank, by source; each is sent directly."""
        received = [[message.part(rank) for message in messages] for rank in self.ranks]
        frames = handed_over(np.array([message.parts for message in messages]), HEADER_BYTES)
        return received, self._raw(HandOver(self.nodes), frames)

    def _coded(self, messages: Sequence[Message]) -> tuple[Any, Traffic]:
        """Run a schedule of coded frames; its links keep their tables from the channel's last message."""
        plan, channel, nodes = self._begin(messages)
        faults, self.faults = self.faults, ()
        before = np.sum([node.saturated() for node in nodes], axis=0)  # totals since the links were made
        run = LocalRun(nodes, [self._actions(rank, channel.schedule) for rank in self.ranks], faults=faults)
        run.run()
        first = nodes[0].result()
        identical = all(
            same_bits(first, node.result()) and node.notice == nodes[0].notice for node in nodes[1:]
        )
        answer = self._answer(plan, messages[0], nodes[0])
        traffic = self._traffic(
            Moved(channel.schedule, channel.codec.coded, run.log.frames(), self.clock),
            plan.name,
            identical=identical,
            exact=self._is_sum(plan, channel, nodes, first),
            clipped=np.sum([node.saturated() for node in nodes], axis=0) - before,
            clocks=run.clocks(),
        )
        return answer, traffic

    def _is_sum(self, plan: ChunkPlan, channel: Channel, nodes: Sequence[Node], sums: Array) -> bool:
        """Whether `sums` (plan order) equals the direct sum; floats are added in the schedule's order."""
        if not channel.codec.lossless:
            return False
        local = [node.local for node in nodes]
        if channel.codec.domain == "int":
            return add_up(local, sums)
        return np.array_equal(float_sum(local, plan.bounds, channel.schedule), sums)


def float_sum(buffers: Sequence[Array], bounds: Sequence[int], schedule: Schedule) -> Array:
    """Return the sum of float buffers, added in the order of `schedule`. bounds: chunk bounds."""
    total = np.empty_like(buffers[0])
    for chunk, order in enumerate(association(schedule)):
        here = slice(bounds[chunk], bounds[chunk + 1])
        total[here] = added(order, [buffer[here] for buffer in buffers])
    return total


def _check_alike(messages: Sequence[Message]) -> None:
    """Raise GradientError unless all workers sent messages of the same kind and shape."""
    first = messages[0]
    for rank, message in enumerate(messages):
        actual, expected = _kind(message), _kind(first)
        own_length = first.op in ("gather", "exchange")
        if actual != expected or not (own_length or message.data.shape == first.data.shape):
            raise GradientError(
                f"node {rank} sent {actual} of {message.data.shape}, node 0 sent {expected} of "
                f"{first.data.shape}: all nodes must run the same scheme on the same model"
            )
        check_parts(message, len(messages))


def _kind(message: Message) -> tuple[object, ...]:
    ride = 0 if message.ride is None else message.ride.size
    return message.channel, message.op, message.bits, message.coded, message.data.dtype.str, ride
