"""What the DDP hook keeps: groups, a thread, and the state of every bucket."""

from __future__ import annotations

import logging
import math
import queue
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from oscar.adapters.torch.bypass import Key, Mode, check_mode, ring_bytes
from oscar.adapters.torch.ends import Asked, Ends, default_config
from oscar.adapters.torch.jobs import Job, end, start_thread
from oscar.adapters.torch.layout import BucketLayout, ModelGradients, noted
from oscar.adapters.torch.on_gpu import OnGpu
from oscar.adapters.torch.policies import Policies
from oscar.adapters.torch.saving import packed, read_state
from oscar.adapters.torch.sparse import DenseNotice, Rows, sparse_of
from oscar.adapters.torch.staging import Staging, check_buffer
from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.numerics.tensors import split
from oscar.planning.tuning.policy_file import PolicyFile
from oscar.reducers.communicator import PeerStats
from oscar.state import Saved
from oscar.transports.gloo import load_torch

CLOSED = "this state is closed; make a new OscarState, and register the hook with it"
ADVICE = "end the process and start again from a checkpoint"
LOG = logging.getLogger("oscar.ddp")


class OscarState:
    """State of `oscar_hook`: `model.register_comm_hook(OscarState(), oscar_hook)`.

    config: codec or scheme and its options; None takes ASC with error feedback. `nodes`, workload and link
    have no meaning here; `transport.timeout_s` bounds how far ranks may run apart.
    process_group: DDP's; None is the default group. A state starts when it is made, where torch.distributed
    is initialised, and at its first bucket otherwise. Its ranks get connections of their own and a
    private group of Gloo, so that it is collective between them, in one order on all of them; others have no
    part in it.
    bypass: "auto" measures the first iterations against the plain AllReduce and sends buckets uncompressed
    where compression does not pay; "never" and "always" mean what they say and measure nothing.

    policy: a policy file of `oscar tune`, for the parameters of `model`, which is needed with it. The
    policy's groups are reduced instead of DDP's buckets, each by its own method; the bypass measures nothing
    (docs/tuning.md). retune: after each so many backwards
    rank 0 looks at what groups took, and all ranks go on with another policy where one is 5 % faster.
    on_gpu: reduce a GPU's buckets there, where the configuration allows it (docs/ddp.md); False: on the host.

    The first backward of a process goes uncompressed, because DDP makes its buckets anew after it. All state
    is dropped when that happens later. What goes uncompressed is sent as DDP would send it, unchecked: NaN
    and Inf are errors in a bucket that is compressed, and pass in others, as loss scalers expect.

    A state is of one model: the hook raises ConfigError for the buckets of another one.

    Raises ConfigError where ranks differ or frames should be keyed, MissingExtraError without torch.
    """

    def __init__(
        self,
        config: Config | None = None,
        process_group: Any = None,
        *,
        bypass: Mode = "auto",
        policy: PolicyFile | Path | str | None = None,
        model: Any = None,
        retune: int | None = None,
        on_gpu: bool = True,
    ) -> None:
        dist = load_torch()[1]
        check_mode(bypass)
        self.process_group = process_group
        self.config = default_config() if config is None else config
        if self.config.transport.security != "none":
            raise ConfigError(
                f"transport.security is {self.config.transport.security}, but torch itself sends for the "
                "hook (the first backward, the bypass) and has no key: set it to none, and use a network "
                "that encrypts"
            )
        self._policies: Policies | None = None
        self._asked, self._wanted = Asked(bypass, policy, model, retune), on_gpu
        self._loaded: Any = None  # what is to be taken over at the start
        self.error: Exception | None = None
        self._closed = False
        self.backwards = 0  # of this process
        self.values = 0  # that were reduced
        self._sent_bytes = 0
        self.clipped = 0  # values of this rank that saturated so far
        self.clipped_energy = 0.0  # the largest share of a bucket's energy that this took so far, 0 .. 1
        self._layouts: dict[int, BucketLayout] = {}
        self._open: list[Job] = []  # whose Futures wait; of the state's own thread
        self._threads: list[threading.Thread] = []  # one, from the first job on
        self._finaliser: weakref.finalize[Any, Any] | None = None
        if dist.is_initialized():
            self.start()

    def start(self) -> None:
        """Make the groups and compare configurations, where that was not done yet; collective.

        Until then the state has no `rank`, `nodes` and `bypass`, and can be pickled. Raises as the class
        does, and OscarError where torch.distributed is not initialised or the state is closed. Where a state
        that was loaded before is refused, no rank can go on.
        """
        if self._finaliser is None:
            if self._closed:
                raise OscarError(CLOSED)
            self._open_ends()
        if self._loaded is not None and self.error is None:
            try:
                self.load_state_dict(self._loaded)
            except Exception as error:
                self._fail(error)
                raise
            self._loaded = None

    def _open_ends(self) -> None:
        ends = Ends.make(self.config, self.process_group, self._asked)
        self.config, self._transport, self._communicator = ends.config, ends.transport, ends.communicator
        self._policies, self.bypass = ends.policies, ends.bypass
        self.rank, self.nodes = ends.transport.rank, ends.transport.nodes
        self._model, self._staging, self._dense_notice = ModelGradients(), Staging(), DenseNotice()
        self._on_gpu = OnGpu(self._communicator, self._staging, wanted=self._wanted)
        self._rows = Rows(self._communicator.party, self.config) if Rows.serve(self.config) else None
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._finaliser = weakref.finalize(self, end, self._jobs, self._transport, self._threads)

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent for gradients, uncompressed buckets included (not those only measured)."""
        return self._sent_bytes

    def reduce(self, bucket: Any) -> Any:
        """Return a Future of `bucket`, averaged; see `oscar_hook`."""
        buffer, key = self._check(bucket)
        self._model.check(key[0], bucket.parameters(), last=bucket.is_last())
        first, layout = self.backwards == 0, BucketLayout.of(bucket)
        if first:
            layout.meet(self._communicator, key[0])  # or torch would add up what does not fit
        new = key[0] not in self._layouts
        forget = not first and noted(self._layouts, layout, key[0])
        if forget:
            self.bypass.decided.clear()
        self.values += key[1]
        if self._policies is not None:
            self._policies.came(key[0], self.backwards, last=bucket.is_last())
        if bucket.is_last():
            self.backwards += 1
        if first or self.bypass.skips(key):
            return self._plain(buffer)
        if self._policies is not None and self._policies.plain:
            future = self._plain(buffer)
            if bucket.is_last():
                self._policies.time(future)
            return future
        job = Job(
            self._staging.future(buffer),
            buffer,
            self._staging.mark(buffer),
            key,
            self._layouts[key[0]],
            last=bucket.is_last() or self._rest_skipped(key[0]),
            measure=self.bypass.measures(key) and not (layout.sparse and self._rows),
            forget=forget,
            new=new or forget,
        )
        self._start()
        self._jobs.put(job)
        return job.future

    @property
    def policy(self) -> PolicyFile | None:
        """The policy in use, or None."""
        return None if self._policies is None else self._policies.policy

    @property
    def expected_s(self) -> float | None:
        """What retuning thinks an iteration takes, up to its last mean; None before, and on other ranks."""
        return None if self._policies is None else self._policies.expected_s

    def regroup(self, policy: PolicyFile | Path | str) -> None:
        """Go on with another policy for the same model, between two backwards; collective.

        Nothing is lost: what was not sent yet is added to the next gradients. Groups that stay keep what
        they have learnt. Raises ConfigError on all ranks, with all as it was, where policies are unequal,
        one is of another model, or the state was made without one.
        """
        self._check_whole()
        if self._policies is None:
            raise ConfigError("expected a state that was made with a policy and its model, got one without")
        self._policies.regroup(policy)

    def share(self, value: float) -> float:
        """Return what rank 0 gave; collective, between two backwards."""
        self._check_whole()
        return float(np.frombuffer(self._communicator.gather(np.float64(value).tobytes(), 8)[0])[0])

    def _check_whole(self) -> None:
        self.start()
        if self.error is not None:
            raise OscarError(f"the hook failed before ({self.error}); {ADVICE}")

    def _check(self, bucket: Any) -> tuple[Any, Key]:
        self._check_whole()
        if self._closed:
            raise OscarError(CLOSED)
        buffer = bucket.buffer()
        check_buffer(buffer, timed=self.bypass.mode == "auto")
        return buffer, (bucket.index(), buffer.numel())

    def _rest_skipped(self, index: int) -> bool:
        """Whether buckets come after this one, and all of them go uncompressed."""
        rest = [
            (later, sum(math.prod(shape) for shape in layout.shapes))
            for later, layout in self._layouts.items()
            if later > index
        ]
        return bool(rest) and all(self.bypass.skips(key) for key in rest)

    def _plain(self, buffer: Any) -> Any:
        """Return the Future of the AllReduce that DDP does without a hook."""
        if buffer.is_sparse:  # torch gathers indices and values
            parts = buffer._indices(), buffer._values()
            self._sent_bytes += sum(part.nbytes for part in parts) * (self.nodes - 1)
        else:
            self._sent_bytes += ring_bytes(buffer.numel() * buffer.element_size(), self.nodes)
        buffer.div_(self.nodes)
        work = load_torch()[1].all_reduce(buffer, group=self.process_group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    def _start(self) -> None:
        if not self._threads:
            self._threads.append(start_thread(self, self._jobs))

    def perform(self, job: Job) -> None:
        """Reduce one bucket and set its Future; for the state's own thread."""
        if self.error is not None:
            job.future.set_exception(self.error)
            return
        self._open.append(job)
        try:
            gradient = job.buffer.detach().coalesce() if job.layout.sparse else None
            entries = 0 if gradient is None else gradient._nnz()
            met = job.new or gradient is not None
            counts = job.layout.meet(self._communicator, job.key[0], entries) if met else []
            if job.forget:
                self._communicator.reset()
                self.bypass.forget_times()
            done = self._reduced(job, gradient, counts)
            if job.last:
                self.bypass.settle()
        except Exception as error:
            if isinstance(error, OscarError):
                error.advice = ""  # backward() can neither skip nor go on
            self._fail(error)
            LOG.error(
                "rank %d: bucket %d could not be reduced: %s: %s. What backward() raises now is torch's way "
                "of saying so; weights are as they were: %s.",
                self.rank,
                job.key[0],
                type(error).__name__,
                error,
                ADVICE,
            )
            for each in self._open:
                each.future.set_exception(error)
        else:
            for each, result in done:
                self._open.remove(each)
                each.future.set_result(result)

    def _fail(self, error: Exception) -> None:
        if self._communicator.failed is None and not (self._policies and self._policies.failed):
            self._communicator.give_up(error)  # or else the others wait for this rank
        self.error = error

    def _reduced(self, job: Job, gradient: Any, counts: list[int]) -> list[tuple[Job, Any]]:
        """Return the buckets that have their means now; gradient: of one sparse tensor, or None."""
        if self._policies is None:
            return [(job, self._dense(job) if gradient is None else self._sparse(job, gradient, counts))]
        if gradient is not None:
            raise TypeError("expected dense gradients under a policy, got a sparse one: leave the policy out")
        values = self._staging.fetch(job.buffer, job.mark).reshape(-1)
        found, told = self._policies.take(job, split(values, job.layout.shapes))
        for stats in told:
            self._note(stats)
        for each, mean in found:
            self._staging.put(each.buffer, mean)
        return [(each, each.buffer) for each, _ in found]

    def _dense(self, job: Job) -> Any:
        """Return the bucket, which has its mean now."""
        if self._on_gpu.serves(job):
            self._note(self._on_gpu.reduce(job))
            return job.buffer
        self._staging.put(job.buffer, self._mean(job, self._staging.fetch(job.buffer, job.mark)))
        return job.buffer

    def _sparse(self, job: Job, gradient: Any, counts: list[int]) -> Any:
        """Return the mean of a coalesced gradient, sparse; counts: entries of every rank."""
        if self._rows is not None:
            mean, sent = self._rows.mean(gradient, counts)
            self._sent_bytes += sent
            return mean
        if self.rank == 0:
            self._dense_notice.tell(job, sum(counts) / len(counts), self.config.method)
        return sparse_of(self._mean(job, gradient.to_dense().float().numpy()), gradient)

    def _mean(self, job: Job, values: np.ndarray) -> np.ndarray:
        tensors = split(values.reshape(-1), job.layout.shapes)

        def compressed() -> list[np.ndarray]:
            result = self._communicator.allreduce(tensors, key=job.key)
            self._note(result.stats)
            return result.mean

        mean = self.bypass.measured(job.key, job.buffer, compressed) if job.measure else compressed()
        return np.concatenate([tensor.reshape(-1) for tensor in mean])

    def _note(self, stats: PeerStats) -> None:
        self._sent_bytes += stats.sent_bytes
        self.clipped += stats.clipped
        self.clipped_energy = max(self.clipped_energy, stats.clipped_energy)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this rank's state, for torch.save between iterations; every rank has its own.

        Holds text, numbers and tensors only, so that torch.load reads it with weights_only. Raises OscarError
        after a bucket failed: others of its backward have moved on, so that the state is of no iteration.
        """
        self._check_whole()
        layouts = {index: list(layout.shapes) for index, layout in self._layouts.items()}
        tree = {
            "layouts": layouts,
            "bypass": self.bypass.state_dict(),
            "reducer": self._communicator.state_dict(),
            "policy": None if self._policies is None else self._policies.state_dict(self.backwards),
        }
        return packed(tree, self.config.method)

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; on all ranks, each its own.

        A run goes on bit for bit where the process begins with a backward whose gradients are thrown away,
        before or after this call: DDP then has the buckets of the run that was saved. Raises ConfigError
        where the state is of another configuration, rank or number of ranks, or is none; nothing has changed
        then. With `retune` it is collective, and all ranks raise where one does. A state that has not started
        takes it over when it does, and raises then: all ranks end with that.
        """
        if self._finaliser is None:
            self._loaded = state
            return
        try:
            tree, decided, fresh = read_state(state, self.config.method, policed=self._policies is not None)
        except ConfigError as error:
            if self._policies is not None:
                self._policies.refuse(error)
            raise
        self._load_reducers(tree)  # the last that can be refused
        self.bypass.resume(decided)
        self._layouts = fresh

    def _load_reducers(self, tree: Saved) -> None:
        """Take over all reducers' state, or none."""
        before, refused = self._communicator.state_dict(), None
        try:
            self._communicator.load_state_dict(tree["reducer"])
        except ConfigError as error:
            refused = error
        try:
            if self._policies is not None:
                self._policies.load_state_dict(tree["policy"], self.backwards, refused)
            elif refused is not None:
                raise refused
        except BaseException:
            self._communicator.load_state_dict(before)
            raise

    def close(self) -> None:
        """End the thread and the private groups; may be repeated. A state that has not started never does."""
        self._closed = True
        if self._finaliser is not None:
            self._finaliser()

    def __enter__(self) -> OscarState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
