"""Messages of a scheme between processes: plain collectives of torch.distributed, one rank's part of each.

What LocalWire does for all workers of a process, with the same bits where messages are integers. Sums of
float32 are added in the library's order, which is the same on all ranks, but not LocalWire's.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from oscar.allreduce.node import Layout, Node
from oscar.allreduce.schedule import Op, ring_actions
from oscar.codecs.base import Codec
from oscar.plans import make_plan
from oscar.schemes.base import RIDE_BITS, Array, Message
from oscar.schemes.lanes import pack_lanes, unpack_lanes
from oscar.transports.base import Transport
from oscar.transports.gloo import load_torch


class RemoteWire:
    """Combines this rank's message with those of all others: collective, in the same order on all ranks.

    group: of torch.distributed, over CPU tensors. transport, codec, plan, granule: for coded messages, which
    go around a boomerang ring; their links live here. `sent_bytes` counts what a ring sends for plain
    collectives, without the library's headers, and whole frames of coded ones.
    """

    def __init__(
        self, group: Any, transport: Transport, *, codec: Codec, plan: str, granule: int, timeout_s: float
    ) -> None:
        self._torch, self._dist = load_torch()
        self.group, self.transport, self.codec = group, transport, codec
        self.nodes, self.rank = transport.nodes, transport.rank
        self.plan, self.granule, self.timeout_s = plan, granule, timeout_s
        self.links: dict[str, Node] = {}
        self.bits: dict[str, int] = {}
        self.sent_bytes = 0

    def combine(self, message: Message) -> Array:
        """Return the combined buffer; for "gather" all buffers by rank, one after the other.

        Raises RuntimeError (torch) or TransportError when a peer fails.
        """
        reduce = self._dist.ReduceOp
        if message.op == "gather":
            return self._gather(message.data)
        if message.coded:
            return self._coded(message)
        if message.op == "or":
            packed = self._all_reduce(np.packbits(message.data), reduce.BOR)
            return np.unpackbits(packed, count=message.data.size).astype(np.bool_)
        if message.op == "max":
            return self._all_reduce(message.data.copy(), reduce.MAX)
        if message.data.dtype == np.float32:
            return self._all_reduce(message.data.copy(), reduce.SUM)
        return self._sum_lanes(message)

    def _sum_lanes(self, message: Message) -> Array:
        words = pack_lanes(message.data, message.bits, self.nodes)
        own = words.size
        if message.ride is not None:
            words = np.concatenate([words, pack_lanes(message.ride, RIDE_BITS, self.nodes)])
        summed = self._all_reduce(words.view(np.int64), self._dist.ReduceOp.SUM).view(np.uint64)
        total = unpack_lanes(summed[:own], message.data.size, message.bits, self.nodes)
        if message.ride is None:
            return total
        riders = unpack_lanes(summed[own:], message.ride.size, RIDE_BITS, self.nodes)
        return np.concatenate([total, riders])

    def _all_reduce(self, buffer: Array, op: Any) -> Array:
        """Combine `buffer` in place and return it."""
        if buffer.size and self.nodes > 1:
            self._dist.all_reduce(self._torch.from_numpy(buffer), op, group=self.group)
            self.sent_bytes += ring_bytes(buffer.nbytes, self.nodes)
        return buffer

    def _gather(self, mine: Array) -> Array:
        """Lengths first: Gloo gathers equal lengths only, so buffers are filled up to the longest."""
        if self.nodes == 1:
            return mine.copy()
        lengths = np.zeros(self.nodes, np.int64)
        lengths[self.rank] = mine.size
        self._all_reduce(lengths, self._dist.ReduceOp.SUM)
        longest = int(lengths.max())
        if longest == 0:
            return mine.copy()
        filled = self._torch.zeros(longest, dtype=self._torch.uint8)
        filled[: mine.size] = self._torch.from_numpy(mine)
        every = [self._torch.empty_like(filled) for _ in range(self.nodes)]
        self._dist.all_gather(every, filled, group=self.group)
        self.sent_bytes += longest * (self.nodes - 1)
        return np.concatenate([part.numpy()[:length] for part, length in zip(every, lengths, strict=True)])

    def _coded(self, message: Message) -> Array:
        """Run this rank's part of a boomerang ring of ASC frames, as LocalWire does for all ranks."""
        if message.ride is not None:
            raise ValueError(
                f"channel {message.channel}: a coded message has no riders; append them to its data"
            )
        node = self.open(message.channel, message.bits)
        plan = make_plan(self.plan, message.data.size, self.nodes, granule=self.granule, costs=None)
        classes = None if message.context is None else plan.gather(message.context)
        if classes is None and self.codec.uses_context:
            classes = np.zeros(message.data.size, np.uint8)
        node.begin(plan.gather(message.data), classes, Layout(plan.bounds, 1))
        for action in ring_actions(self.rank, self.nodes, subframes=1, boomerang=True):
            if node.count(action) == 0:
                continue  # an empty chunk is never sent
            if action.op is Op.POST_RECV:
                self.transport.post_recv(action.peer, action.tag, node.cap(action))
            elif action.op is Op.WAIT:
                what = f"the frame of step {action.ring_step(self.nodes)}, chunk {action.chunk}"
                came = self.transport.wait(action.peer, action.tag, self._deadline(), what)
                node.receive(action, bytes(came))
            else:
                frame = node.perform(action)
                if frame is not None and action.op in (Op.SEND, Op.FORWARD):
                    self.transport.post_send(action.peer, action.tag, frame)
                    self.sent_bytes += len(frame)
        self.transport.flush(self._deadline())
        return plan.scatter(node.result())

    def _deadline(self) -> float:
        return time.monotonic() + self.timeout_s

    def open(self, channel: str, bits: int) -> Node:
        """Return this rank's ring node of a coded channel, made where it is new."""

        def width(terms: int) -> int:
            return bits + max(0, terms - 1).bit_length()

        if channel not in self.links:
            self.links[channel] = Node(self.rank, self.nodes, self.codec, boomerang=True, width=width)
            self.bits[channel] = bits
        return self.links[channel]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state of this rank's ends of all coded links."""
        return {
            channel: {"bits": self.bits[channel], "node": node.state_dict()}
            for channel, node in self.links.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.links = {}
        for channel, saved in state.items():
            self.open(channel, saved["bits"]).load_state_dict(saved["node"])


def ring_bytes(size: int, nodes: int) -> int:
    """Return the bytes that one of `nodes` ranks sends in a ring AllReduce of `size` bytes."""
    return 2 * size * (nodes - 1) // nodes
