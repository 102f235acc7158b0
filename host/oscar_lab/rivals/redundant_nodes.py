"""An AllReduce that does not wait for stragglers: every task is done by several workers, and counts once.

Worker w does tasks w, w+1, .. (mod N) of N, `copies` of them, and sends each on its own: one message for a
task and an owner of a chunk, as in a direct schedule. An owner adds the first copy of a task that arrives and
goes on once all tasks are covered: it codes the sum once and sends the same bytes to all. A worker that holds
all sums leaves its other tasks. Sums are of integers: the same bits whichever copies came first.

Both ends of every link hold equal tables: frames of a link arrive in the order in which they were coded, and
each is decoded whether it counts or not. A late copy is decoded with the position classes of its own
iteration, then dropped. A rank is one iteration ahead of another at most, since it waits for every owner's
sum; owners of empty chunks send an empty frame for that.

When a rank dies, the next living rank owns its chunk. Who holds the sum sends it to all again, coded without
tables that others may not have reached; the others send the tasks that they have done to the new owner. A
message from two iterations ago is from a rank whose death others have known for longer.

Nothing here has a clock or a wire: a driver says which task is done or which message has arrived next, and
carries messages away. On a link, messages of one kind keep their order, TASK and SUM of an iteration come
before those of the next, and the news of a death comes last. `redundant_time` drives by modelled time. A
real transport needs three things: to wait for the next frame of any peer, not of a known one; an envelope
with the fields of `TaskMessage` before the frame; and tags that count the messages of a link, so that a
receive can be posted before it is known which task it will bring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec
from oscar.coding.frame import peek
from oscar.errors import ConfigError, FrameError, PeerError
from oscar_lab.rivals.redundant_tasks import Iteration, Kind, Redundancy, TaskMessage


class RedundantNode:
    """One rank: its link ends, what it has added, and what it must send next.

    codec: lossless, of integers. width(workers): raw width in bits of a sum of so many workers' values.
    `drained` counts copies of tasks that came and were not added. Every method returns the messages that are
    now to be sent, in order. Raises ConfigError for other codecs, PeerError for a bad frame and where a task
    has no copy left.
    """

    def __init__(self, rank: int, plan: Redundancy, codec: Codec, width: Callable[[int], int]) -> None:
        if codec.domain != "int" or not codec.lossless:
            raise ConfigError(
                f"redundancy: expected a lossless codec of integers, got {codec.name}: sums would "
                "depend on the order of arrival"
            )
        self.rank, self.plan, self.codec, self.width = rank, plan, codec, width
        self.ends: dict[tuple[str, Kind, int], Any] = {}
        self.dead: set[int] = set()
        self.drained = 0
        self.finished: dict[int, Array] = {}
        self._now: Iteration | None = None
        self._last: Iteration | None = None
        self._early: list[TaskMessage] = []

    @property
    def now(self) -> Iteration:
        """The present iteration."""
        if self._now is None:
            raise RuntimeError("expected `begin` first: no iteration has begun")
        return self._now

    @property
    def done(self) -> bool:
        """Whether all sums are here."""
        return len(self.now.held) == self.plan.nodes

    @property
    def wanted(self) -> int | None:
        """The task to do next; None where all are done, or their results no longer needed."""
        left = [task for task in self.plan.tasks(self.rank) if task not in self.finished]
        return left[0] if left and not self.done else None

    def owner(self, chunk: int) -> int:
        """Return who owns `chunk`: the rank of that number, or the next one that is not known to be dead."""
        n = self.plan.nodes
        return next(rank % n for rank in range(chunk, chunk + n) if rank % n not in self.dead)

    def begin(self, bounds: Sequence[int], classes: Array | None, dtype: Any = np.int32) -> list[TaskMessage]:
        """Start an AllReduce over chunks that `bounds` cut, with position `classes`; return what to send.

        classes: kept until the next iteration ends, and not written to before. dtype: of the sums.
        """
        n = self.plan.nodes
        if len(bounds) != n + 1:
            raise ValueError(f"bounds: expected {n + 1} for {n} chunks, got {len(bounds)}")
        if self._now is not None and not self.done:
            raise RuntimeError("expected all sums of one iteration before the next begins")
        number = 0 if self._now is None else self._now.number + 1
        sums = np.zeros(bounds[-1], dtype)
        self._last = self._now
        self._now = Iteration(number, tuple(bounds), classes, sums, set(), [set() for _ in range(n)])
        self.finished = {}
        self._check_copies()
        sent = self._empty_chunks()
        early, self._early = self._early, []
        for message in early:
            sent += self.receive(message)
        return sent

    def finish(self, task: int, values: Array) -> list[TaskMessage]:
        """Take in the integers of a task of this rank, in plan order; return what to send."""
        if task not in self.plan.tasks(self.rank) or task in self.finished:
            raise ValueError(
                f"rank {self.rank} does tasks {self.plan.tasks(self.rank)} once each, got {task}"
            )
        self.finished[task] = values
        n, sent = self.plan.nodes, []
        for turn in range(1, n + 1):
            sent += self._offer((self.rank + turn) % n, task)
        return sent

    def receive(self, message: TaskMessage) -> list[TaskMessage]:
        """Take in a message; return what to send."""
        if message.sender in self.dead:
            return []
        if self._now is None or message.iteration > self._now.number:
            self._early.append(message)  # its position classes are not known yet
            return []
        now = self._now
        if message.iteration < now.number - 1:  # AGAIN is needed no more; otherwise others own its chunk
            return [] if message.kind is Kind.AGAIN else self.lost(message.sender)
        of = now if message.iteration == now.number else self._last
        if of is None or of.number != message.iteration:
            raise self._bad(message, f"it is of iteration {message.iteration}, at {now.number}")
        values = self._decode(message, of)
        if message.kind is Kind.TASK:
            if of is now and message.task not in now.covered[message.chunk] and message.chunk not in now.held:
                return self._count(message.chunk, message.task, values)
            self.drained += 1
        elif message.chunk not in of.held:
            of.sums[of.span(message.chunk)] = values
            of.held.add(message.chunk)
        return []

    def lost(self, peer: int) -> list[TaskMessage]:
        """Learn that `peer` is dead: nothing of it comes after this; return what to send."""
        n = self.plan.nodes
        moved = [chunk for chunk in range(n) if self.owner(chunk) == peer]
        self.dead.add(peer)
        if self._now is None:
            return []
        sent = []
        for chunk in moved:
            for of in (self._last, self._now):
                if of is not None and chunk in of.held:
                    sent += self._send_sum(chunk, of, Kind.AGAIN)
            for task in self.finished:
                sent += self._offer(chunk, task)
        sent += self._empty_chunks()
        self._check_copies()
        return sent

    def _offer(self, chunk: int, task: int) -> list[TaskMessage]:
        """Count a finished task's values of a chunk here, or send them to the chunk's owner."""
        now = self.now
        if chunk in now.held or now.empty(chunk):
            return []
        owner, values = self.owner(chunk), self.finished[task][now.span(chunk)]
        if owner == self.rank:
            return [] if task in now.covered[chunk] else self._count(chunk, task, values)
        end = self._end("encode", Kind.TASK, owner)
        frame = self._encode(end, values, now, chunk, task, terms=1)
        return [TaskMessage(Kind.TASK, now.number, self.rank, owner, chunk, task, frame)]

    def _count(self, chunk: int, task: int, values: Array) -> list[TaskMessage]:
        """Add a task that was not covered; send the sum once all are."""
        now = self.now
        now.sums[now.span(chunk)] += values.astype(now.sums.dtype, copy=False)
        now.covered[chunk].add(task)
        return self._whole(chunk) if len(now.covered[chunk]) == self.plan.nodes else []

    def _whole(self, chunk: int) -> list[TaskMessage]:
        self.now.held.add(chunk)
        return self._send_sum(chunk, self.now, Kind.SUM)

    def _empty_chunks(self) -> list[TaskMessage]:
        """Send the sums of empty chunks, which need no task."""
        now, sent = self.now, []
        for chunk in range(self.plan.nodes):
            if now.empty(chunk) and chunk not in now.held and self.owner(chunk) == self.rank:
                sent += self._whole(chunk)
        return sent

    def _send_sum(self, chunk: int, of: Iteration, kind: Kind) -> list[TaskMessage]:
        """Code a sum once, for all; AGAIN by fresh tables, since a receiver may be an iteration behind."""
        n = self.plan.nodes
        peers = [(self.rank + turn) % n for turn in range(1, n)]
        peers = [peer for peer in peers if peer not in self.dead]
        if not peers:
            return []
        end = self._end("encode", kind, -1)
        frame = self._encode(end, of.sums[of.span(chunk)], of, chunk, 0, terms=n)
        return [TaskMessage(kind, of.number, self.rank, peer, chunk, 0, frame) for peer in peers]

    def _end(self, way: str, kind: Kind, peer: int) -> Any:
        """Return a link end: made when it is first used and kept, but for AGAIN."""
        make = self.codec.make_encoder if way == "encode" else self.codec.make_decoder
        if kind is Kind.AGAIN:
            return make()
        if (way, kind, peer) not in self.ends:
            self.ends[way, kind, peer] = make()
        return self.ends[way, kind, peer]

    def _encode(self, end: Any, values: Array, of: Iteration, chunk: int, task: int, *, terms: int) -> bytes:
        known = {"step": terms - 1, "context": of.context(chunk), "width": self.width(terms)}
        frame: bytes = end.encode(values, **known, chunk=chunk, sub=task)
        return frame

    def _decode(self, message: TaskMessage, of: Iteration) -> Array:
        """Return the values of a message; raises PeerError unless it is the frame that it claims to be."""
        terms = 1 if message.kind is Kind.TASK else self.plan.nodes
        context, span = of.context(message.chunk), of.span(message.chunk)
        end = self._end("decode", message.kind, message.sender)
        try:
            values: Array = end.decode(message.frame, step=terms - 1, context=context)
        except FrameError as error:
            raise self._bad(message, str(error)) from error
        head = peek(message.frame)
        came = (head.count, head.width, head.chunk, head.sub)
        expected = (span.stop - span.start, self.width(terms), message.chunk, message.task)
        if came != expected:
            raise self._bad(message, f"it has (count, width, chunk, task) {came}, expected {expected}")
        return values

    def _bad(self, message: TaskMessage, why: str) -> PeerError:
        what = f"task {message.task}" if message.kind is Kind.TASK else "the sum"
        text = (
            f"rank {self.rank}: the frame of {what}, chunk {message.chunk}, from rank {message.sender} is "
            f"bad: {why}"
        )
        return PeerError(text, rank=self.rank, peer=message.sender, step=message.task, chunk=message.chunk)

    def _check_copies(self) -> None:
        """Raise PeerError where a chunk of this rank lacks a task whose workers are all dead.

        Another rank may still have held the sum: that is not waited for.
        """
        now = self.now
        for chunk in range(self.plan.nodes):
            if chunk in now.held or now.empty(chunk) or self.owner(chunk) != self.rank:
                continue
            for task in sorted(set(range(self.plan.nodes)) - now.covered[chunk]):
                workers = self.plan.workers(task)
                if self.dead.issuperset(workers):
                    raise PeerError(
                        f"rank {self.rank}: no copy of task {task} is left for chunk {chunk}: "
                        f"its workers {', '.join(map(str, workers))} are dead; start again without them, or "
                        f"with a redundancy above {self.plan.copies}",
                        rank=self.rank,
                        peer=workers[0],
                        step=task,
                        chunk=chunk,
                    )
