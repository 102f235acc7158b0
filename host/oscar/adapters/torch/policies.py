"""A policy in use under the hook: its groups, which may change, and which way a backward's buckets go.

Retuning in mid-training: rank 0 chooses by the times of groups, and all ranks go on with its choice.
"""

from __future__ import annotations

import json
import logging
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oscar.adapters.torch.grouped import MOST_SEEN, GroupedBuckets, Policed
from oscar.adapters.torch.jobs import Job
from oscar.array import Array
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.apply import groups_of
from oscar.planning.tuning.policy import PolicyFile
from oscar.planning.tuning.retune import Retuner, Seen
from oscar.reducers.communicator import Communicator, PeerStats
from oscar.state import Saved

MOST_BYTES = 1 << 20  # of a policy's groups as text
FEWEST = 3  # iterations that make a median
LEAST = FEWEST + 1  # backwards between two choices: the one after which is chosen goes by groups
LOG = logging.getLogger("oscar.ddp")


class Stopwatch:
    """Times iterations from the call of a model to their last gradient, and to the end of its reduction."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._computed: deque[float] = deque(maxlen=MOST_SEEN)
        self._took: deque[float] = deque(maxlen=MOST_SEEN)

    def begin(self, *_: Any) -> None:
        """Note the time: before a forward pass."""
        self._begin = time.perf_counter()

    def computed(self) -> None:
        """Note that the last gradient is there."""
        if self._begin is not None:
            self._computed.append(time.perf_counter() - self._begin)

    def end(self, *_: Any) -> None:
        """Note that all means are there."""
        if self._begin is not None:
            self._took.append(time.perf_counter() - self._begin)
            self._begin = None

    def medians(self) -> tuple[float | None, float | None]:
        """Return whole and computing time since the last call; None where FEWEST iterations were not seen."""
        medians = [
            statistics.median(times) if len(times) >= FEWEST else None
            for times in (self._took, self._computed)
        ]
        self._took.clear()
        self._computed.clear()
        return medians[0], medians[1]


class Retuning:
    """Chooses groups anew after every `every` backwards.

    Attributes:
        policy: The policy in use.
        watch: Times its iterations.

    Raises:
        ConfigError: As Retuner does, and for fewer than LEAST backwards, in which too few iterations are
            timed.
    """

    def __init__(self, every: int, policed: Policed, config: Config) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < LEAST:
            raise ConfigError(f"retune: expected a number of backwards from {LEAST}, got {every!r}")
        assert policed.file is not None
        self.every, self._tensors, self._config = every, policed.tensors, config
        self.policy, self.watch = policed.file, Stopwatch()
        self._retuner = Retuner(policed.file, config)
        self._began = 0  # backwards of this process that were before this state's first

    @classmethod
    def of(
        cls, policed: Policed | None, every: int | None, config: Config
    ) -> tuple[Policed | None, Retuning | None]:
        """Return the policy, refused if it cannot be retuned, and its Retuning; every: None for never."""
        if every is None:
            return policed, None
        if policed is None:
            error = ConfigError("retune: expected a policy and its model to begin with, got none")
            return Policed([], {}, [], refused=error), None
        if policed.refused is not None:
            return policed, None
        try:
            return policed, cls(every, policed, config)
        except ConfigError as error:
            return replace(policed, refused=error), None

    def due(self, backwards: int) -> bool:
        """Return True if groups are chosen after this backward, which has to go by groups. The first is 0."""
        return backwards > 0 and (backwards - self._began) % self.every == 0

    @property
    def expected_s(self) -> float | None:
        """Seconds that an iteration should take on the link as it was seen last; None except on rank 0."""
        return self._retuner.expected_s

    def run(self, grouped: GroupedBuckets, communicator: Communicator) -> None:
        """Let rank 0 choose; where it chose another policy, go on with that one. Collective.

        Of waiting the least of all ranks counts: the others wait for the last one, and not for the link.
        """
        took, watched = grouped.took(), self.watch.medians()
        waits = np.array([np.inf if each is None else each.waited_s for each in took])
        all_waits = communicator.gather(waits.tobytes(), waits.nbytes)
        chosen = b""
        if communicator.rank == 0:
            least = np.min([np.frombuffer(theirs) for theirs in all_waits], axis=0)
            groups = zip(self.policy.groups, grouped.groups, took, least.tolist(), strict=True)
            seen = [
                Seen(option, sum(self._tensors[at][1] for at in group.tensors), waited_s, each.coding_s)
                for (_, option), group, each, waited_s in groups
                if each is not None
            ]
            retuned = self._retuner.retune(self.policy, seen, *watched)
            if retuned is not None:
                link = retuned.fit.link
                LOG.warning(
                    "retuned: the link looks like %.4g Mb/s and %.3g ms a hop, coding takes %.2g of what was "
                    "foreseen; %d groups instead of %d, an iteration takes %.1f ms instead of %.1f",
                    link.bandwidth_bps * 1e-6, link.latency_s * 1e3, retuned.fit.slower,
                    len(retuned.policy.groups), len(self.policy.groups),
                    retuned.time_s * 1e3, retuned.before_s * 1e3,
                )  # fmt: skip
                chosen = json.dumps([retuned.policy.groups, dict(retuned.policy.made)]).encode()
        if text := communicator.gather(chosen, MOST_BYTES)[0]:
            groups, made = json.loads(text)
            self._go_on(groups, grouped, made)

    def state_dict(self, backwards: int) -> dict[str, Any]:
        """Return the groups in use, what was tried, and where a run that goes on is between two choices."""
        since = (backwards - self._began) % self.every
        return {"groups": [*self.policy.groups], "since": since, "tuner": self._retuner.state_dict()}

    def load(
        self, saved: Saved, refused: ConfigError | None, grouped: GroupedBuckets, reducer: Communicator,
        backwards: int,
    ) -> None:  # fmt: skip
        """Go on with the groups that were in use, and with their state; collective.

        refused: why this rank's state is none. Raises ConfigError on all ranks, with all as it was.
        """
        groups: list[tuple[int, str]] = []
        since = 0
        seen = self._retuner.state_dict()
        if refused is None:
            try:
                groups, since = self._read(saved["retuned"])
                self._retuner.load_state_dict(saved["retuned"]["tuner"])
            except ConfigError as error:
                refused = error
        try:
            agreed(reducer, refused, groups)
        except ConfigError:
            self._retuner.load_state_dict(seen)
            raise
        before, present = list(self.policy.groups), grouped.state_dict()
        self._go_on(groups, grouped)
        try:
            grouped.load_state_dict(saved["groups"])
        except ConfigError as error:
            refused = error
        try:
            agreed(reducer, refused)
        except ConfigError:
            self._go_on(before, grouped)
            self._retuner.load_state_dict(seen)
            grouped.load_state_dict(Saved.of(present))
            raise
        self._began = max(backwards, 1) - since  # the first backward of a process is thrown away

    def _read(self, saved: Saved) -> tuple[list[tuple[int, str]], int]:
        """Return the groups that were in use, and the backwards since a choice."""
        pairs = (one.items(2) for one in saved["groups"].items())
        groups = [(stop.integer(1), option.text()) for stop, option in pairs]
        stops = [stop for stop, _ in groups]
        if not stops or stops != sorted(set(stops)) or stops[-1] != len(self._tensors):
            raise saved.refuse(f"groups that cover {len(self._tensors)} tensors in order", f"{stops}")
        self._policy(groups)
        return groups, saved["since"].integer(0, self.every - 1)

    def checked(self, other: Policed) -> Policed:
        """Return another policy, refused where it could not be retuned."""
        if other.refused is not None or other.file is None:
            return other
        try:
            self._retuner.check(other.file)
        except ConfigError as error:
            return replace(other, refused=error)
        return other

    def take(self, policy: PolicyFile) -> None:
        """Go on with a policy that was checked, and was not chosen here."""
        self._retuner.know(policy)
        self.policy = policy
        self.watch.medians()  # of another policy

    def _policy(self, groups: list[tuple[int, str]], made: Mapping[str, Any] | None = None) -> PolicyFile:
        made = self.policy.made if made is None else made
        policy = replace(self.policy, groups=tuple((stop, option) for stop, option in groups), made=made)
        groups_of(policy, self._tensors, self._config)
        return policy

    def _go_on(
        self, groups: list[tuple[int, str]], grouped: GroupedBuckets, made: Mapping[str, Any] | None = None
    ) -> None:
        policy = self._policy(groups, made)
        grouped.regroup(groups_of(policy, self._tensors, self._config))
        self._retuner.know(policy)
        self.policy = policy


def agreed(reducer: Communicator, refused: ConfigError | None, what: Any = None) -> None:
    """Raise ConfigError on all ranks where one refuses its state or `what` is unequal; collective."""
    state = what if refused is None else f"refused: {refused}"
    try:
        reducer.party.compare({"state": state}, "loading of states", advice="load every rank's own state")
    except ConfigError as error:
        raise (refused or error) from None
    if refused is not None:
        raise refused


class Policies:
    """The groups of a policy, for the buckets of one model. Making one is collective.

    Args:
        policed: The first policy, as this rank has read it.
        retuning: Chooses other policies. None: the policy stays.
        model: The model whose buckets these are.
        config: The state's configuration.
        reducer: The ranks compare policies over it.

    Attributes:
        plain: This backward's buckets go as DDP would send them.
    """

    def __init__(
        self, policed: Policed, retuning: Retuning | None, model: Any, config: Config, reducer: Communicator
    ) -> None:
        self._policed, self._retuning, self._config, self._reducer = policed, retuning, config, reducer
        self._grouped = GroupedBuckets(policed, config, reducer.transport)
        self.plain = self._due = False
        if retuning is not None:
            on = {each.device.type for each in model.parameters()} - {"cpu"}
            if on:  # the host's clock sees when work is asked for there, not when it is done
                raise ConfigError(f"retune: expected a model on the CPU, got one on {on.pop()}; leave it out")
            model.register_forward_pre_hook(retuning.watch.begin)

    @property
    def policy(self) -> PolicyFile | None:
        """The policy in use."""
        return self._policed.file if self._retuning is None else self._retuning.policy

    @property
    def expected_s(self) -> float | None:
        """Seconds of an iteration, up to its last mean, that retuning expects on rank 0; else None."""
        return None if self._retuning is None else self._retuning.expected_s

    @property
    def failed(self) -> str | None:
        """The error that ended a communicator, or None."""
        return self._grouped.failed

    def note_bucket(self, index: int, backwards: int, *, last: bool) -> None:
        """Note a bucket. Groups change after a backward only, so its first bucket decides for all."""
        if index == 0:
            self._due = self._retuning is not None and self._retuning.due(backwards)
            self.plain = self._grouped.plain and not self._due
        if last and self._retuning is not None:
            self._retuning.watch.computed()

    def time(self, future: Any) -> None:
        """Let an iteration end with this Future, of the last bucket that went plain."""
        if self._retuning is not None:
            future.add_done_callback(self._retuning.watch.end)

    def take(self, job: Job, tensors: Sequence[Array]) -> tuple[list[tuple[Job, Array]], list[PeerStats]]:
        """Take a bucket's gradients, see GroupedBuckets.take. After the last one choose groups, if due."""
        result = self._grouped.take(job, tensors)
        if job.last and self._retuning is not None:
            if not self._grouped.plain:  # else groups are only looked at
                self._retuning.watch.end()
            if self._due:
                self._retuning.run(self._grouped, self._reducer)
        return result

    def regroup(self, policy: PolicyFile | Path | str) -> None:
        """Go on with another policy, as OscarState.regroup says."""
        other = self._policed.other(policy, self._config)
        if self._retuning is not None:
            other = self._retuning.checked(other)
        advice = "give all ranks one policy"
        self._reducer.party.compare({"policy": other.description}, "regrouping", advice=advice)
        if other.refused is not None:
            raise other.refused
        self._grouped.regroup(other.groups)
        self._policed = other
        if self._retuning is not None and other.file is not None:
            self._retuning.take(other.file)

    def forget(self) -> None:
        """Drop what error feedback carries over, as OscarState.forget says."""
        self._grouped.forget()

    def state_dict(self, backwards: int) -> dict[str, Any]:
        """Return a copy of this rank's state."""
        retuned = None if self._retuning is None else self._retuning.state_dict(backwards)
        return {"groups": self._grouped.state_dict(), "retuned": retuned}

    def load_state_dict(self, saved: Saved, backwards: int, refused: ConfigError | None = None) -> None:
        """Take over what `state_dict` returned, unless it is refused already.

        Raises ConfigError, with all as it was, and where groups change on all ranks.
        """
        if self._retuning is not None:
            self._retuning.load(saved, refused, self._grouped, self._reducer, backwards)
        elif refused is not None:
            raise refused
        else:
            self._grouped.load_state_dict(saved["groups"])

    def refuse(self, error: ConfigError) -> None:
        """Tell the other ranks, which may load their state, that this one cannot."""
        if self._retuning is not None:
            agreed(self._reducer, error)
