"""AllReduce under a policy: in groups of tensors, each with its own method and schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar.array import Array, sizes_of
from oscar.collective.frames import AllReduceResult, Stats
from oscar.config import Config
from oscar.errors import ConfigError, GradientError, GradientOverflowError
from oscar.numerics.quantiser_kernels import add_bounded
from oscar.numerics.tensors import check_tensors, split
from oscar.reducers.checks import check_gradients
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.reducer import State
from oscar.state import Saved, crc

Waiting = dict[int, list[Array]]  # unsent residuals, flat float32 [node], by tensor


@dataclass(frozen=True)
class Group:
    """A group of tensors that are reduced together.

    tensors: their numbers in the model. config: configuration of the method.
    """

    tensors: tuple[int, ...]
    config: Config


@dataclass(frozen=True)
class GroupedResult(AllReduceResult):
    """The result of a grouped AllReduce.

    parts: statistics of each group. stats: statistics of all groups together, one after the other.
    """

    parts: tuple[Stats, ...] = field(default=(), repr=False)


class GroupedCluster:
    """AllReduce between the nodes of this process, group by group (docs/how-to/tune.md, "Under DDP").

    groups: must cover every tensor once. A call succeeds for all groups or for none. sizes: number of values
    of each tensor, or None; `load_state_dict` refuses a state of other sizes.
    `regroup` changes the groups. The residuals of dropped groups stay in `waiting` and are added to the next
    gradients, so that nothing is lost.
    """

    def __init__(self, groups: Sequence[Group], sizes: Sequence[int] | None = None) -> None:
        covered = sorted(tensor for group in groups for tensor in group.tensors)
        if not covered or covered != list(range(len(covered))):
            raise ConfigError(f"expected groups that cover every tensor once, got {covered}")
        self.groups, self.sizes = tuple(groups), sizes
        self.clusters = [LocalCluster(group.config) for group in groups]
        self.waiting: Waiting = {}

    @property
    def fingerprint(self) -> list[Any]:
        """The settings that must be equal for a saved state to fit."""
        pairs = zip(self.groups, self.clusters, strict=True)
        return [[list(group.tensors), cluster.fingerprint] for group, cluster in pairs]

    def shares(self, sizes: Sequence[int]) -> Array:
        """Return each group's share of all values, float64 [group]. sizes: values of each tensor."""
        values = np.array([sum(sizes[tensor] for tensor in group.tensors) for group in self.groups], float)
        return values / max(1.0, values.sum())

    def allreduce(self, gradients: Sequence[Sequence[Array]]) -> GroupedResult:
        """Return the mean of gradients[node][tensor]. Raises as `LocalCluster.allreduce` does."""
        shapes = check_gradients(gradients)
        count = sum(len(group.tensors) for group in self.groups)
        if len(shapes) != count:
            raise GradientError(f"expected {count} tensors on every node, got {len(shapes)}")
        for rank, node in enumerate(gradients):
            check_tensors(node, rank)  # before grouping, so that errors number tensors as the model does
        own = self._with_waiting(gradients)
        with self._whole():
            results = []
            for group, cluster in zip(self.groups, self.clusters, strict=True):
                with placed(group.tensors):
                    parts_of = [[node[tensor] for tensor in group.tensors] for node in own]
                    results.append(cluster.allreduce(parts_of))
        self.waiting = {}
        mean: list[Array] = [np.zeros(0, np.float32)] * count
        for group, result in zip(self.groups, results, strict=True):
            for tensor, values in zip(group.tensors, result.mean, strict=True):
                mean[tensor] = values
        sums = np.concatenate([result.sums for result in results])
        parts = tuple(result.stats for result in results)
        return GroupedResult(mean, sums, _together(parts), parts)

    def regroup(self, groups: Sequence[Group]) -> None:
        """Continue with other groups of the same tensors. New groups learn tables and step sizes anew."""
        fresh = GroupedCluster(groups)
        known = dict(zip((group.tensors for group in self.groups), self.clusters, strict=True))
        waiting = dict(self.waiting)
        clusters = [
            known.pop(group.tensors) if group in self.groups else cluster
            for group, cluster in zip(fresh.groups, fresh.clusters, strict=True)
        ]
        for tensors, cluster in known.items():
            if cluster.state is not None:
                waiting |= late_of(tensors, cluster.state)
        self.groups, self.clusters, self.waiting = fresh.groups, clusters, waiting

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all state. A run that loads it resumes bit for bit."""
        waiting = {tensor: [late.copy() for late in nodes] for tensor, nodes in self.waiting.items()}
        clusters = [cluster.state_dict() for cluster in self.clusters]
        return {"groups": crc(self.fingerprint), "clusters": clusters, "waiting": waiting}

    def load_state_dict(self, state: Any) -> None:
        """Load a state of `state_dict`. Raises ConfigError, and changes nothing, if it does not fit."""
        saved = Saved.of(state)
        saved.fits("groups", crc(self.fingerprint))
        fresh = GroupedCluster(self.groups)
        parts = saved["clusters"].items(len(fresh.clusters))
        sizes = dict[int, int](enumerate(self.sizes or ()))
        for group, cluster, part in zip(fresh.groups, fresh.clusters, parts, strict=True):
            cluster.load_state_dict(part.value)
            if cluster.state is not None:
                sizes |= zip(group.tensors, sizes_of(cluster.state.scheme.shapes), strict=True)
        count = sum(len(group.tensors) for group in fresh.groups)
        nodes = fresh.groups[0].config.nodes
        waiting = read_waiting(saved["waiting"], nodes, [sizes.get(tensor) for tensor in range(count)])
        self.clusters, self.waiting = fresh.clusters, waiting

    @contextmanager
    def _whole(self) -> Iterator[None]:
        with ExitStack() as stack:
            for cluster in self.clusters:
                stack.enter_context(cluster.kept())
            yield

    def _with_waiting(self, gradients: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
        if not self.waiting:
            return gradients
        nodes, waiting_nodes = len(gradients), len(next(iter(self.waiting.values())))
        if nodes != waiting_nodes:
            raise ConfigError(
                f"residuals of {waiting_nodes} nodes wait for the next gradients, got {nodes} nodes"
            )
        return [
            [with_late(tensor, values, late) for tensor, values in enumerate(own)]
            for own, late in zip(gradients, _by_node(self.waiting), strict=True)
        ]


@contextmanager
def placed(tensors: Sequence[int]) -> Iterator[None]:
    """Make a group's GradientOverflowError name its tensor by the number in the model."""
    try:
        yield
    except GradientOverflowError as error:
        if error.tensor < 0:
            raise
        tensor = tensors[error.tensor]
        raise GradientOverflowError(error.what, tensor=tensor, advice=error.advice) from None


def late_of(tensors: Sequence[int], state: State) -> Waiting:
    """Return the residuals of a group's workers by tensor; empty where everything was sent."""
    residuals: Waiting = {}
    for worker in state.workers:
        if worker.residual is not None:
            parts = split(worker.residual, state.scheme.shapes)
            for tensor, late in zip(tensors, parts, strict=True):
                residuals.setdefault(tensor, []).append(late.flatten())
    return residuals


def _by_node(waiting: Waiting) -> list[dict[int, Array]]:
    nodes = len(next(iter(waiting.values())))
    return [{tensor: late[node] for tensor, late in waiting.items()} for node in range(nodes)]


def with_late(tensor: int, values: Array, late: Mapping[int, Array]) -> Array:
    """Return a gradient plus its waiting residual. Raises ConfigError where their sizes differ."""
    if tensor not in late:
        return values
    if np.size(values) != late[tensor].size:
        raise ConfigError(
            f"tensor {tensor}: a residual of {late[tensor].size} values waits for the next gradient, "
            f"got one of {np.size(values)}; load the state of this model"
        )
    whole = np.empty(late[tensor].size, np.float32)
    add_bounded(np.asarray(values, np.float32).reshape(-1), late[tensor].reshape(-1), whole)
    return whole.reshape(np.shape(values))


def read_waiting(saved: Saved, nodes: int, sizes: Sequence[int | None]) -> Waiting:
    """Return the waiting residuals in a saved state. sizes: values of each tensor, None where unknown.

    Raises ConfigError where `saved` holds something else.
    """
    expected = f"numbers of tensors below {len(sizes)}"
    residuals: Waiting = {}
    for tensor in saved.keys(lambda key: type(key) is int and 0 <= key < len(sizes), expected):
        vectors = saved[tensor].items(nodes)
        known = sizes[tensor]
        size = np.size(vectors[0].value) if known is None and type(vectors[0].value) is np.ndarray else known
        residuals[tensor] = [late.array(np.float32, (size or 0,)) for late in vectors]
    return residuals


def _together(parts: Sequence[Stats]) -> Stats:
    """Return the joint statistics of groups that were reduced one after the other."""
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
        moved=tuple(moved for part in parts for moved in part.moved),
    )
