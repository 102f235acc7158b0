"""Gradients of a module from tasks that several ranks can compute, so that nobody waits for a slow rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oscar.adapters.torch.arguments import check_config, check_group, for_group
from oscar.adapters.torch.saving import packed, read_tree
from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.communicator import PeerStats
from oscar.reducers.tasks import TaskCommunicator
from oscar.transports.gloo import load_torch
from oscar.transports.tcp import TcpTransport


class OscarTasks:
    """Sets the gradients of a module to their mean over all tasks (docs/how-to/ddp.md, "Slow ranks").

    Making one is collective between the ranks of `process_group`. The weights must be equal on all ranks.

    Raises TypeError for another module, ConfigError where configurations differ or do not fit, OscarError
    where torch.distributed is not initialised.

    Args:
        module: The module itself, not one in DistributedDataParallel, which waits for all ranks in each
            forward.
        config: With the schedule redundant; None: ASC with two copies.
        process_group: None for all ranks.

    Attributes:
        tasks: Number of tasks of a step, by which the batch is to be divided.
        rank: This rank, in the group.
        nodes: Number of ranks of the group.
    """

    def __init__(self, module: Any, config: Config | None = None, process_group: Any = None) -> None:
        torch, dist = load_torch()
        wrapped = isinstance(module, torch.nn.parallel.DistributedDataParallel)
        if wrapped or not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"OscarTasks: expected the torch.nn.Module itself, got {type(module).__name__}"
                + ("; give its `module`" if wrapped else "")
            )
        check_config(config)
        check_group(process_group)
        if not dist.is_initialized():
            raise OscarError("expected torch.distributed to be initialised; call init_process_group first")
        self._parameters = [each for each in module.parameters() if each.requires_grad]
        self.config = for_group(config or Config.model_validate({"schedule": "redundant"}), process_group)
        transport = TcpTransport(process_group)
        try:
            timeout_s = self.config.transport.timeout_s
            self._communicator = TaskCommunicator(self.config, transport, timeout_s=timeout_s)
        except BaseException:
            transport.close()
            raise
        self.rank, self.nodes, self.tasks = transport.rank, transport.nodes, self._communicator.gradients

    def backward(self, run: Callable[[int], Any]) -> PeerStats:
        """Set all gradients to their mean over the tasks; return this rank's statistics. Collective.

        Errors are those of TaskCommunicator.allreduce_tasks.

        Args:
            run: Called with the number of a task. It makes the task's forward and backward, without an
                optimiser's step. Gradients are None before.
        """
        torch = load_torch()[0]

        def compute(task: int) -> list[Any]:
            for each in self._parameters:
                each.grad = None
            run(task)
            return [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]

        try:
            result = self._communicator.allreduce_tasks(compute)
        except BaseException:
            for each in self._parameters:  # that of one task would look like the mean
                each.grad = None
            raise
        for each, mean in zip(self._parameters, result.mean, strict=True):
            each.grad = torch.from_numpy(mean).to(device=each.device, dtype=each.dtype)
        return result.stats

    def state_dict(self) -> dict[str, Any]:
        """Return the state as text, numbers and tensors; equal on all ranks but for the rank's number."""
        return packed(self._communicator.state_dict(), self.config.method)

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned after the same step on all ranks.

        Raises ConfigError, and changes nothing, where it does not fit.
        """
        self._communicator.load_state_dict(read_tree(state, self.config.method).value)

    def close(self) -> None:
        """Wait for ranks that are behind, then close the connections. After an error, close only."""
        try:
            if self._communicator.failed is None and not self._communicator.transport.closed:
                self._communicator.drain()
        finally:
            self._communicator.close()

    def __enter__(self) -> OscarTasks:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._communicator.close()
