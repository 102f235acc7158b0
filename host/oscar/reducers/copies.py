"""Messages of tasks that several ranks compute: the first copy counts, and later ones are dropped unread.

docs/reference/protocol.md, "Redundant tasks". Nothing here knows what a message means.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from oscar.collective.redundant import MAX_PIECES, Redundant
from oscar.errors import PeerError
from oscar.reducers.party import Party
from oscar.transports.base import TASK_TAG, TransportError
from oscar.transports.waits import AnyWait

AHEAD = 4  # calls by which a rank may be ahead of the slowest living one
WHOLE = MAX_PIECES  # in the place of a piece: the whole part of a rank
DONE = 255  # in the place of a round: the sender has the result of this call
HEAD = struct.Struct("<IBBHI")  # call, round, piece, rank whose part it is, digest of the replicated state

Key = tuple[int, int, int]  # round, rank whose part it is, piece


@dataclass
class Counts:
    """What one call moved.

    sent_bytes: with heads. drained, drained_bytes: copies that arrived and were not added. computed: tasks
    that this rank computed. dead: ranks known to be dead.
    """

    sent_bytes: int = 0
    drained: int = 0
    drained_bytes: int = 0
    computed: list[int] = field(default_factory=list)
    dead: tuple[int, ...] = ()


class Copies:
    """One rank's messages to and from all others, in all calls of a communicator.

    Messages of a link arrive in order. A rank reads what a peer sends up to the end of its call, and goes on
    when it begins the next call itself. After a death it reads on at once: a peer that is ahead passes on
    what the dead rank had sent to it.

    call: number of the present call, from 1. counts: of this call. dead: ranks known to be gone,
    with the last call that they have ended.
    """

    def __init__(self, party: Party, schedule: Redundant) -> None:
        self.party, self.transport, self.schedule = party, party.transport, schedule
        self.rank = party.rank
        self.call = self._digest = 0
        self.counts = Counts()
        self.dead: dict[int, int] = {}
        others = [rank for rank in range(party.nodes) if rank != party.rank]
        self.finished = dict.fromkeys(others, 0)  # by living peer: its last call that has ended
        self.transport.meet(others)
        self._cap = 0
        self._posted: set[int] = set()
        self._first: dict[int, dict[Key, tuple[bytes, int, int]]] = {}  # payload, sender, digest; by call

    def begin(self, cap: int, digest: int) -> None:
        """Begin a call once no living rank is more than AHEAD calls behind. Raises PeerError.

        cap: most bytes of a payload. digest: of the replicated state, equal on all ranks.
        """
        self.call += 1
        self.counts, self._cap, self._digest = Counts(), max(self._cap, cap), digest
        self._first.setdefault(self.call, {})
        for peer in self.finished:
            self._post(peer)
        for _, sender, theirs in self._first[self.call].values():
            self._compare(sender, theirs)
        self._wait_for(self.call - 1 - AHEAD)
        self._forget()

    def end(self) -> None:
        """End the call: no rank needs anything of this rank for it any more."""
        message = HEAD.pack(self.call, DONE, 0, self.rank, 0)
        for peer in self.finished:
            self.transport.post_send(peer, TASK_TAG, message)
        self.counts.dead = tuple(self.dead)

    def drain(self) -> None:
        """Wait until all living ranks have ended this rank's last call: no message is under way then."""
        self._wait_for(self.call)
        try:
            self.transport.flush(self.party.deadline)
        except TransportError as error:
            self.party.blame(error, "while copies of tasks were drained", None)

    def get(self, key: Key) -> bytes | None:
        """Return the first copy of a message of this call, or None."""
        entry = self._first[self.call].get(key)
        return None if entry is None else entry[0]

    def sender(self, key: Key) -> int:
        """Return the rank whose copy is first."""
        return self._first[self.call][key][1]

    def send(self, key: Key, payload: bytes) -> None:
        """Send a message of this rank to all others."""
        message = HEAD.pack(self.call, key[0], key[2], key[1], self._digest) + payload
        for peer in self.finished:
            self.transport.post_send(peer, TASK_TAG, message)
            self.counts.sent_bytes += len(message)
        self.note(key, payload)

    def note(self, key: Key, payload: bytes) -> None:
        """Keep a message that this rank has made, to compare copies with it."""
        self._first[self.call].setdefault(key, (payload, self.rank, self._digest))

    def pump(self) -> bool:
        """Take in what has arrived, without a wait; return whether there was news. Raises PeerError."""
        try:
            self.transport.move()
            news = False
            for peer in [*self._posted]:
                while peer in self._posted and self._take(peer):
                    news = True
            for peer in self.transport.dead.keys() & self.finished.keys():
                self._lost(peer)
                news = True
            return news
        except TransportError as error:
            self.party.blame(error, "while copies of tasks were due", None)

    def wait(self, what: str, due: Callable[[], Iterable[int]], until: float | None = None) -> None:
        """Wait for news, or until a time of time.monotonic. Raises PeerError.

        due: returns the ranks for which this rank waits.
        """
        begin, clock = time.perf_counter(), AnyWait(self.transport, self.party.deadline, what)
        try:
            while not self.pump() and (until is None or time.monotonic() < until):
                clock.go_on(list(due()))
        except TransportError as error:
            self.party.blame(error, f"while {what} were due", None)
        finally:
            self.party.waited_s += time.perf_counter() - begin

    def _wait_for(self, call: int) -> None:
        def behind() -> list[int]:
            return [peer for peer, finished in self.finished.items() if finished < call]

        while behind():
            self.wait(f"the end of call {call}", behind)

    def _post(self, peer: int) -> None:
        """Make room for a peer's next message, unless that is of a later call and nobody has died."""
        if peer not in self._posted and (self.dead or self.finished[peer] < self.call):
            self._posted.add(peer)
            self.transport.post_recv(peer, TASK_TAG, HEAD.size + self._cap)

    def _take(self, peer: int) -> bool:
        message = self.transport.look(peer, TASK_TAG)
        if message is None:
            return False
        self._posted.discard(peer)
        self._receive(peer, bytes(message))
        self._post(peer)
        return True

    def _receive(self, peer: int, message: bytes) -> None:
        if len(message) < HEAD.size:
            raise TransportError(f"rank {peer} sent a message without a head", peer=peer, kind="aborted")
        call, number, piece, part, digest = HEAD.unpack_from(message)
        piece_known = part == peer if number == DONE else piece == WHOLE or piece < self.schedule.pieces
        if part >= self.party.nodes or not piece_known or call > self.call + AHEAD + 1:
            text = (
                f"rank {peer} sent a message of call {call}, part {part}, piece {piece}, expected none such"
            )
            raise TransportError(text, peer=peer, kind="aborted")
        if number == DONE:
            self.finished[peer] = max(call, self.finished[peer])
            return
        if call == self.call:
            self._compare(peer, digest)
        payload, key = message[HEAD.size :], (number, part, piece)
        firsts = self._first.setdefault(call, {}) if call >= self.call else self._first.get(call, {})
        covered = key in firsts or (number, part, WHOLE) in firsts
        if call >= self.call and not covered:
            firsts[key] = payload, peer, digest
            return
        self.counts.drained += 1
        self.counts.drained_bytes += len(message)
        if key in firsts and firsts[key][0] != payload:
            raise self._differs(peer, firsts[key][1], key)

    def _compare(self, peer: int, digest: int) -> None:
        if digest != self._digest:
            text = (
                f"rank {self.rank}: rank {peer} has another replicated state than this rank, in call "
                f"{self.call}; gradients are untouched: start all ranks again from one checkpoint"
            )
            raise PeerError(text, rank=self.rank, peer=peer, step=-1, chunk=-1)

    def _differs(self, peer: int, first: int, key: Key) -> PeerError:
        _, part, piece = key
        task = part * self.schedule.pieces + piece
        which = f"the part of rank {part}" if piece == WHOLE else f"task {task}"
        text = (
            f"rank {self.rank}: the copies of {which} from ranks {first} and {peer} differ: expected the "
            "same gradient, bit for bit, wherever a task is computed; use deterministic kernels, one kind of "
            "device and equally many threads on all ranks, or set schedule.copies to 1"
        )
        return PeerError(text, rank=self.rank, peer=peer, step=part, chunk=0)

    def _lost(self, peer: int) -> None:
        """Learn that `peer` is dead: read its last messages, and pass them on to ranks that may lack them."""
        self.dead[peer] = 0
        self._post(peer)
        while self._take(peer):
            pass
        self._posted.discard(peer)
        self.dead[peer] = self.finished.pop(peer)
        for call, firsts in self._first.items():
            for (number, part, piece), (payload, sender, digest) in firsts.items():
                if sender != peer:
                    continue
                message = HEAD.pack(call, number, piece, part, digest) + payload
                for other in (rank for rank, finished in self.finished.items() if finished < call):
                    self.transport.post_send(other, TASK_TAG, message)
                    self.counts.sent_bytes += len(message)
        for other in self.finished:
            self._post(other)

    def _forget(self) -> None:
        """Drop messages of calls that all living ranks have ended."""
        oldest = min([self.call, *self.finished.values()])
        for call in [call for call in self._first if call <= oldest and call < self.call]:
            del self._first[call]
