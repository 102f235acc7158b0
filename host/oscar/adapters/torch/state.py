"""The state of the DDP hook: groups, a thread, and the layout of every bucket."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oscar.adapters.torch.arguments import Asked, Ends, check_group, default_config
from oscar.adapters.torch.bypass import Mode, bytes_of, plain_mean
from oscar.adapters.torch.jobs import Counted, Job, Key, ThreadTask, Totals, end, start_thread
from oscar.adapters.torch.layout import BucketLayout, ModelGradients, noted
from oscar.adapters.torch.policies import Policies
from oscar.adapters.torch.reduction import BucketReduction
from oscar.adapters.torch.saving import load_reducers, packed, read_state
from oscar.adapters.torch.staging import Staging, Uncompressed, why_uncompressed
from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.planning.tuning.policy import PolicyFile
from oscar.transports.gloo import load_torch

CLOSED = "this state is closed; make a new OscarState, and register the hook with it"
ADVICE = "end the process and start again from a checkpoint"
LOG = logging.getLogger("oscar.ddp")


class OscarState(Counted):
    """State of `oscar_hook`: `model.register_comm_hook(OscarState(), oscar_hook)`.

    A state starts when it is made if torch.distributed is initialised, and at its first bucket otherwise. The
    group's ranks then connect and make a private group of Gloo: it is collective between these ranks alone,
    in one order on all of them.

    The first backward of a process goes uncompressed, because DDP makes its buckets anew after it. All state
    is dropped when that happens later. Uncompressed buckets are sent as DDP would send them, unchecked: NaN
    and Inf are errors in a bucket that is compressed, and pass in others, as loss scalers expect.

    A state belongs to one model: the hook raises ConfigError for the buckets of another one, and for a model
    whose DistributedDataParallel averages over other ranks. A copy of a state (copy.deepcopy, pickle,
    torch.save of the model) has no connections and the default group. It has what `state_dict` returns, and
    starts at its first bucket.

    Args:
        config: Codec or scheme and its options. None takes ASC with error feedback. `nodes`, workload and
            link have no meaning here. `transport.timeout_s` bounds how far ranks may run apart. If it is not
            set, the timeout of the process group does (torch's default is 30 minutes).
        process_group: The group of DDP. None is the default group.
        bypass: "auto" measures the first iterations against the plain AllReduce, sends buckets uncompressed
            if compression does not pay, and measures again now and then. "never" compresses every bucket and
            "always" none, without measuring. Gradients on a GPU are not measured.
        policy: A policy file of `oscar tune`, for the parameters of `model`. Its groups are reduced instead
            of DDP's buckets, each by its own method. The bypass measures nothing then (docs/how-to/tune.md).
        model: The model of the policy. It is needed with a policy.
        retune: Number of backwards between two looks of rank 0 at the times of groups. All ranks go on with
            another policy if it is 5 % faster.
        on_gpu: Reduce a GPU's buckets there, not on the host, if the configuration allows it
            (docs/how-to/gpu.md).

    Raises:
        ConfigError: Ranks differ, or frames should be keyed.
        TypeError: An argument is of another kind.
        MissingExtraError: torch is not installed.
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
        asked = Asked(config, bypass, policy, model, retune, on_gpu)
        asked.check()
        check_group(process_group)
        self._begin(asked, process_group)
        if dist.is_initialized():
            self.start()

    def _begin(self, asked: Asked, process_group: Any) -> None:
        """Set what a state has before it starts."""
        self.process_group, self._asked = process_group, asked
        self.config = default_config() if asked.config is None else asked.config
        self._policies: Policies | None = None
        self._loaded: Any = None  # a state to be taken over at the start
        self._forgets = False  # True once `forget` was called before the start
        self.error: Exception | None = None
        self._closed = False
        self.backwards = 0  # of this process
        self._totals, self._uncompressed = Totals(), Uncompressed()
        self._layouts: dict[int, BucketLayout] = {}
        self._resets = False  # True if the next job has to drop all state
        self._vote: Future[bool] | None = None  # of the backward before
        self._open: list[Job] = []  # jobs whose Futures wait, for the state's thread
        self._threads: list[threading.Thread] = []  # one, from the first job on
        self._finaliser: weakref.finalize[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments and the saved state; a process group and connections cannot be copied."""
        started = self._finaliser is not None and self.error is None
        asked = self._asked if self.policy is None else replace(self._asked, policy=self.policy)
        return {"asked": asked, "loaded": self.state_dict() if started else self._loaded}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a copy that has not started; set `process_group` before it does, where it is not all ranks."""
        self._begin(state["asked"], None)
        self._loaded = state["loaded"]

    def start(self) -> None:
        """Make the groups and compare configurations, where that was not done yet; collective.

        Until then the state has no `rank`, `nodes` and `bypass`. Raises as the class does, and OscarError
        where torch.distributed is not initialised or the state is closed. Where a state that was loaded
        before is refused, no rank can go on.
        """
        if self._finaliser is None:
            if self._closed:
                raise OscarError(CLOSED)
            ends = Ends.make(self.config, self.process_group, self._asked)
            self.config, self._transport, self._communicator = ends.config, ends.transport, ends.communicator
            self._policies, self.bypass = ends.policies, ends.bypass
            self.rank, self.nodes = ends.transport.rank, ends.transport.nodes
            self._model, self._staging = ModelGradients(ends.transport.members, self), Staging()
            self._reduction = BucketReduction(ends, self._staging, self._totals, on_gpu=self._asked.on_gpu)
            self._jobs: queue.Queue[Job | ThreadTask | None] = queue.Queue()
            self._finaliser = weakref.finalize(self, end, self._jobs, self._transport, self._threads)
        if self._loaded is not None and self.error is None:
            try:
                self.load_state_dict(self._loaded)
            except Exception as error:
                self._fail(error)
                raise
            self._loaded = None
            if self._forgets:
                self._forgets = False
                self._drop()

    def reduce(self, bucket: Any) -> Any:
        """Return a Future of `bucket`, averaged; see `oscar_hook`."""
        buffer, parameters = bucket.buffer(), list(bucket.parameters())
        key, reason = (bucket.index(), buffer.numel()), self._check(buffer, parameters)
        try:
            self._model.check(key[0], parameters, last=bucket.is_last())
        except ConfigError as error:
            if not self._threads:  # nothing was reduced yet, so that others may wait for this rank
                self._fail(error)
            raise
        if key[0] == 0 and self.backwards > 0:
            # Take the last vote on changed times, and let ranks vote again where it is time to.
            changed = False if self._vote is None else self._vote.result()
            self._vote = self._do(self.bypass.vote) if self.bypass.begin(changed=changed) else None
        layout = BucketLayout.of(bucket, self._model.names(parameters), coded=reason is None)
        first, new = self.backwards == 0, key[0] not in self._layouts
        if first:
            layout.meet(self._communicator, key[0])  # or torch would add up what does not fit
        elif noted(self._layouts, layout, key[0]):
            self.bypass.forget()
            self._resets = new = True
            self._model.wrapped_anew(parameters)
        self._totals.values += key[1]
        if self._policies is not None:
            self._policies.note_bucket(key[0], self.backwards, last=bucket.is_last())
        if bucket.is_last():
            self.backwards += 1
        if reason is not None:
            self._totals.uncompressed_values += key[1]
            if self.rank == 0:
                self._uncompressed.log(buffer, key[0], reason)
        if first or reason is not None or self.bypass.skips(key):
            return self._plain(buffer, key)
        if self._policies is not None and self._policies.plain:
            future = self._plain(buffer, key)
            if bucket.is_last():
                self._policies.time(future)
            return future
        job = Job(
            self._staging.future(buffer), buffer, self._staging.mark(buffer), key, layout,
            last=bucket.is_last() or self._rest_skipped(key[0]),
            measure=self.bypass.measures(key), forget=self._resets, new=new,
        )  # fmt: skip
        self._resets = False
        self._start()
        self._jobs.put(job)
        return job.future

    def forget(self) -> None:
        """Drop what error feedback carries over: after a backward whose step the training loop skips.

        Between two backwards. No message is sent, and ranks may call it on their own. State that is equal on
        all ranks stays, such as steps, tables and what `spread` has not applied yet (docs/how-to/ddp.md).
        Raises OscarError after a bucket failed.
        """
        if self._finaliser is None:
            self._forgets = self._loaded is not None
            return
        self._check_whole()
        self._do(self._drop).result()  # after what the thread may still have to do

    def _drop(self) -> None:
        self._communicator.forget()
        if self._policies is not None:
            self._policies.forget()

    @property
    def policy(self) -> PolicyFile | None:
        """The policy in use, or None."""
        return None if self._policies is None else self._policies.policy

    @property
    def expected_s(self) -> float | None:
        """Seconds of an iteration, up to its last mean, that retuning expects on rank 0; else None."""
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
        gather = partial(self._communicator.gather, np.float64(value).tobytes(), 8)
        return float(np.frombuffer(self._do(gather).result()[0])[0])

    def _check_whole(self) -> None:
        self.start()
        if self.error is not None:
            raise OscarError(f"the hook failed before ({self.error}); {ADVICE}")

    def _check(self, buffer: Any, parameters: list[Any]) -> str | None:
        """Return why a bucket goes uncompressed; None: it is coded."""
        self._check_whole()
        if self._closed:
            raise OscarError(CLOSED)
        reason = why_uncompressed(buffer, parameters)
        if reason is not None and self._policies is not None:
            raise TypeError(f"expected gradients that a policy can code, got {reason}: leave the policy out")
        return reason

    def _rest_skipped(self, index: int) -> bool:
        """Return True if buckets come after this one, and all of them go uncompressed."""
        rest = [(later, layout) for later, layout in self._layouts.items() if later > index]
        return bool(rest) and all(
            not layout.coded or self.bypass.skips((later, layout.values)) for later, layout in rest
        )

    def _plain(self, buffer: Any, key: Key) -> Any:
        self._totals.sent_bytes += bytes_of(buffer, self.nodes)
        return plain_mean(buffer, self.nodes, self.process_group, partial(self.bypass.watch.note, key))

    def _start(self) -> None:
        if not self._threads:
            self._threads.append(start_thread(self, self._jobs))

    def _do(self, work: Callable[[], Any]) -> Future[Any]:
        """Let the state's own thread do something between buckets."""
        task: ThreadTask = ThreadTask(work, Future())
        if self._closed:  # there is no thread any more
            task.run()
        else:
            self._start()
            self._jobs.put(task)
        return task.done

    def perform(self, job: Job | ThreadTask) -> None:
        """Reduce one bucket and set its Future, or run a task; for the state's own thread."""
        if isinstance(job, ThreadTask):
            self._run(job)
            return
        if self.error is not None:
            job.future.set_exception(self.error)
            return
        self._open.append(job)
        try:
            done = self._reduction.reduce(job)
        except Exception as error:
            if isinstance(error, OscarError):
                error.advice = ""  # backward() can neither skip nor go on
            self._fail(error)
            LOG.error(
                "rank %d: bucket %d could not be reduced: %s: %s. What backward() raises now is torch's way "
                "of saying so; weights are as they were: %s.",
                self.rank, job.key[0], type(error).__name__, error, ADVICE,
            )  # fmt: skip
            for each in self._open:
                each.future.set_exception(error)
        else:
            for each, result in done:
                self._open.remove(each)
                each.future.set_result(result)

    def _run(self, task: ThreadTask) -> None:
        if self.error is not None:
            task.done.set_exception(self.error)
            return
        try:
            task.run()
        except Exception as error:  # the caller hears of it
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._communicator.failed is None and not (self._policies and self._policies.failed):
            self._communicator.give_up(error)  # or else the others wait for this rank
        self.error = error

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this rank's state, for torch.save between iterations; every rank has its own.

        Holds text, numbers and tensors only, so that torch.load reads it with weights_only. Raises OscarError
        after a bucket failed: others of its backward have moved on, so that the state is of no iteration.
        """
        self._check_whole()
        named = {index: layout.names for index, layout in self._layouts.items() if layout.names is not None}
        tree = {
            "layouts": {index: list(layout.shapes) for index, layout in self._layouts.items()},
            "names": {index: list(names) for index, names in named.items()},
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
            self._loaded, self._forgets = state, False
            return
        try:
            tree, decided, fresh = read_state(state, self.config.method, policed=self._policies is not None)
        except ConfigError as error:
            if self._policies is not None:
                self._policies.refuse(error)
            raise
        load_reducers(
            tree, self._communicator, self._policies, self.backwards
        )  # the last that can be refused
        self.bypass.resume(decided)
        self._layouts = fresh

    def close(self) -> None:
        """End the thread and the private groups; may be repeated. A state that has not started never does."""
        self._closed = True
        if self._finaliser is not None:
            self._finaliser()

    def __enter__(self) -> OscarState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
