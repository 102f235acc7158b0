"""Messages of a scheme between processes: plain collectives of torch.distributed, one rank's part of each.

What LocalWire does for all workers of a process, with the same bits where messages are integers. Sums of
float32 are added in the library's order, which is the same on all ranks, but not LocalWire's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from oscar.allreduce.node import Layout, Node
from oscar.allreduce.peer import Communicator
from oscar.allreduce.schedule import Action, Op, ring_actions
from oscar.codecs.base import Codec
from oscar.plans import make_plan
from oscar.schemes.base import RIDE_BITS, Array, Message
from oscar.schemes.lanes import pack_lanes, unpack_lanes
from oscar.transports.base import TransportError
from oscar.transports.gloo import load_torch

NOTICE_S = 2.0  # how long the reason may take to arrive when a collective broke, and the time given is over
REASON_TAG = 32764  # of a receive that nobody answers


class Party(Communicator):
    """What a communicator does beside its own AllReduce: ranks compare, and tell each other who failed."""

    def agree(self, pairs: Mapping[str, Any], what: str, *, advice: str) -> None:
        """Raise the same ConfigError on all ranks unless `pairs` are equal on all of them; collective."""
        self._compare(pairs, what, advice=advice)

    def blame(self, error: TransportError, where: str, action: Action | None) -> NoReturn:
        """Raise the PeerError that `error` means."""
        self._blame(error, where, action)

    def blame_nobody(self, text: str) -> NoReturn:
        """Raise a PeerError of a rank that nobody knows."""
        raise self._error(f"{text}; gradients are untouched: start again", peer=-1)


class RemoteWire:
    """Combines this rank's message with those of all others: collective, in the same order on all ranks.

    group: of torch.distributed, over CPU tensors. party: says who failed. codec, plan, granule: for coded
    messages, which go around a boomerang ring of its transport; their links live here. `sent_bytes` counts
    what a ring sends for plain collectives, without the library's headers, and whole frames of coded ones.
    """

    def __init__(self, group: Any, party: Party, *, codec: Codec, plan: str, granule: int) -> None:
        self._torch, self._dist = load_torch()
        self.group, self.party, self.codec = group, party, codec
        self.transport, self.nodes, self.rank = party.transport, party.nodes, party.rank
        self.plan, self.granule, self.timeout_s = plan, granule, party.timeout_s
        self.links: dict[str, Node] = {}
        self.bits: dict[str, int] = {}
        self.sent_bytes = 0

    def combine(self, message: Message) -> Array:
        """Return the combined buffer; for "gather" all buffers by rank, one after the other.

        Raises PeerError when a peer fails.
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
            self._collective(self._dist.all_reduce, self._torch.from_numpy(buffer), op)
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
        self._collective(self._dist.all_gather, every, filled)
        self.sent_bytes += longest * (self.nodes - 1)
        return np.concatenate([part.numpy()[:length] for part, length in zip(every, lengths, strict=True)])

    def _collective(self, call: Any, *args: Any) -> None:
        """Do one of the library's; where it breaks, which does not say why, raise PeerError of who did it."""
        begin = time.monotonic()
        try:
            call(*args, group=self.group)
        except RuntimeError as error:
            cause = self._cause(begin + self.timeout_s + NOTICE_S)
            if cause is None:
                first = str(error).partition("\n")[0]
                self.party.blame_nobody(f"a collective failed ({first}), and no rank said why")
            self.party.blame(cause, "during a collective", None)

    def _cause(self, deadline: float) -> TransportError | None:
        """Return what a neighbour says, or that it is gone; None where there is neither until the deadline.

        A neighbour that is still in the collective says nothing until its own time is over.
        """
        for peer in self.transport.neighbours:
            self.transport.post_recv(peer, REASON_TAG, 1)
        while time.monotonic() < deadline:
            for peer in self.transport.neighbours:
                try:
                    until = time.monotonic() + NOTICE_S
                    self.transport.wait(peer, REASON_TAG, until, "the reason of a broken collective")
                except TransportError as error:
                    if error.kind != "silent":
                        return error
        return None

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
        sent: dict[tuple[int, int], Action] = {}
        for action in ring_actions(self.rank, self.nodes, subframes=1, boomerang=True):
            if node.count(action) == 0:
                continue  # an empty chunk is never sent
            if action.op is Op.POST_RECV:
                self.transport.post_recv(action.peer, action.tag, node.cap(action))
            elif action.op is Op.WAIT:
                node.receive(action, self._wait(action))
            else:
                frame = node.perform(action)
                if frame is not None and action.op in (Op.SEND, Op.FORWARD):
                    sent[action.peer, action.tag] = action
                    self.transport.post_send(action.peer, action.tag, frame)
                    self.sent_bytes += len(frame)
        try:
            self.transport.flush(self._deadline())
        except TransportError as error:
            self.party.blame(error, "while it was sent its frames", sent.get((error.peer, error.tag)))
        return plan.scatter(node.result())

    def _wait(self, action: Action) -> bytes:
        which = f"frame of step {action.ring_step(self.nodes)}, chunk {action.chunk}"
        try:
            return bytes(self.transport.wait(action.peer, action.tag, self._deadline(), f"the {which}"))
        except TransportError as error:
            self.party.blame(error, f"while its {which} was due", action)

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
