"""Frames over plain TCP connections between the ranks of a torch.distributed group (extra torch).

torch.distributed only introduces the ranks to each other: addresses, and a public value of each rank, go
through the job's store. Both ends of a connection prove who they are (proofs.py); strangers are sent away, at
either end (introductions.py). Later bytes are in clear (keyed.py seals).
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from oscar.errors import OscarError
from oscar.transports.base import CONTROL_TAGS, STATE_TAG, Bytes, Transport, TransportError
from oscar.transports.gloo import first_line, load_torch, meeting, start
from oscar.transports.introductions import connect
from oscar.transports.line import head_of
from oscar.transports.lines import Lines

MAKING = timedelta(minutes=5)  # how late another rank may be to the making of a transport


class TcpTransport(Transport):
    """One rank of a torch.distributed group (default: all ranks), with a connection to every other rank.

    Making one is collective between the ranks of `group`, in one order on all of these; other ranks have no
    part in it. Starts torch.distributed from torchrun's environment where that has not been done. Raises
    MissingExtraError without torch, OscarError outside torchrun, in a process that is not in `group`, and
    where a rank of it has not come after five minutes.
    """

    def __init__(self, group: Any = None) -> None:
        _, dist = load_torch()
        owns_default = not dist.is_initialized()
        if owns_default:
            start(dist)
        store, ranks, refuse = meeting(group, "tcp")
        rank = ranks.index(dist.get_rank())
        try:
            self._lines = Lines(connect(store, rank, len(ranks), time.monotonic() + MAKING.total_seconds()))
        except (RuntimeError, TimeoutError) as error:  # of the store
            raise refuse(error, MAKING) from None
        self._begin(rank, ranks, dist.group.WORLD if owns_default else None)

    def _begin(self, rank: int, ranks: list[int], default: Any = None) -> None:
        """Take over the connections in `_lines`; default: the job's group, where it ends with this one."""
        self._caps: dict[tuple[int, int], int] = {}
        self._ends_by(_end, self._lines, default)
        super().__init__(rank, len(ranks), members=ranks)

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        self._caps[peer, tag] = cap
        self._lines.expect(peer, tag, cap)

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        self._put(peer, tag, (head_of(sum(map(len, parts)), tag), *parts))

    def _put(self, peer: int, tag: int, pieces: tuple[Bytes, ...]) -> None:
        self._lines.send(peer, tag, pieces, held=tag == STATE_TAG)  # the frame that follows takes it along

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        came = self._lines.take(peer, tag)
        if came is not None:
            if len(came) > self._caps[peer, tag]:
                text = f"rank {peer} sent {len(came)} bytes (tag {tag}), at most {self._caps[peer, tag]} fit"
                raise TransportError(text, peer=peer, kind="aborted", tag=tag)
        elif (lost := self._lines.by_peer[peer].lost) is not None:
            self.dead.setdefault(peer, lost)
        elif (blocked := self._lines.by_peer[peer].blocked) is not None and tag not in CONTROL_TAGS:
            came = self._behind(peer, tag, *blocked)
        return came

    def _behind(self, peer: int, tag: int, other: int, size: int) -> memoryview | None:
        """Return the message, where it came before the connection was blocked by a message of tag `other`.

        Raises TransportError where it did not: it would be behind a message for which this rank, which waits
        here, will never make room.
        """
        came = self._lines.take(peer, tag)
        if came is None and other not in CONTROL_TAGS:
            expected = f"expected a message of tag {tag} from rank {peer}"
            text = f"{expected}, got one of tag {other} and {size} bytes, which nobody awaits"
            raise TransportError(text, peer=peer, kind="aborted", tag=tag)
        return came

    def _unsent(self) -> list[tuple[int, int]]:
        return self._lines.unsent()

    def _pause(self, tries: int) -> None:
        self._lines.pause()

    def _glance(self) -> None:
        self._lines.pause(0.0)


class StoreTransport(TcpTransport):
    """One rank of `nodes` that meet at a store of torch.distributed, which need not be initialised.

    store: one that all ranks reach, with a prefix that no other meeting has. timeout_s: for others to come.
    Raises MissingExtraError without torch, OscarError where a rank has not come by then or the store is gone.
    """

    def __init__(self, store: Any, rank: int, nodes: int, *, timeout_s: float) -> None:
        load_torch()
        try:
            self._lines = Lines(connect(store, rank, nodes, time.monotonic() + timeout_s))
        except (RuntimeError, TimeoutError) as error:  # of the store
            raise OscarError(
                f"rank {rank} of {nodes} could not meet the others at the store within {timeout_s:g} s "
                f"({first_line(error)}); start all ranks, and keep the store alive"
            ) from None
        self._begin(rank, list(range(nodes)))


def _end(lines: Lines, default: Any) -> None:
    """Close all connections, and end torch.distributed where we began it; nothing in a forked child."""
    if lines.dropped:
        return
    lines.close()
    if default is not None:
        _, dist = load_torch()
        if dist.is_initialized() and dist.group.WORLD is default:
            dist.destroy_process_group()
