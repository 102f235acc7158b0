"""A policy's groups over DDP's buckets: gradients wait for their group, buckets for their means."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oscar.adapters.torch.jobs import Job
from oscar.array import Array
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.apply import groups_of
from oscar.planning.tuning.options import FP32
from oscar.planning.tuning.policy import PolicyFile, load_policy
from oscar.reducers.communicator import Communicator, PeerStats
from oscar.reducers.grouped import Group, late_of, placed, read_waiting, with_late
from oscar.state import Saved, crc
from oscar.transports.base import Transport

MOST_SEEN = 128  # calls of a group whose times are stored


class Took(NamedTuple):
    """Seconds of a group's call: waiting for other ranks, and all else."""

    waited_s: float
    coding_s: float


@dataclass(frozen=True)
class _Bucket:
    job: Job
    places: tuple[int, ...]  # of its tensors in the model


@dataclass(frozen=True)
class Policed:
    """A policy as one rank has read it, for a model's parameters.

    Attributes:
        groups: Groups of tensors, in the policy's order.
        places: Places of parameters in the model, by identity.
        tensors: Name and number of values of each.
        file: The policy.
        refused: Why it does not fit this model. All ranks learn of it before one of them raises.
    """

    groups: list[Group]
    places: dict[int, int]
    tensors: list[tuple[str, int]]
    file: PolicyFile | None = None
    refused: ConfigError | None = None

    @classmethod
    def of(cls, policy: PolicyFile | Path | str | None, model: Any, config: Config) -> Policed | None:
        """Return the policy for the parameters of `model` that have gradients; None without one."""
        if policy is None and model is None:
            return None
        if policy is None or model is None:
            missing = "policy" if policy is None else "model"
            error = ConfigError(f"expected a policy and its model together, got no {missing}")
            return cls([], {}, [], refused=error)
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        tensors = [(name.removeprefix("module."), each.numel()) for name, each in named]
        places = {id(each): place for place, (_, each) in enumerate(named)}
        return cls([], places, tensors).other(policy, config)

    def other(self, policy: PolicyFile | Path | str, config: Config) -> Policed:
        """Return another policy for the same model."""
        try:
            read = policy if isinstance(policy, PolicyFile) else load_policy(Path(policy))
            groups = groups_of(read, self.tensors, config)
        except ConfigError as error:
            return replace(self, groups=[], file=None, refused=error)
        return replace(self, groups=groups, file=read, refused=None)

    @property
    def description(self) -> Any:
        """The groups, or why there are none, for comparing: equal on all ranks."""
        if self.refused is not None:
            return f"refused: {self.refused}"
        return described(self.groups)


class GroupedBuckets:
    """Reduces the groups of a policy as soon as all their gradients are there, in the policy's order.

    Making one is collective, and so is `regroup`: each method has a communicator of its own over `transport`.
    """

    def __init__(self, policy: Policed, config: Config, transport: Transport) -> None:
        self._config, self._transport, self._places = config, transport, policy.places
        self._communicators: dict[str, Communicator] = {}
        self._sizes = [values for _, values in policy.tensors]
        self.groups: list[Group] = []
        self._late: dict[int, Array] = {}  # by tensor: what groups of before have not sent
        self._took: list[deque[Took]] = []  # by group, of its last calls
        self._arrived: dict[int, Array] = {}
        self._means: dict[int, Array] = {}
        self._reduced: set[int] = set()
        self._waiting: list[_Bucket] = []
        self.regroup(policy.groups)

    def regroup(self, groups: Sequence[Group]) -> None:
        """Go on with these groups, between two backwards; what was not sent yet is added to what comes next.

        Groups that stay keep their tables and steps. Collective, with equal groups on all ranks.
        """
        known, fresh = self._communicators, {}
        for group in groups:
            name = _method(group)
            if name not in fresh:
                fresh[name] = known.get(name) or self._communicator(group)
        for group in self.groups:
            if group not in groups:
                state = known[_method(group)].states.pop(_key(group), None)
                if state is not None:
                    self._add_late(group, state)
        self.groups, self._communicators = list(groups), fresh
        self._took = [deque(maxlen=MOST_SEEN) for _ in groups]

    def _communicator(self, group: Group) -> Communicator:
        timeout_s = self._config.transport.timeout_s
        return Communicator(group.config, self._transport, timeout_s=timeout_s)

    def took(self) -> list[Took | None]:
        """Return by group the medians of its calls since it was asked for last; None without any."""
        medians = [
            Took(*map(statistics.median, zip(*calls, strict=True))) if calls else None for calls in self._took
        ]
        for calls in self._took:
            calls.clear()
        return medians

    def _add_late(self, group: Group, state: Any) -> None:
        """Take over what a group's state has not sent."""
        self._late |= {tensor: late for tensor, (late,) in late_of(group.tensors, state).items()}

    @property
    def plain(self) -> bool:
        """True if groups have nothing to do: all go uncompressed, and nothing waits to be sent."""
        return not self._late and all(group.config.method == FP32.name for group in self.groups)

    @property
    def failed(self) -> str | None:
        """The error that ended a communicator, or None."""
        return next((one.failed for one in self._communicators.values() if one.failed is not None), None)

    def take(self, job: Job, tensors: Sequence[Array]) -> tuple[list[tuple[Job, Array]], list[PeerStats]]:
        """Take a bucket's gradients; return the buckets whose means are there now, and what groups sent."""
        places = tuple(self._places[parameter] for parameter in job.layout.identities)
        if len(places) != len(tensors):
            raise ConfigError(f"expected {len(tensors)} parameters in a bucket, got {len(places)}")
        self._arrived |= dict(zip(places, tensors, strict=True))
        self._waiting.append(_Bucket(job, places))
        stats = [self._reduce(index) for index in range(len(self.groups)) if self._whole(index)]
        done = [one for one in self._waiting if all(place in self._means for place in one.places)]
        self._waiting = [one for one in self._waiting if one not in done]
        means = [
            (one.job, np.concatenate([self._means[place].reshape(-1) for place in one.places]))
            for one in done
        ]
        if len(self._reduced) == len(self.groups) and not self._waiting:
            self.drop()
        return means, stats

    def forget(self) -> None:
        """Drop what error feedback carries over, and what groups of before have not sent.

        What waits becomes zeros: a rank may call this alone, and must not differ in whether something waits.
        """
        for group in self.groups:
            communicator = self._communicators[_method(group)]
            state = communicator.states.get(_key(group))
            if state is not None:
                self._add_late(group, state)
        self._late = {tensor: np.zeros_like(late) for tensor, late in self._late.items()}
        for communicator in self._communicators.values():
            communicator.forget()

    def drop(self) -> None:
        """Forget what a backward has brought."""
        self._arrived, self._means, self._reduced, self._waiting = {}, {}, set(), []

    def _whole(self, index: int) -> bool:
        """Return True if all gradients of a group are there, and it was not reduced yet."""
        arrived = all(place in self._arrived for place in self.groups[index].tensors)
        return arrived and index not in self._reduced

    def _reduce(self, index: int) -> PeerStats:
        group = self.groups[index]
        tensors = [with_late(tensor, self._arrived[tensor], self._late) for tensor in group.tensors]
        with placed(group.tensors):
            result = self._communicators[_method(group)].allreduce(tensors, key=_key(group))
        waited_s = result.stats.waited_s
        self._took[index].append(Took(waited_s, result.stats.seconds - waited_s))
        for tensor in group.tensors:
            self._late.pop(tensor, None)
        self._means |= dict(zip(group.tensors, result.mean, strict=True))
        self._reduced.add(index)
        return result.stats

    def state_dict(self) -> Mapping[str, Any]:
        """Return a copy of this rank's state."""
        return {
            "groups": described(self.groups),
            "reducers": [one.state_dict() for one in self._communicators.values()],
            "waiting": {tensor: [late.copy()] for tensor, late in self._late.items()},
        }

    def load_state_dict(self, saved: Saved) -> None:
        """Take over what `state_dict` returned; raises ConfigError, all as it was, for another policy."""
        saved.fits("groups", described(self.groups))
        parts = saved["reducers"].items(len(self._communicators))
        waiting = read_waiting(saved["waiting"], 1, self._sizes)
        late = {tensor: values for tensor, (values,) in waiting.items()}
        before = [one.state_dict() for one in self._communicators.values()]
        try:
            for one, part in zip(self._communicators.values(), parts, strict=True):
                one.load_state_dict(part.value)
        except BaseException:
            for one, old in zip(self._communicators.values(), before, strict=True):
                one.load_state_dict(old)
            raise
        self._late = late


def described(groups: Sequence[Group]) -> list[Any]:
    """Return the tensors and the method of each group, for comparing."""
    free = {"threads"}  # may differ between ranks
    return [
        [list(group.tensors), crc(group.config.model_dump(mode="json", exclude=free))] for group in groups
    ]


def _method(group: Group) -> str:
    return group.config.model_dump_json()


def _key(group: Group) -> tuple[int, int]:
    """Return under which key a communicator keeps a group's state: its first and its last tensor."""
    return group.tensors[0], group.tensors[-1]
