"""Frames over MPI (extra mpi): posted receives into capped buffers, no Probe, naps instead of spinning."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from oscar.errors import MissingExtraError, OscarError, install
from oscar.transports.base import PEER_FAILED, Bytes, Transport, TransportError

EAGER = 10  # looks in vain before the first nap
SHORT_S, LONG_S = 50e-6, 500e-6  # naps; long ones follow after
MANY = 400  # looks in vain before longer naps, which leave the core to others
BACKUP_S = 5.0  # the rank that noticed ends the job; several aborts at once can hang mpirun
ABORT_S = 10  # whole seconds: MPI's abort waits for mpirun, which in rare cases never answers
RUMOUR_S = 2.0  # how long the news of a death may take to reach every rank
WITH_FT = "OMPI_MCA_mpi_ft_enable"  # what mpirun --with-ft ulfm sets
DEATHS = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_PROC_ABORTED")  # where this MPI has them
INSTALL = install("mpi", target="mpi-2")


class MpiTransport(Transport):
    """One rank of an MPI communicator (default: COMM_WORLD), which is duplicated: collective on it.

    Sub-groups are communicators of their own, such as Create_group or Split return. Raises OscarError in a
    process that has no part in `comm`.
    """

    def __init__(self, comm: Any = None) -> None:
        self._mpi = load_mpi()
        self.can_survive = os.environ.get(WITH_FT) == "1"
        if comm == self._mpi.COMM_NULL:
            raise OscarError("expected an MPI communicator that this process is in, got COMM_NULL")
        self._comm = self._mpi.COMM_WORLD.Dup() if comm is None else comm.Dup()
        self._comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._receives: dict[tuple[int, int], Any] = {}
        self._buffers: dict[tuple[int, int], bytearray] = {}  # kept, so that pages stay mapped
        self._sends: list[
            tuple[Any, int, int, Any]
        ] = []  # request, peer, tag, what must live until it is done
        self._ends_by(_cancel, self._mpi, self._receives)
        group, world = self._comm.Get_group(), self._mpi.COMM_WORLD.Get_group()
        ranks: list[int] = list(group.Translate_ranks(None, world))
        group.Free()
        world.Free()
        members = None if self._mpi.UNDEFINED in ranks else ranks  # some may have been started later
        super().__init__(self._comm.Get_rank(), self._comm.Get_size(), members=members)

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        buffer = self._buffers.get((peer, tag))
        if buffer is None or len(buffer) < cap:
            buffer = self._buffers[peer, tag] = bytearray(cap)
        room = memoryview(buffer)[:cap]
        request = self._try(peer, lambda: self._comm.Irecv([room, self._mpi.BYTE], source=peer, tag=tag))
        if request is not None:
            self._receives[peer, tag] = request

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        message = parts[0] if len(parts) == 1 else b"".join(parts)  # frames, which are large, are not copied
        request = self._try(peer, lambda: self._comm.Isend([message, self._mpi.BYTE], dest=peer, tag=tag))
        if request is not None:
            self._sends.append((request, peer, tag, message))

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        request = self._receives.get((peer, tag))
        if request is None:
            return None
        status = self._mpi.Status()
        if not self._try(peer, lambda: request.Test(status)):
            if peer in self.dead:
                del self._receives[peer, tag]
            return None
        del self._receives[peer, tag]
        return memoryview(self._buffers[peer, tag])[: status.Get_count(self._mpi.BYTE)]

    def _unsent(self) -> list[tuple[int, int]]:
        under_way = []
        for send in self._sends:
            request, peer = send[0], send[1]
            if self._try(peer, request.Test) is False:
                under_way.append(send)
        self._sends = under_way
        return [(peer, tag) for _, peer, tag, _ in under_way]

    def _try(self, peer: int, call: Callable[[], Any]) -> Any:
        """Return what `call` does, or None where MPI says that `peer` is gone; all else raises."""
        try:
            return call()
        except self._mpi.Exception as error:
            if self._is(error, "ERR_REVOKED"):
                text = "another rank found one dead and goes on without it"
                raise TransportError(text, peer=-1, kind="aborted") from error
            if not self._is(error, *DEATHS):
                text = f"MPI failed between this rank and rank {peer} ({error})"
                raise TransportError(text, peer=peer, kind="aborted") from error
            self.dead.setdefault(peer, str(error))
            return None

    def _is(self, error: Any, *classes: str) -> bool:
        """Whether `error` is of one of the `classes` of errors that this MPI knows."""
        return error.Get_error_class() in [getattr(self._mpi, name, None) for name in classes]

    def _pause(self, tries: int) -> None:
        time.sleep(0.0 if tries < EAGER else SHORT_S if tries < MANY else LONG_S)

    def survivors(self, timeout_s: float = 60.0) -> MpiTransport:
        """See Transport.survivors; needs an Open MPI started with --with-ft ulfm.

        MPI waits for ever for a rank that is stopped or late. After `timeout_s` the job is aborted; where
        that does not work, the kernel ends this process (SIGALRM).
        """
        try:
            if not self._someone_died():
                text = "no rank is known to have died, and a silent one may come back"
                raise TransportError(text, peer=-1, kind="silent")
            with self._aborted_after(timeout_s), _ended_after(math.ceil(timeout_s) + ABORT_S):
                self._comm.Revoke()
                return MpiTransport(self._comm.Shrink())
        except (self._mpi.Exception, NotImplementedError, AttributeError) as error:
            text = f"this MPI cannot go on without a rank ({error}); start it with --with-ft ulfm"
            raise TransportError(text, peer=-1, kind="dead") from error

    @contextmanager
    def _aborted_after(self, seconds: float) -> Iterator[None]:
        """End the whole job, stopped ranks included, if the block takes longer."""
        watch = threading.Timer(seconds, self._mpi.COMM_WORLD.Abort, [PEER_FAILED])
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def _someone_died(self) -> bool:
        """Whether this rank saw a death, or another rank saw one and revoked the communicator."""
        stop = time.monotonic() + RUMOUR_S
        while not self.dead and time.monotonic() < stop:
            try:
                self._comm.Iprobe()  # makes MPI read its news
            except self._mpi.Exception as error:
                if self._is(error, "ERR_REVOKED", *DEATHS):
                    return True
                raise
            time.sleep(LONG_S)
        return bool(self.dead)

    def leave(self, status: int) -> NoReturn:
        """End all processes of the job, stopped ones too; with status 0 this one, without MPI's own end.

        The last rank of a job that ULFM kept alive ends alone: after an abort of its own, mpirun would return
        0.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        alone = len(self.dead) == self.nodes - 1
        if status != 0 and not alone:
            time.sleep(BACKUP_S if self.was_told else 0.0)
            with _ended_after(ABORT_S):
                self._mpi.COMM_WORLD.Abort(status)
        super().leave(status)


def _cancel(mpi: Any, receives: dict[tuple[int, int], Any]) -> None:
    """Take back all receives; collective calls on the user's communicator go on to work."""
    for request in receives.values() if not mpi.Is_finalized() else ():
        try:
            request.Cancel()
            request.Free()  # not Wait, which may never return where a peer died
        except mpi.Exception:
            continue
    receives.clear()


@contextmanager
def _ended_after(seconds: int) -> Iterator[None]:
    """Let the kernel end this process if the block takes longer, even where it is stuck in a library.

    Only the main thread may set an alarm; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    before = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(before)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)


def load_mpi() -> Any:
    """Return the module mpi4py.MPI; importing it starts MPI. Raises MissingExtraError without the extra."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, and no MPI library
        raise MissingExtraError(f"MPI needs mpi4py and an MPI library: {INSTALL} ({error})") from None
    return MPI
