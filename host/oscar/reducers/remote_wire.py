"""Messages of a scheme between processes: one rank's part of each ring, over a transport.

What LocalWire does for all workers of a process, with the same bits: integers, and sums of float32, which are
added in the order of the ring.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec
from oscar.collective.node import Layout, Node
from oscar.collective.ring import Action, Op, ring_actions
from oscar.numerics.plans import make_plan
from oscar.numerics.quantiser import sum_width
from oscar.reducers.communicator import Communicator
from oscar.reducers.local_wire import NO_CHANNELS
from oscar.schemes.base import RIDE_BITS, Message
from oscar.schemes.lanes import pack_lanes, unpack_lanes
from oscar.state import Saved
from oscar.transports import handshake
from oscar.transports.base import TransportError

Combine = Callable[[Array, Array], Array]
LENGTH_BYTES = 8  # of a buffer that is gathered


class Party(Communicator):
    """What a communicator does beside its own AllReduce: ranks compare, and tell each other who failed."""

    def agree(self, pairs: Mapping[str, Any], what: str, *, advice: str) -> None:
        """Raise the same ConfigError on all ranks unless `pairs` are equal on all of them; collective."""
        self._compare(pairs, what, advice=advice)

    def blame(self, error: TransportError, where: str, action: Action | None) -> NoReturn:
        """Raise the PeerError that `error` means."""
        self._blame(error, where, action)

    def collect(self, mine: bytes, cap: int) -> list[bytes]:
        """Return every rank's `mine`, by rank; collective, `cap` bytes at most. Raises PeerError."""
        return self._gather(mine, cap, "a collective")

    def check_state(self, parts: Mapping[str, int]) -> None:
        """Raise PeerError unless the rank before has the same digests of its replicated state; collective."""
        self._check_state(handshake.StateCheck(self.transport, parts), None)


class RemoteWire:
    """Combines this rank's message with those of all others: collective, in the same order on all ranks.

    party: has the transport, and says who failed. codec, plan, granule: for coded messages, which go around a
    boomerang ring; their links live here. channels: Scheme.coded_channels. `sent_bytes` counts the buffers of
    plain messages, without seals and the library's headers, and whole frames of coded ones.
    """

    def __init__(
        self,
        party: Party,
        *,
        codec: Codec,
        plan: str,
        granule: int,
        channels: Mapping[str, int] = NO_CHANNELS,
    ) -> None:
        self.party, self.codec, self.channels = party, codec, channels
        self.transport, self.nodes, self.rank = party.transport, party.nodes, party.rank
        self.plan, self.granule, self.timeout_s = plan, granule, party.timeout_s
        self.links: dict[str, Node] = {}
        self.sent_bytes = 0

    def combine(self, message: Message) -> Array:
        """Return the combined buffer; for "gather" all buffers by rank, one after the other.

        Raises PeerError when a peer fails.
        """
        if message.op == "gather":
            return self._gather(message.data)
        if message.coded:
            return self._coded(message)
        if message.op == "or":
            packed = self._all_reduce(np.packbits(message.data), np.bitwise_or)
            return np.unpackbits(packed, count=message.data.size).astype(np.bool_)
        if message.op == "max":
            return self._all_reduce(message.data.copy(), np.maximum)
        if message.data.dtype == np.float32:
            return self._all_reduce(message.data.copy(), np.add)
        return self._sum_lanes(message)

    def _sum_lanes(self, message: Message) -> Array:
        words = pack_lanes(message.data, message.bits, self.nodes)
        own = words.size
        if message.ride is not None:
            words = np.concatenate([words, pack_lanes(message.ride, RIDE_BITS, self.nodes)])
        summed = self._all_reduce(words, np.add)
        total = unpack_lanes(summed[:own], message.data.size, message.bits, self.nodes)
        if message.ride is None:
            return total
        riders = unpack_lanes(summed[own:], message.ride.size, RIDE_BITS, self.nodes)
        return np.concatenate([total, riders])

    def _all_reduce(self, buffer: Array, combine: Combine) -> Array:
        """Combine `buffer` with those of all ranks, in place, in equal chunks around a ring; return it."""
        nodes, rank = self.nodes, self.rank
        if not buffer.size or nodes == 1:
            return buffer
        bounds = [buffer.size * chunk // nodes for chunk in range(nodes + 1)]
        chunks = [buffer[low:high] for low, high in pairwise(bounds)]

        def give(hop: int) -> bytes | memoryview:
            chunk = chunks[(rank - hop) % nodes]
            self.sent_bytes += chunk.nbytes
            return chunk.data.cast("B") if chunk.size else b""

        def keep(hop: int, came: memoryview) -> None:
            chunk = chunks[(rank - hop - 1) % nodes]
            self._check_size(came, chunk.nbytes)
            values = np.frombuffer(came, buffer.dtype)
            chunk[:] = combine(chunk, values) if hop < nodes - 1 else values

        most = max(chunk.nbytes for chunk in chunks)
        try:
            self.transport.circulate(2 * (nodes - 1), most, self._deadline(), "a collective", give, keep)
        except TransportError as error:
            self.party.blame(error, "during a collective", None)
        return buffer

    def _gather(self, mine: Array) -> Array:
        """Lengths first: a receiver makes room for the longest."""
        if self.nodes == 1:
            return mine.copy()
        packed = mine.size.to_bytes(LENGTH_BYTES, "little")
        lengths = self._gather_bytes(packed, LENGTH_BYTES)
        longest = max(int.from_bytes(length, "little") for length in lengths)
        every = self._gather_bytes(mine.tobytes(), longest)
        return np.concatenate([np.frombuffer(part, np.uint8) for part in every])

    def _gather_bytes(self, mine: bytes, cap: int) -> list[bytes]:
        every = self.party.collect(mine, cap)
        self.sent_bytes += sum(map(len, every)) - len(every[(self.rank + 1) % self.nodes])
        return every

    def _check_size(self, came: memoryview, expected: int) -> None:
        """Raise TransportError where the rank before sends another length: it is at something else."""
        if len(came) != expected:
            left = (self.rank - 1) % self.nodes
            text = f"rank {left} sent {len(came)} bytes where {expected} are due: it is at another message"
            raise TransportError(text, peer=left, kind="aborted")

    def _coded(self, message: Message) -> Array:
        """Run this rank's part of a boomerang ring of ASC frames, as LocalWire does for all ranks."""
        if message.ride is not None:
            raise ValueError(
                f"channel {message.channel}: a coded message has no riders; append them to its data"
            )
        node = self._open(message.channel)
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

    def _open(self, channel: str) -> Node:
        """Return this rank's ring node of a coded channel, made where it is new."""
        if channel not in self.links:
            self.links[channel] = self._make(self.channels[channel])
        return self.links[channel]

    def _make(self, bits: int) -> Node:
        return Node(self.rank, self.nodes, self.codec, boomerang=True, width=partial(sum_width, bits))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state of this rank's ends of all coded links."""
        return {
            channel: {"bits": self.channels[channel], "node": node.state_dict()}
            for channel, node in self.links.items()
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved, known = Saved.of(state), ", ".join(self.channels) or "none: nothing is coded"
        fresh = {}
        for channel in saved.keys(self.channels.__contains__, known):
            own = saved[channel].only("bits", "node")
            own.fits("bits", self.channels[channel])
            fresh[channel] = self._make(self.channels[channel])
            fresh[channel].load_state_dict(own["node"])
        self.links = fresh
