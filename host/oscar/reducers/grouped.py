"""AllReduce in groups of tensors, each by a method and a schedule of its own: what a policy asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar.array import Array, sizes_of, split
from oscar.collective.stats import AllReduceResult, Stats
from oscar.config import Config
from oscar.errors import ConfigError, GradientError
from oscar.numerics.tensors import check_tensors
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.gradients import check_gradients
from oscar.state import Saved, crc

Waiting = list[list[Array]]  # by node and tensor, float32


@dataclass(frozen=True)
class Group:
    """Tensors that are reduced together: their places in the model, and the method's configuration."""

    tensors: tuple[int, ...]
    config: Config


@dataclass(frozen=True)
class GroupedResult(AllReduceResult):
    """parts: the statistics of every group; `stats` is of all together, one after the other."""

    parts: tuple[Stats, ...] = field(default=(), repr=False)


class GroupedCluster:
    """AllReduce between the nodes of this process, group by group (docs/tuning.md, "Policies in training").

    groups: cover every tensor once. A call happens for all groups or for none. `regroup` goes on with other
    groups: what waits in residuals is added to the next gradients, so that nothing is lost.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        found = sorted(tensor for group in groups for tensor in group.tensors)
        if not found or found != list(range(len(found))):
            raise ConfigError(f"expected groups that cover every tensor once, got {found}")
        self.groups = tuple(groups)
        self.clusters = [LocalCluster(group.config) for group in groups]
        self.waiting: Waiting | None = None

    @property
    def fingerprint(self) -> list[Any]:
        """What must be equal for a saved state to fit."""
        pairs = zip(self.groups, self.clusters, strict=True)
        return [[list(group.tensors), cluster.fingerprint] for group, cluster in pairs]

    def shares(self, sizes: Sequence[int]) -> Array:
        """Return the share of all values that every group has; sizes: of the model's tensors."""
        own = np.array([sum(sizes[tensor] for tensor in group.tensors) for group in self.groups], float)
        return own / max(1.0, own.sum())

    def allreduce(self, gradients: Sequence[Sequence[Array]]) -> GroupedResult:
        """Return the mean of gradients[node][tensor]; raises as `LocalCluster.allreduce`, all as it was."""
        shapes = check_gradients(gradients)
        count = sum(len(group.tensors) for group in self.groups)
        if len(shapes) != count:
            raise GradientError(f"expected {count} tensors on every node, got {len(shapes)}")
        for rank, node in enumerate(gradients):
            check_tensors(node, rank)  # an error names the tensor by its place in the model
        own = self._with_waiting(gradients)
        with self._whole():
            results = [
                cluster.allreduce([[node[tensor] for tensor in group.tensors] for node in own])
                for group, cluster in zip(self.groups, self.clusters, strict=True)
            ]
        self.waiting = None
        mean: list[Array] = [np.zeros(0, np.float32)] * count
        for group, result in zip(self.groups, results, strict=True):
            for tensor, values in zip(group.tensors, result.mean, strict=True):
                mean[tensor] = values
        sums = np.concatenate([result.sums for result in results])
        parts = tuple(result.stats for result in results)
        return GroupedResult(mean, sums, _together(parts), parts)

    def regroup(self, groups: Sequence[Group]) -> None:
        """Go on with other groups of the same tensors; learnt tables and steps begin anew."""
        fresh, waiting = GroupedCluster(groups), self._residuals()
        self.groups, self.clusters, self.waiting = fresh.groups, fresh.clusters, waiting

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all state, so that a run can be resumed bit for bit."""
        waiting = None if self.waiting is None else [[x.copy() for x in node] for node in self.waiting]
        clusters = [cluster.state_dict() for cluster in self.clusters]
        return {"groups": crc(self.fingerprint), "clusters": clusters, "waiting": waiting}

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, all as it was, where it does not fit."""
        saved = Saved.of(state)
        saved.fits("groups", crc(self.fingerprint))
        fresh = GroupedCluster(self.groups)
        parts = saved["clusters"].items(len(fresh.clusters))
        for cluster, part in zip(fresh.clusters, parts, strict=True):
            cluster.load_state_dict(part.value)
        waiting: Waiting | None = None
        if not saved["waiting"].missing:
            waiting = [
                [tensor.array(np.float32, np.shape(tensor.value)) for tensor in node.items()]
                for node in saved["waiting"].items()
            ]
        self.clusters, self.waiting = fresh.clusters, waiting

    @contextmanager
    def _whole(self) -> Iterator[None]:
        with ExitStack() as stack:
            for cluster in self.clusters:
                stack.enter_context(cluster.kept())
            yield

    def _with_waiting(self, gradients: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
        if self.waiting is None:
            return gradients
        nodes, held = len(gradients), len(self.waiting)
        if nodes != held:
            raise ConfigError(f"residuals of {held} nodes wait for the next gradients, got {nodes} nodes")
        return [
            [np.asarray(tensor, np.float32) + late for tensor, late in zip(node, kept, strict=True)]
            for node, kept in zip(gradients, self.waiting, strict=True)
        ]

    def _residuals(self) -> Waiting | None:
        """Return what every node has not sent yet, by tensor; None before the first call."""
        states = [cluster.state for cluster in self.clusters]
        if any(state is None for state in states):
            return self.waiting
        count = sum(len(group.tensors) for group in self.groups)
        waiting = [[np.zeros(0, np.float32)] * count for _ in range(states[0].wire.nodes)]  # type: ignore[union-attr]
        for group, state in zip(self.groups, states, strict=True):
            assert state is not None
            for node, worker in zip(waiting, state.workers, strict=True):
                flat = worker.residual
                flat = np.zeros(sum(sizes_of(state.scheme.shapes)), np.float32) if flat is None else flat
                for tensor, late in zip(group.tensors, split(flat, state.scheme.shapes), strict=True):
                    node[tensor] = late.copy()
        return waiting


def _together(parts: Sequence[Stats]) -> Stats:
    """Return the statistics of groups that were reduced one after the other."""
    values = max(1, sum(part.values for part in parts))
    return Stats(
        nodes=parts[0].nodes,
        values=sum(part.values for part in parts),
        plan="+".join(dict.fromkeys(part.plan for part in parts)),
        iteration=parts[0].iteration,
        exact=all(part.exact for part in parts),
        identical=all(part.identical for part in parts),
        clipped=sum(part.clipped for part in parts),
        clipped_energy=sum(part.clipped_energy * part.values for part in parts) / values,
        reset=any(part.reset for part in parts),
        exchange_bytes=sum(part.exchange_bytes for part in parts),
        time_s=sum(part.time_s for part in parts),
        moved=tuple(moved for part in parts for moved in part.moved),
    )
