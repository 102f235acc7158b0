"""The wire between processes: one rank's part of each AllReduce, over a transport.

Its results equal those of LocalWire bit for bit: floats are added in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.collective import threaded
from oscar.collective.executor import drive, execute
from oscar.collective.frames import FrameLog, Moved
from oscar.collective.schedule import Schedule
from oscar.cores import most_threads
from oscar.reducers.party import Party
from oscar.reducers.wire import Traffic, Wire, check_parts
from oscar.schemes.base import RIDE_BITS, Channel, Message
from oscar.schemes.fields import pack_fields, unpack_fields
from oscar.transports.base import Bytes, TransportError

Combine = Callable[[Array, Array], Array]
LENGTH_BYTES = 8  # bytes of the length in front of a gathered buffer
FIRST_ROOM = 1024  # bytes of room for a channel's first gather
MOST_BYTES_A_VALUE = 16  # that a rank gathers or hands over: a position of 8, a value of 4, and more
MOST_BYTES_OF_HEADS = 1 << 20  # beside these


class RemoteWire(Wire):
    """Combines this rank's message with the messages of all other ranks.

    Calls are collective, in the same order on all ranks. party: the transport's services. Traffic counts the
    buffers of plain messages, without checksums and the library's headers, and whole frames of coded ones.
    default: the configured schedule, if any; where its ranks all meet, plain messages go straight to all.
    """

    weighs = False  # a rank's calls take time; nobody models it
    keeps = False  # nor looks at its integers again

    def __init__(
        self, party: Party, channels: Mapping[str, Channel], default: Schedule | None = None
    ) -> None:
        super().__init__(party.nodes, (party.rank,), channels)
        self.party, self.transport, self.rank = party, party.transport, party.rank
        schedules = [channel.schedule for channel in channels.values()]
        schedules += [] if default is None else [default]
        for schedule in schedules:
            self.transport.meet(schedule.peers(self.rank))
        self._all_met = any(map(_meets_all, schedules))
        self._rooms: dict[str, int] = {}  # bytes of room for a gather, by channel; equal on all ranks
        self._sent = 0  # bytes that the current message has sent

    def announce(self, digests: Callable[[], Mapping[str, int]]) -> None:
        self.party.announce(digests())

    def settle(self) -> None:
        self.party.settle()

    def combine(self, messages: Sequence[Message]) -> tuple[Any, Traffic]:
        """See Wire.combine. messages: this rank's only one."""
        (message,) = messages
        if message.coded:
            return self._coded(message)
        self.settle()
        self._sent = 0
        if message.op == "agree":
            buffers = self.party.gather(message.data.tobytes(), message.data.nbytes, message.channel)
            return _arrays(buffers), Traffic(exchange_bytes=message.data.nbytes * (self.nodes - 1))
        total = self._plain(message)
        if message.aside:
            return total, Traffic(exchange_bytes=self._sent)
        return total, Traffic(sent_bytes=self._sent, plan="equal")

    def _plain(self, message: Message) -> Any:
        if message.op == "exchange":
            return [self._hand_over(message)]
        if message.op == "gather":
            return self._gather(message)
        if message.op == "or":
            packed = self._all_reduce(np.packbits(message.data), np.bitwise_or)
            return np.unpackbits(packed, count=message.data.size).astype(np.bool_)
        if message.op == "max":
            return self._all_reduce(message.data.copy(), np.maximum)
        if message.data.dtype == np.float32:
            return self._all_reduce(message.data.copy(), np.add)
        words = pack_fields(message.data, message.bits, self.nodes)
        count = words.size
        if message.ride is not None:
            words = np.concatenate([words, pack_fields(message.ride, RIDE_BITS, self.nodes)])
        summed = self._all_reduce(words, np.add)
        total = unpack_fields(summed[:count], message.data.size, message.bits, self.nodes)
        if message.ride is None:
            return total
        riders = unpack_fields(summed[count:], message.ride.size, RIDE_BITS, self.nodes)
        return np.concatenate([total, riders])

    def _all_reduce(self, buffer: Array, combine: Combine) -> Array:
        """Combine `buffer` in place with the buffers of all ranks; return it.

        Directly if all ranks have met, in two hops, else around a ring. Both add floats in one order.
        """
        if not buffer.size or self.nodes == 1:
            return buffer
        bounds = [buffer.size * chunk // self.nodes for chunk in range(self.nodes + 1)]
        chunks = [buffer[low:high] for low, high in pairwise(bounds)]
        (self._by_owners if self._all_met else self._around)(chunks, combine)
        return buffer

    def _by_owners(self, chunks: Sequence[Array], combine: Combine) -> None:
        """Send each chunk to its owner, which combines it and sends it to all.

        The owner is the rank at which a ring's sum is whole, and adds as that sum came about.
        """
        nodes, rank = self.nodes, self.rank
        owned = [chunks[(owner + 1) % nodes] for owner in range(nodes)]
        mine, sizes = owned[rank], [chunk.nbytes for chunk in owned]
        received = self._straight(
            [_bytes_of(chunk) for chunk in owned], [mine.nbytes] * nodes, "a collective"
        )
        for source, part in enumerate(received):
            self._expect(part, mine.nbytes, source)
        parts = [np.frombuffer(received[(rank + 1 + step) % nodes], mine.dtype) for step in range(nodes)]
        mine[:] = reduce(combine, parts)
        sums = self._straight([_bytes_of(mine)] * nodes, sizes, "a collective")
        for source, part in enumerate(sums):
            self._expect(part, sizes[source], source)
            owned[source][:] = np.frombuffer(part, mine.dtype)
        self._sent += sum(sizes) - mine.nbytes + mine.nbytes * (nodes - 1)

    def _around(self, chunks: Sequence[Array], combine: Combine) -> None:
        """Send chunks around a ring, which combines them, and again for all to have them."""
        nodes, rank = self.nodes, self.rank

        def give(hop: int) -> Bytes:
            chunk = chunks[(rank - hop) % nodes]
            self._sent += chunk.nbytes
            return _bytes_of(chunk)

        def keep(hop: int, received: memoryview) -> None:
            chunk = chunks[(rank - hop - 1) % nodes]
            self._check_size(received, chunk.nbytes)
            values = np.frombuffer(received, chunk.dtype)
            chunk[:] = combine(chunk, values) if hop < nodes - 1 else values

        most = max(chunk.nbytes for chunk in chunks)
        try:
            self.transport.circulate(2 * (nodes - 1), most, self.party.deadline, "a collective", give, keep)
        except TransportError as error:
            self.party.blame(error, "during a collective", None)

    def _gather(self, message: Message) -> list[Array]:
        """Return every rank's bytes. One round is enough unless a buffer exceeds the room.

        The room follows from the longest buffer of the last gather, which all ranks know.
        """
        mine, room = message.data, self._rooms.get(message.channel, FIRST_ROOM)
        if self.nodes == 1:
            return [mine.copy()]
        head = mine.size.to_bytes(LENGTH_BYTES, "little")
        buffers = self._gather_bytes(head + mine[:room].tobytes(), LENGTH_BYTES + room)
        lengths = [int.from_bytes(one[:LENGTH_BYTES], "little") for one in buffers]
        for source, (one, length) in enumerate(zip(buffers, lengths, strict=True)):
            self._expect(one, LENGTH_BYTES + min(length, room), source)
        self._limit(lengths)
        longest = max(lengths)
        if longest > room:
            rest = self._gather_bytes(mine[room:].tobytes(), longest - room)
            buffers = [one + more for one, more in zip(buffers, rest, strict=True)]
            for source, (one, length) in enumerate(zip(buffers, lengths, strict=True)):
                self._expect(one, LENGTH_BYTES + length, source)
        self._rooms[message.channel] = longest + longest // 4
        return [part[LENGTH_BYTES:] for part in _arrays(buffers)]

    def _hand_over(self, message: Message) -> list[Array]:
        """Return the buffers for this rank, by source. Lengths are gathered before buffers are sent."""
        nodes, rank = self.nodes, self.rank
        check_parts(message, nodes)
        if nodes == 1:
            return [message.data.copy()]
        self.transport.meet(range(nodes))  # before the gather, so that it can send directly
        self._all_met = True
        packed = np.array(message.parts, "<u8").tobytes()
        sizes = self._gather_bytes(packed, len(packed))
        for source, part in enumerate(sizes):
            self._expect(part, len(packed), source)
        due = [int(np.frombuffer(part, "<u8")[rank]) for part in sizes]
        self._limit(due)
        parts = [message.part(to).tobytes() for to in range(nodes)]
        received = self._straight(parts, due, "an exchange")
        for source, part in enumerate(received):
            self._expect(part, due[source], source)
        self._sent += message.data.size - message.parts[rank]
        return [array.copy() for array in _arrays(received)]

    def _gather_bytes(self, mine: bytes, cap: int) -> list[bytes]:
        """Return every rank's bytes, `cap` at most: directly if all ranks have met, else around a ring."""
        if self._all_met:
            self._sent += len(mine) * (self.nodes - 1)
            return self._straight([mine] * self.nodes, [cap] * self.nodes, "a collective")
        buffers = self.party.gather(mine, cap, "a collective")
        self._sent += sum(map(len, buffers)) - len(buffers[(self.rank + 1) % self.nodes])
        return buffers

    def _straight(self, parts: Sequence[Bytes], caps: Sequence[int], what: str) -> list[bytes]:
        try:
            return self.transport.hand_over(parts, caps, self.party.deadline, what)
        except TransportError as error:
            self.party.blame(error, f"during {what}", None)

    def _limit(self, lengths: Sequence[int]) -> None:
        """Raise PeerError where a rank announced more bytes than the values of a call can have."""
        most = MOST_BYTES_OF_HEADS + MOST_BYTES_A_VALUE * (self.values or 0)
        for source, length in enumerate(lengths):
            if self.values is not None and length > most:
                text = (
                    f"rank {source} announced {length} bytes of {self.values} values, expected {most} at most"
                )
                error = TransportError(text, peer=source, kind="aborted")
                self.party.blame(error, "during a collective", None)

    def _expect(self, received: Bytes, expected: int, source: int) -> None:
        """Raise PeerError unless `source` sent the expected number of bytes."""
        try:
            self._check_size(received, expected, source)
        except TransportError as error:
            self.party.blame(error, "during a collective", None)

    def _check_size(self, received: Bytes, expected: int, peer: int | None = None) -> None:
        """Raise TransportError unless `peer` (None: the previous rank) sent the expected number of bytes."""
        if len(received) != expected:
            left = (self.rank - 1) % self.nodes if peer is None else peer
            text = f"rank {left} sent {len(received)} bytes, expected {expected}: it is at another message"
            raise TransportError(text, peer=left, kind="aborted")

    def _coded(self, message: Message) -> tuple[Any, Traffic]:
        """Run this rank's part of a schedule of coded frames, as LocalWire does for all ranks."""
        plan, channel, (node,) = self._begin([message])
        before, log, schedule = node.saturated(), FrameLog(), channel.schedule
        actions = partial(self._actions, self.rank, schedule)
        wait, threads, work = self.party.wait, most_threads(), None
        if message.meanwhile is not None:
            node.watch(actions(), message.meanwhile)
            work = message.meanwhile.work
        if threaded.worthwhile(node, threads):
            threaded.perform(node, actions(), self.transport, log, wait, threads, work)
        else:
            drive(execute(node, actions(), self.transport, log), partial(wait, work=work))
        self.settle()  # a rank without any WAIT has not settled yet
        self.party.flush(actions)
        traffic = Traffic(
            moved=Moved(schedule, channel.codec.coded, log.frames()),
            sent_bytes=log.bytes,
            plan=plan.name,
            clipped=node.saturated() - before,
        )
        return self._answer(plan, message, node), traffic


def _meets_all(schedule: Schedule) -> bool:
    """Whether every rank exchanges frames with every other one."""
    return all(len(schedule.peers(rank)) == schedule.nodes - 1 for rank in range(schedule.nodes))


def _bytes_of(array: Array) -> Bytes:
    return array.data.cast("B") if array.size else b""


def _arrays(buffers: Sequence[bytes]) -> list[Array]:
    return [np.frombuffer(part, np.uint8) for part in buffers]
