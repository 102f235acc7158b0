"""Frames over torch.distributed's Gloo (extra torch): point to point in a private group.

Gloo cannot be polled: a receive ends only by blocking in it, and a timeout there breaks the whole group. So
threads block instead: for each neighbour and direction one in frames, and one in control messages (under a
key one more). The rank's own thread waits for them with its own deadlines. A message larger than its receive
ends the process (SIGABRT), so caps matter for safety here. A receive does not say how many bytes came: the
first 8 bytes of a message do.

Private groups are not made by torch's `new_group`. All processes of a job would have to call that, in one
order: two sub-groups made at once got each other's connections.
"""

from __future__ import annotations

import queue
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from oscar.errors import MissingExtraError, OscarError, install
from oscar.transports.base import CONTROL_TAGS, Bytes, Transport

FOREVER = timedelta(days=1)  # deadlines are kept here, not by Gloo
AT_ONCE = timedelta(milliseconds=1)
MAKING = timedelta(minutes=5)  # how late another rank may be to the making of a group
NAP_S = 0.01  # how long the rank's thread sleeps at most before it looks at the clock
JOIN_S = 2.0
STOP_TAG = 32765  # of a receive that nobody answers: its timeout ends all others
FRAMES = -1  # stands for all tags but those of control
LENGTH = struct.Struct("<Q")


class GlooTransport(Transport):
    """One rank of a torch.distributed group (default: all ranks), over a private group between its ranks.

    Making one is collective between the ranks of `group`, in one order on all of these; other ranks have no
    part in it. Starts torch.distributed from torchrun's environment where that has not been done. Raises
    MissingExtraError without torch, OscarError outside torchrun, in a process that is not in `group`, and
    where a rank of it has not come after five minutes.
    """

    def __init__(self, group: Any = None) -> None:
        dist = load_torch()[1]
        owns_default = not dist.is_initialized()
        if owns_default:
            _start(dist)
        private, ranks = private_group(group, MAKING)
        self._join(private, ranks, dist.group.WORLD if owns_default else None)

    def _join(self, group: Any, ranks: list[int], default: Any = None) -> None:
        """Take over a private group of `ranks`; default: the job's group, where it ends with this one."""
        self._torch = load_torch()[0]
        self._group, self._mail = group, _Mail()
        self._buffers: dict[tuple[int, int], Any] = {}
        self._ends_by(_end, group, self._mail, default)
        Transport.__init__(self, group.rank(), len(ranks), members=ranks)

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        size = LENGTH.size + cap
        buffer = self._buffers.get((peer, tag))
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[peer, tag] = self._torch.empty(size, dtype=self._torch.uint8)
        work = self._try(peer, self._group.recv, buffer, tag)
        if work is None:
            return
        line = (peer, tag if tag in CONTROL_TAGS else FRAMES)
        self._mail.hand(line, self._mail.receive, (peer, tag, work, buffer))

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        """See Transport._send; the message is copied, behind its length."""
        self._put(peer, tag, (LENGTH.pack(sum(len(part) for part in parts)), *parts))

    def _put(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        tensor = self._torch.frombuffer(bytearray().join(parts), dtype=self._torch.uint8)
        work = self._try(peer, self._group.send, tensor, tag)
        if work is None:
            return
        line = (-1 - peer, tag if tag in CONTROL_TAGS else FRAMES)
        self._mail.hand(line, self._mail.finish_send, (peer, self._mail.note_send(peer, tag), work, tensor))

    def _try(self, peer: int, call: Any, tensor: Any, tag: int) -> Any:
        if peer in self.dead:
            return None
        try:
            return call([tensor], peer, tag)
        except RuntimeError as error:
            self.dead[peer] = _first_line(error)
            return None

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        mail = self._mail
        with mail.changed:
            messages = mail.messages[peer, tag]
            if messages:
                return messages.popleft()
            line = (peer, tag if tag in CONTROL_TAGS else FRAMES)
            if line in mail.lost:  # by its own thread, after all that came before
                self.dead.setdefault(peer, mail.lost[line])
            return None

    def _unsent(self) -> list[tuple[int, int]]:
        with self._mail.changed:
            return list(self._mail.under_way.values())

    def _pause(self, tries: int) -> None:
        self._mail.pause()


class StoreTransport(GlooTransport):
    """One rank of `nodes` that meet at a store of torch.distributed, which need not be initialised.

    store: one that all ranks reach, with a prefix that no other meeting has. timeout_s: for others to come.
    Raises MissingExtraError without torch, OscarError where a rank has not come by then or the store is gone.
    """

    def __init__(self, store: Any, rank: int, nodes: int, *, timeout_s: float) -> None:
        dist = load_torch()[1]
        try:
            group = dist.ProcessGroupGloo(store, rank, nodes, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise OscarError(
                f"rank {rank} of {nodes} could not meet the others at the store within {timeout_s:g} s "
                f"({_first_line(error)}); start all ranks, and keep the store alive"
            ) from None
        self._join(group, list(range(nodes)))


class _Mail:
    """What a transport shares with its threads, which do not hold the transport itself."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._version, self._seen = 0, -1
        self.messages: dict[tuple[int, int], deque[memoryview]] = defaultdict(deque)
        self.lost: dict[tuple[int, int], str] = {}  # line -> why it ended
        self.under_way: dict[int, tuple[int, int]] = {}  # serial number -> (peer, tag)
        self._serial = 0
        self.posted: dict[tuple[int, int], queue.SimpleQueue[Any]] = {}
        self.threads: list[threading.Thread] = []

    def hand(self, line: tuple[int, int], work: Callable[..., None], item: tuple[Any, ...]) -> None:
        """Have the thread of `line`, made where it is new, do work(*item) after what it was given before."""
        if line not in self.posted:
            self.posted[line] = queue.SimpleQueue()
            args = line, work, self.posted[line]
            thread = threading.Thread(target=self._serve, args=args, name="oscar-gloo", daemon=True)
            self.threads.append(thread)
            thread.start()
        self.posted[line].put(item)

    def _serve(
        self, line: tuple[int, int], work: Callable[..., None], posted: queue.SimpleQueue[Any]
    ) -> None:
        """Finish what is posted, in the order posted, which is the order sent."""
        while (item := posted.get()) is not None:
            try:
                work(*item)
            except RuntimeError as error:
                self._note_loss(line, item[0], error)
                return

    def receive(self, peer: int, tag: int, work: Any, buffer: Any) -> None:
        """Wait for a message, and keep it."""
        work.wait(FOREVER)
        whole = memoryview(buffer.numpy())
        (length,) = LENGTH.unpack_from(whole)
        with self.changed:
            self.messages[peer, tag].append(whole[LENGTH.size : LENGTH.size + length])
            self._notify()

    def note_send(self, peer: int, tag: int) -> int:
        """Return the serial number of a message that is on its way from now on."""
        with self.changed:
            self._serial += 1
            self.under_way[self._serial] = (peer, tag)
            return self._serial

    def finish_send(self, peer: int, serial: int, work: Any, tensor: Any) -> None:
        """Wait until a message has left; `tensor` lives until then."""
        work.wait(FOREVER)
        with self.changed:
            self.under_way.pop(serial, None)
            self._notify()

    def _note_loss(self, line: tuple[int, int], peer: int, error: RuntimeError) -> None:
        with self.changed:
            self.lost.setdefault(line, _first_line(error))
            self.under_way = {n: where for n, where in self.under_way.items() if where[0] != peer}
            self._notify()

    def _notify(self) -> None:
        self._version += 1
        self.changed.notify_all()

    def pause(self) -> None:
        """Sleep until something has changed, or for a moment."""
        with self.changed:
            if self._version == self._seen:
                self.changed.wait(NAP_S)
            self._seen = self._version


def _end(group: Any, mail: _Mail, default: Any) -> None:
    """Break the private group, so that no thread stays in it, and end torch.distributed where we began it.

    A thread that still waited in Gloo when the interpreter goes would take the process down with it.
    """
    torch, dist = load_torch()
    for posted in mail.posted.values():
        posted.put(None)
    room = torch.empty(1, dtype=torch.uint8)
    for step in range(1, group.size()):  # from a peer that has gone it fails at once, and ends no other
        if any(thread.is_alive() for thread in mail.threads):
            with suppress(RuntimeError):  # the timeout is intended
                group.recv([room], (group.rank() + step) % group.size(), STOP_TAG).wait(AT_ONCE)
    for thread in mail.threads:
        if thread is not threading.current_thread():
            thread.join(JOIN_S)
    if default is not None and dist.is_initialized() and dist.group.WORLD is default:
        dist.destroy_process_group()


def ranks_of(group: Any) -> list[int]:
    """Return the numbers in the job of the ranks of `group` (None: all), this process's among them."""
    _, dist = load_torch()
    rank, given = dist.get_rank(), dist.group.WORLD if group is None else group
    outside = given is dist.GroupMember.NON_GROUP_MEMBER
    ranks: list[int] = [] if outside else dist.get_process_group_ranks(given)
    if rank not in ranks:
        raise OscarError(
            f"rank {rank} is not in the group that it was given; leave this to the group's ranks"
        )
    return ranks


def private_group(group: Any, timeout: timedelta) -> tuple[Any, list[int]]:
    """Return a new Gloo group between the ranks of `group` (None: all), and their numbers in the job.

    Collective between these ranks alone. They meet under a name that holds them and the number of groups that
    they have made so: each rank counts its own in the job's store. timeout: for the others to come, and later
    for a collective of the group. Raises OscarError in a process that is not in `group`, and after `timeout`.
    """
    _, dist = load_torch()
    ranks = ranks_of(group)
    rank = ranks.index(dist.get_rank())
    name = f"oscar/{','.join(map(str, ranks))}"
    store = dist.group.WORLD.get_group_store()
    number = store.add(f"{name}/of {rank}", 1)
    try:
        meeting = dist.PrefixStore(f"{name}/{number}/", store)
        return dist.ProcessGroupGloo(meeting, rank, len(ranks), timeout), ranks
    except RuntimeError as error:
        raise OscarError(
            f"rank {ranks[rank]} made group {number} of the ranks {ranks}, and not all of these came within "
            f"{timeout.total_seconds():g} s ({_first_line(error)}); make as many, in one order, on all"
        ) from None


def _start(dist: Any) -> None:
    try:
        dist.init_process_group("gloo")
    except (ValueError, RuntimeError) as error:
        raise OscarError(
            f"start each rank under torchrun, or initialise torch.distributed ({error})"
        ) from None


def _first_line(error: RuntimeError) -> str:
    text = str(error).splitlines()[0]
    return text.partition("] ")[2] or text  # without the place in Gloo's sources


def load_torch() -> tuple[Any, Any]:
    """Return the modules torch and torch.distributed; raises MissingExtraError without them."""
    try:
        import torch
        from torch import distributed
    except ImportError as error:
        raise MissingExtraError(f"Gloo needs torch: {install('torch', target='torch')} ({error})") from None
    if not distributed.is_available():
        raise MissingExtraError("this torch was built without torch.distributed; install another build")
    return torch, distributed
