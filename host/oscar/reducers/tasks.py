"""AllReduce of tasks between processes: no rank waits for a slow one, and a dead one is not missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from oscar.collective.redundant import Redundant
from oscar.collective.schedule import Schedule
from oscar.config import Config
from oscar.errors import CautionWarning, ConfigError, GradientError, warn
from oscar.numerics.saturation import Saturation
from oscar.numerics.tensors import as_floats
from oscar.reducers.checks import check_list
from oscar.reducers.communicator import Communicator, PeerResult
from oscar.reducers.copies import Copies
from oscar.reducers.reducer import Call
from oscar.reducers.task_wire import TaskWire
from oscar.schemes.base import Channel
from oscar.transports.base import Transport

Compute = Callable[[int], Sequence[Any]]


class TaskCommunicator(Communicator):
    """AllReduce of the gradients of `tasks` tasks, which several ranks can compute.

    docs/reference/schedules.md has the rules.

    A task is a piece of the batch, for example a micro-batch. The configuration's schedule must be
    `redundant`. Arguments are those of Communicator. All ranks must get the same bits for a task, so their
    weights must be equal.

    >>> import numpy as np
    >>> from oscar.transports.threads import local_transports
    >>> (transport,) = local_transports(1)  # one rank; a real run has one process for each
    >>> config = Config(nodes=1, schedule={"name": "redundant", "copies": 1})
    >>> with TaskCommunicator(config, transport) as communicator:
    ...     result = communicator.allreduce_tasks(lambda task: [np.ones(2, np.float32)])
    ...     communicator.drain()
    >>> result.mean[0].tolist(), result.stats.tasks.computed
    ([1.0, 1.0], [0])
    """

    def __init__(
        self,
        config: Config,
        transport: Transport,
        *,
        timeout_s: float = 60.0,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(config, transport, timeout_s=timeout_s, extra=extra)
        assert isinstance(self._default, Redundant)
        self.copies = Copies(self.party, self._default)
        self._reported: set[int] = set()

    def _check_schedule(self, schedule: Schedule | None) -> None:
        if not isinstance(schedule, Redundant):
            raise ConfigError(
                "TaskCommunicator: expected the schedule redundant, got "
                f"{self.config.schedule.name}; set schedule: {{name: redundant, copies: 2}}"
            )

    def _make_wire(self, nodes: int, channels: Mapping[str, Channel]) -> TaskWire:
        return TaskWire(self.copies, channels)

    def _schedule(self, nodes: int, values: int) -> Schedule:
        return super()._schedule(self.transport.nodes, values)  # between ranks, whatever the number of tasks

    @property
    def gradients(self) -> int:
        """Number of gradients in a mean: that of tasks."""
        return self.copies.schedule.tasks

    tasks = gradients

    def allreduce(self, tensors: Sequence[Any], *, key: Hashable = 0, device: Any = None) -> PeerResult:
        """Raise ConfigError: a rank has no gradient of its own. Call `allreduce_tasks`."""
        raise ConfigError(
            "TaskCommunicator: expected a call of allreduce_tasks(compute), got one of allreduce"
        )

    def allreduce_tasks(self, compute: Compute, *, key: Hashable = 0) -> PeerResult:
        """Return the mean of the gradients of all tasks; the same bits on all ranks. Collective.

        This rank computes the tasks of its own part first, and then tasks of others that nobody has sent. It
        returns once one copy of each task is here. So it may be up to four calls ahead of a slow rank.

        compute: is called with the number of a task, 0 to `tasks` - 1. It returns tensors as
        `Communicator.allreduce` takes them, which must stay as they are until the call returns. key: as
        there. The first call of a key waits for all ranks.

        While other ranks can compute a dead rank's tasks, its death is reported by a CautionWarning, once,
        and in `stats.tasks.dead`. Raises PeerError where no rank is left for a task, where a rank is silent
        past the timeout, and where copies of a task differ; otherwise as `Communicator.allreduce`.
        """
        self.party.check_alive()
        result = self._wholly(lambda: self._attempt_tasks(compute, key), key)
        self._report(self.copies.dead)
        return result

    def _report(self, ranks: Iterable[int]) -> None:
        for rank in sorted({*ranks} - self._reported):
            self._reported.add(rank)
            warn(f"rank {self.rank}: rank {rank} died; the others compute its tasks", CautionWarning)

    def drain(self) -> None:
        """Wait until all living ranks have ended this rank's last call; collective.

        Call it before `close`: a rank that is behind would take this one for dead. Raises PeerError.
        """
        try:
            self.copies.drain()
        except BaseException as error:
            self.give_up(error)
            raise
        dead = self.copies.dead.items()  # a rank that has ended its last call may close
        self._report(rank for rank, ended in dead if ended < self.copies.call)

    def gather(self, mine: bytes, cap: int) -> list[bytes]:
        """See Communicator.gather; needs all ranks."""
        self.drain()
        return super().gather(mine, cap)

    def _attempt_tasks(self, compute: Compute, key: Hashable) -> tuple[PeerResult, Call]:
        began, waited = time.perf_counter(), self.party.waited_s
        ready: dict[int, Any] = {}
        state = self.states.get(key)
        if state is None:
            first = self.copies.schedule.part(self.rank)[0]
            ready[first] = self._checked(compute, first)
            self.copies.drain()  # nothing may be under way while shapes are compared
            state, _ = self._fit(key, [tuple(np.shape(tensor)) for tensor in ready[first]], None)

        def flat(task: int) -> list[np.ndarray]:
            tensors = ready.pop(task) if task in ready else self._checked(compute, task)
            shapes = [tuple(np.shape(tensor)) for tensor in tensors]
            if shapes != state.scheme.shapes:
                raise GradientError(
                    f"task {task}: expected tensors of shapes {state.scheme.shapes}, as in the first call of "
                    f"key {key!r}, got {shapes}; use another key"
                )
            return as_floats(tensors, task)

        assert isinstance(state.wire, TaskWire)
        totals, traffic, counts = state.wire.reduce(state.scheme, state.workers, flat)
        losses = {task: state.workers[task].saturation for task in counts.computed}
        worst = max(losses.values(), key=lambda loss: loss.worst, default=Saturation())
        call = Call(traffic, losses, {self.rank: worst})
        mean = self._finish(state, totals, [])
        seconds = time.perf_counter() - began, self.party.waited_s - waited
        return PeerResult(mean, self._sums(state), self._stats(state, call, seconds, tasks=counts)), call

    def _checked(self, compute: Compute, task: int) -> Sequence[Any]:
        tensors = compute(task)
        check_list(tensors, "a list of tensors of each task")
        return tensors
