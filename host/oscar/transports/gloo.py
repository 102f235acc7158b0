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
        self._torch, self._dist = load_torch()
        dist = self._dist
        self._owns_default = not dist.is_initialized()
        if self._owns_default:
            _start(dist)
        self._group, ranks = private_group(group, MAKING)
        self._changed = threading.Condition()
        self._version, self._seen = 0, -1
        self._messages: dict[tuple[int, int], deque[memoryview]] = defaultdict(deque)
        self._lost: dict[int, str] = {}
        self._buffers: dict[tuple[int, int], Any] = {}
        self._posted: dict[tuple[int, int], queue.SimpleQueue[Any]] = {}
        self._under_way: dict[int, tuple[int, int]] = {}  # serial number -> (peer, tag)
        self._serial = 0
        self._threads: list[threading.Thread] = []
        super().__init__(self._group.rank(), len(ranks), members=ranks)

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        size = LENGTH.size + cap
        buffer = self._buffers.get((peer, tag))
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[peer, tag] = self._torch.empty(size, dtype=self._torch.uint8)
        work = self._try(peer, self._group.recv, buffer, tag)
        if work is None:
            return
        line = (peer, tag if tag in CONTROL_TAGS else FRAMES)
        if line not in self._posted:
            self._posted[line] = queue.SimpleQueue()
            self._start_thread(self._receive, peer, self._posted[line])
        self._posted[line].put((work, tag, buffer))

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        """See Transport._send; the message is copied, behind its length."""
        self._put(peer, tag, (LENGTH.pack(sum(len(part) for part in parts)), *parts))

    def _put(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        tensor = self._torch.frombuffer(bytearray().join(parts), dtype=self._torch.uint8)
        work = self._try(peer, self._group.send, tensor, tag)
        if work is None:
            return
        line = (-1 - peer, tag if tag in CONTROL_TAGS else FRAMES)
        if line not in self._posted:
            self._posted[line] = queue.SimpleQueue()
            self._start_thread(self._finish_sends, peer, self._posted[line])
        with self._changed:
            self._serial += 1
            self._under_way[self._serial] = (peer, tag)
        self._posted[line].put((work, self._serial, tensor))

    def _try(self, peer: int, call: Any, tensor: Any, tag: int) -> Any:
        if peer in self.dead:
            return None
        try:
            return call([tensor], peer, tag)
        except RuntimeError as error:
            self.dead[peer] = _first_line(error)
            return None

    def _start_thread(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, name="oscar-gloo", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _receive(self, peer: int, posted: queue.SimpleQueue[Any]) -> None:
        """Finish the receives from `peer` in the order posted, which is the order sent."""
        while (item := posted.get()) is not None:
            work, tag, buffer = item
            try:
                work.wait(FOREVER)
            except RuntimeError as error:
                self._note_loss(peer, error)
                return
            whole = memoryview(buffer.numpy())
            (length,) = LENGTH.unpack_from(whole)
            with self._changed:
                self._messages[peer, tag].append(whole[LENGTH.size : LENGTH.size + length])
                self._notify()

    def _finish_sends(self, peer: int, posted: queue.SimpleQueue[Any]) -> None:
        while (item := posted.get()) is not None:
            work, serial, _ = item
            try:
                work.wait(FOREVER)
            except RuntimeError as error:
                self._note_loss(peer, error)
                return
            with self._changed:
                del self._under_way[serial]
                self._notify()

    def _note_loss(self, peer: int, error: RuntimeError) -> None:
        with self._changed:
            self._lost.setdefault(peer, _first_line(error))
            self._under_way = {n: where for n, where in self._under_way.items() if where[0] != peer}
            self._notify()

    def _notify(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        with self._changed:
            messages = self._messages[peer, tag]
            if messages:
                return messages.popleft()
            if peer in self._lost:
                self.dead.setdefault(peer, self._lost[peer])
            return None

    def _unsent(self) -> list[tuple[int, int]]:
        with self._changed:
            return list(self._under_way.values())

    def _pause(self, tries: int) -> None:
        with self._changed:
            if self._version == self._seen:
                self._changed.wait(NAP_S)
            self._seen = self._version

    def close(self) -> None:
        """See Transport.close: breaks the private group, so that no thread stays in it, and destroys it."""
        for posted in self._posted.values():
            posted.put(None)
        if any(thread.is_alive() for thread in self._threads):
            try:
                room = self._torch.empty(1, dtype=self._torch.uint8)
                self._group.recv([room], next(iter(self.neighbours)), STOP_TAG).wait(AT_ONCE)
            except RuntimeError:
                pass  # the timeout is intended
        for thread in self._threads:
            thread.join(JOIN_S)
        self._threads.clear()
        if self._owns_default and self._dist.is_initialized():
            self._dist.destroy_process_group()


def ranks_of(group: Any) -> list[int]:
    """Return the numbers in the job of the ranks of `group` (None: all); OscarError where this is none."""
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
            f"{timeout.total_seconds():g} s ({_first_line(error)}); make as many, in one order, on all of them"
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
