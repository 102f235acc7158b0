"""Frames over MPI (extra mpi): posted receives into capped buffers, no Probe, naps instead of spinning."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from oscar.errors import MissingExtraError
from oscar.transports.base import Transport, TransportError

EAGER = 10  # looks in vain before the first nap
SHORT_S, LONG_S = 50e-6, 500e-6  # naps; long ones after
MANY = 400  # looks in vain: something is slow, leave the core to others
PROGRESS_TAG = 32766  # of a receive that never completes; testing it moves all other messages
PROGRESS_S = 100e-6
BACKUP_S = 5.0  # whoever noticed ends the job; several at once can leave mpirun hanging
ABORT_S = 10  # whole seconds: MPI's abort waits for mpirun, which in rare cases never answers
RUMOUR_S = 2.0  # how long the death of a rank may take to be known everywhere


class MpiTransport(Transport):
    """One rank of an MPI communicator (default: COMM_WORLD), which is duplicated: collective.

    progress: a thread keeps messages moving while this rank computes; worth it where cores are idle.
    """

    def __init__(self, comm: Any = None, *, progress: bool = False) -> None:
        self._mpi = load_mpi()
        self._comm = self._mpi.COMM_WORLD.Dup() if comm is None else comm.Dup()
        self._comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._receives: dict[tuple[int, int], Any] = {}
        self._buffers: dict[tuple[int, int], bytearray] = {}  # kept, so that pages stay mapped
        self._sends: list[
            tuple[Any, int, int, Any]
        ] = []  # request, peer, tag, what must live until it is done
        self._closed = threading.Event()
        self._progress = progress
        super().__init__(self._comm.Get_rank(), self._comm.Get_size())
        if progress:
            threading.Thread(target=self._keep_moving, name="oscar-mpi-progress", daemon=True).start()

    def post_recv(self, peer: int, tag: int, cap: int) -> None:
        """See Transport.post_recv."""
        buffer = self._buffers.get((peer, tag))
        if buffer is None or len(buffer) < cap:
            buffer = self._buffers[peer, tag] = bytearray(cap)
        room = memoryview(buffer)[:cap]
        request = self._try(peer, lambda: self._comm.Irecv([room, self._mpi.BYTE], source=peer, tag=tag))
        if request is not None:
            self._receives[peer, tag] = request

    def post_send(self, peer: int, tag: int, frame: bytes | memoryview) -> None:
        """See Transport.post_send."""
        request = self._try(peer, lambda: self._comm.Isend([frame, self._mpi.BYTE], dest=peer, tag=tag))
        if request is not None:
            self._sends.append((request, peer, tag, frame))

    def _take(self, peer: int, tag: int) -> memoryview | None:
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
        """Return what `call` does, or None where MPI says that `peer` is gone; a revocation is an error."""
        try:
            return call()
        except self._mpi.Exception as error:
            if error.Get_error_class() == getattr(self._mpi, "ERR_REVOKED", -1):
                text = "another rank found one dead and goes on without it"
                raise TransportError(text, peer=-1, kind="aborted") from error
            self.dead.setdefault(peer, str(error))
            return None

    def _pause(self, tries: int) -> None:
        time.sleep(0.0 if tries < EAGER else SHORT_S if tries < MANY else LONG_S)

    def _keep_moving(self) -> None:
        room = bytearray(1)
        try:
            request = self._comm.Irecv([room, self._mpi.BYTE], source=self.rank, tag=PROGRESS_TAG)
            while not self._closed.wait(PROGRESS_S):
                request.Test()
            request.Cancel()
            request.Wait()
        except self._mpi.Exception:  # whoever waits for a message finds out
            return

    def survivors(self) -> MpiTransport:
        """See Transport.survivors; needs an Open MPI started with --with-ft ulfm."""
        try:
            if not self._someone_died():
                text = "no rank is known to have died, and a silent one may come back"
                raise TransportError(text, peer=-1, kind="silent")
            self._comm.Revoke()
            left = self._comm.Shrink()
        except (self._mpi.Exception, NotImplementedError, AttributeError) as error:
            text = f"this MPI cannot go on without a rank ({error}); start it with --with-ft ulfm"
            raise TransportError(text, peer=-1, kind="dead") from error
        self._closed.set()
        return MpiTransport(left, progress=self._progress)

    def _someone_died(self) -> bool:
        """Whether this rank saw a death, or another one did and has revoked the communicator."""
        stop = time.monotonic() + RUMOUR_S
        while not self.dead and time.monotonic() < stop:
            try:
                self._comm.Iprobe()  # lets news in
            except self._mpi.Exception:
                return True
            time.sleep(LONG_S)
        return bool(self.dead)

    def close(self) -> None:
        """See Transport.close; collective calls on the user's communicator go on to work."""
        self._closed.set()
        for request in self._receives.values():
            try:
                request.Cancel()
                request.Free()  # not Wait, which may never return where a peer died
            except self._mpi.Exception:
                continue
        self._receives.clear()

    def leave(self, status: int) -> NoReturn:
        """End all processes of the job, stopped ones too; with status 0 this one, without MPI's own end."""
        sys.stdout.flush()
        sys.stderr.flush()
        if status != 0:
            time.sleep(BACKUP_S if self.was_told else 0.0)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel ends what is stuck in a library
                signal.alarm(ABORT_S)
            self._mpi.COMM_WORLD.Abort(status)
        super().leave(status)


def load_mpi() -> Any:
    """Return the module mpi4py.MPI; importing it starts MPI. Raises MissingExtraError without the extra."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingExtraError(
            f'MPI needs mpi4py and an MPI library: pip install "oscar-allreduce[mpi]" ({error})'
        ) from None
    return MPI
