"""A policy in use under the hook: its groups, which may change, and which way a backward's buckets go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oscar.adapters.torch.grouped import GroupedBuckets, Policed
from oscar.adapters.torch.jobs import Job
from oscar.adapters.torch.retune import Retuning, agreed
from oscar.array import Array
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.policy_file import PolicyFile
from oscar.reducers.communicator import Communicator, PeerStats
from oscar.state import Saved


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
