"""What lives for one quorum of replicas: a communicator, and the thread that reduces tensors."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from torch.distributed import Work as TorchWork

from oscar.adapters.torch.staging import Staging
from oscar.array import Array
from oscar.config import Config
from oscar.errors import OscarError
from oscar.kernels import log_compiling
from oscar.reducers.communicator import Communicator
from oscar.transports.tcp import StoreTransport

PLAIN = "fp32"  # method of what goes uncompressed over the same transport
FIRST = 2  # calls of a parameter that are sent whole: in the first, replicas that heal send zeros
JOIN_S = 2.0
LOG = logging.getLogger("oscar.torchft")


class Reduction(TorchWork):
    """The Work of one tensor: `wait` raises what its reduction raised."""

    def __init__(self, quorum: Quorum, tensor: Any, future: Any) -> None:
        super().__init__()
        self._quorum, self._tensor, self._future = quorum, tensor, future
        self._done = threading.Event()
        self._error: Exception | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True once the tensor has its result; timeout: ends the quorum where that takes longer."""
        limit_s = None if timeout is None else timeout.total_seconds()
        if not self._done.wait(limit_s):
            error = OscarError(f"rank {self._quorum.rank}: a tensor was not reduced within {limit_s:g} s")
            self._quorum.end(error)
            raise error
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would return or raise at once."""
        return self._done.is_set()

    def get_future(self) -> Any:
        """Return the Future of [tensor]."""
        return self._future

    def finish(self, error: Exception | None) -> None:
        """Set the result; for the quorum's thread."""
        if self._done.is_set():
            return
        self._error = error
        if error is None:
            self._future.set_result([self._tensor])
        else:
            self._future.set_exception(error)
        self._done.set()  # last: torchft adds to the Future after `wait`, and expects to find it done


@dataclass(frozen=True)
class _Job:
    """A tensor to reduce.

    before, after: factors of its values and of their mean. keeps: the state of its key goes on.
    """

    work: Reduction
    tensor: Any
    mark: Any
    key: Hashable
    before: float
    after: float
    keeps: bool


class Quorum:
    """The coder of one quorum, from `configure` to the next; making one is collective between its replicas.

    store: the quorum's own. relative: tensors are parameters, of which the change against the last mean is
    coded. extra: what replicas compare besides the configuration. Raises ConfigError on all of them where one
    differs.
    """

    def __init__(
        self,
        config: Config,
        store: Any,
        rank: int,
        nodes: int,
        *,
        timeout_s: float,
        relative: bool,
        extra: Mapping[str, Any],
    ) -> None:
        self.rank, self.nodes, self.relative = rank, nodes, relative
        self.error: Exception | None = None
        self.sent_bytes = 0
        self._references: dict[Hashable, tuple[int, Array]] = {}  # calls so far, and the last mean
        self._staging = Staging()
        self._transport = StoreTransport(store, rank, nodes, timeout_s=timeout_s)
        log_compiling(rank)
        try:
            self._coded = Communicator(
                config.variant(nodes=nodes), self._transport, timeout_s=timeout_s, extra=extra
            )
            self._plain: Communicator | None = None
            if relative:
                self._plain = Communicator(
                    Config(method=PLAIN, nodes=nodes), self._transport, timeout_s=timeout_s
                )
        except BaseException:
            self._transport.close()
            raise
        self._jobs: queue.SimpleQueue[_Job | threading.Event | None] = queue.SimpleQueue()
        self._gate, self._ended = threading.Lock(), False
        self._thread = threading.Thread(target=self._serve, name="oscar-torchft", daemon=True)
        self._thread.start()

    def reduce(
        self, tensor: Any, key: Hashable, before: float, after: float, *, keeps: bool = True
    ) -> Reduction:
        """Return the Work that makes `tensor` the mean of all `before` * tensor, times `after`.

        keeps: the next tensor with this key is the same one. Otherwise all state of the key is dropped after
        the call: residual, step size and tables.
        """
        work = Reduction(self, tensor, self._staging.future(tensor))
        if not self._put(_Job(work, tensor, self._staging.mark(tensor), key, before, after, keeps)):
            work.finish(self.error)
        return work

    def forget(self) -> None:
        """Drop all residuals, after the tensors so far."""
        self.drain()
        self._coded.forget()

    def drain(self) -> None:
        """Wait until all tensors so far are reduced, or have failed."""
        done = threading.Event()
        if self._put(done):
            done.wait()

    def _put(self, item: _Job | threading.Event) -> bool:
        """Give the thread something to do, unless it has ended."""
        with self._gate:
            if not self._ended:
                self._jobs.put(item)
            return not self._ended

    def end(self, error: Exception) -> None:
        """Let all tensors that are not reduced yet fail with `error`, and end the thread; may be repeated."""
        if self.error is None:
            self.error = error
        with self._gate:
            self._ended = True
            self._jobs.put(None)
        self._transport.close()  # a wait of the thread raises now
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, threading.Event):
                job.set()
            else:
                self._perform(job)

    def _perform(self, job: _Job) -> None:
        if self.error is None:
            try:
                values = np.reshape(self._staging.fetch(job.tensor, job.mark), tuple(job.tensor.shape))
                mean = self._mean(job.key, values if job.before == 1 else values * np.float32(job.before))
                mean = mean if job.after == 1 else mean * np.float32(job.after)
                self._staging.put(job.tensor, mean)
                if not job.keeps:
                    self._coded.states.pop(job.key, None)
            except Exception as error:
                self._fail(job, error)
        job.work.finish(self.error)

    def _fail(self, job: _Job, error: Exception) -> None:
        if self.error is not None:  # ended meanwhile: that is the reason
            return
        self.error = error
        for communicator in (self._coded, self._plain):
            if communicator is not None and communicator.failed is None:
                communicator.give_up(error)
        LOG.error(
            "rank %d of %d: tensor %s could not be reduced: %s: %s. The step is not committed; the next "
            "quorum begins anew.",
            self.rank, self.nodes, job.key, type(error).__name__, error,
        )  # fmt: skip

    def _mean(self, key: Hashable, values: Array) -> Array:
        """Return the mean over all replicas, float32, equal on all."""
        if self._plain is None:
            return self._reduced(self._coded, key, values)
        calls, reference = self._references.get(key, (0, values))
        if calls < FIRST:
            mean = self._reduced(self._plain, key, values)
        else:
            mean = reference + self._reduced(self._coded, key, values - reference)
        self._references[key] = calls + 1, mean
        return mean

    def _reduced(self, communicator: Communicator, key: Hashable, values: Array) -> Array:
        result = communicator.allreduce([values], key=key)
        self.sent_bytes += result.stats.sent_bytes
        return result.mean[0]
