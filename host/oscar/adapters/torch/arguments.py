"""The arguments of OscarState, checked before any rank waits for another, and what reaches other ranks.

Ends are the parts of a state that reach other ranks: connections, a private group, a communicator.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from oscar.adapters.torch.bypass import Bypass, Mode, check_mode
from oscar.adapters.torch.grouped import Policed
from oscar.adapters.torch.policies import Policies, Retuning
from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.kernels import log_compiling
from oscar.planning.tuning.policy import PolicyFile
from oscar.reducers.communicator import Communicator
from oscar.transports.gloo import load_torch, private_group, ranks_of, timeout_for
from oscar.transports.tcp import TcpTransport


@dataclass(frozen=True)
class Asked:
    """Arguments of OscarState of these names."""

    config: Config | None
    bypass: Mode
    policy: PolicyFile | Path | str | None
    model: Any
    retune: int | None
    on_gpu: bool

    def check(self) -> None:
        """Raise TypeError, ValueError or ConfigError for an argument that no state can have."""
        check_config(self.config)
        if self.config is not None and self.config.schedule.name == "redundant":
            raise ConfigError(
                "schedule redundant: expected a way to compute tasks of other ranks, got a hook, which has "
                "the gradient of this one; take oscar.torch_ddp.OscarTasks, or another schedule"
            )
        check_mode(self.bypass)
        if self.policy is not None and not isinstance(self.policy, (PolicyFile, Path, str)):
            raise TypeError(f"policy: expected a file that `oscar tune` wrote, got {_shown(self.policy)}")
        if self.model is not None and not isinstance(self.model, load_torch()[0].nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {_shown(self.model)}")
        if not isinstance(self.on_gpu, bool):
            raise TypeError(f"on_gpu: expected True or False, got {_shown(self.on_gpu)}")


def check_config(config: Any) -> None:
    """Raise TypeError unless `config` is a Config or None, ConfigError where its frames should be keyed."""
    if config is None:
        return
    if not isinstance(config, Config):
        torch, dist = load_torch()
        advice = "leave it out, or give oscar.Config(...)"
        if isinstance(config, dict):
            advice = "make one of it: oscar.Config.model_validate({...})"
        elif isinstance(config, (str, Path)):
            advice = 'say oscar.Config(method="asc"), or oscar.load_config(path) for a file'
        elif isinstance(config, dist.ProcessGroup):
            advice = "say OscarState(process_group=group)"
        elif isinstance(config, torch.nn.Module):
            advice = "say model.register_comm_hook(OscarState(), oscar_hook)"
        raise TypeError(f"config: expected an oscar.Config or None, got {_shown(config)}; {advice}")
    if config.transport.security != "none":
        raise ConfigError(
            f"transport.security is {config.transport.security}, but torch itself sends for the "
            "hook (the first backward, the bypass) and has no key: set it to none, and use a network "
            "that encrypts"
        )


def check_group(group: Any) -> None:
    """Raise TypeError unless `group` is a process group of torch, or None. Its ranks are checked later."""
    dist = load_torch()[1]
    known = (
        group is None or group is dist.GroupMember.NON_GROUP_MEMBER or isinstance(group, dist.ProcessGroup)
    )
    if not known:
        raise TypeError(
            f"process_group: expected a process group of torch.distributed or None, got {_shown(group)}; "
            "make one with torch.distributed.new_group(ranks), or take a DeviceMesh's get_group()"
        )


def _shown(value: Any) -> str:
    """Return a short value with its type, or the type alone."""
    kind = "the class" if isinstance(value, type) else f"{type(value).__name__}"
    text = value.__name__ if isinstance(value, type) else repr(value)
    short = isinstance(value, (type, str, int, float, Path)) and len(text) <= 60
    return f"{kind} {text}" if short else kind


@dataclass(frozen=True)
class Ends:
    """Everything by which one rank's state reaches the others.

    Attributes:
        config: For the group's number of ranks, with the deadline in use.
        transport: Connections between the ranks.
        communicator: Reduces buckets that no policy reduces.
        bypass: Has a private group.
        policies: None without a policy.
    """

    config: Config
    transport: TcpTransport
    communicator: Communicator
    bypass: Bypass
    policies: Policies | None

    @classmethod
    def make(cls, config: Config, process_group: Any, asked: Asked) -> Ends:
        """Return the ends of this rank; collective between the ranks of `process_group` (None: all).

        Raises ConfigError where ranks differ, OscarError where torch.distributed is not initialised.
        """
        if not load_torch()[1].is_initialized():
            raise OscarError("expected torch.distributed to be initialised; call init_process_group first")
        config = for_group(config, process_group)
        policed = Policed.of(asked.policy, asked.model, config)
        policed, retuning = Retuning.of(policed, asked.retune, config)
        mode: Mode = asked.bypass if policed is None else "never"
        transport, timeout_s = TcpTransport(process_group), config.transport.timeout_s
        log_compiling(transport.rank)
        try:
            plain, _ = private_group(process_group, timedelta(seconds=timeout_s))
            extra = {"bypass": mode, "policy": policed and policed.description, "retune": asked.retune}
            communicator = Communicator(config, transport, timeout_s=timeout_s, extra=extra)
            if policed is None:
                policies = None
            elif policed.refused is not None:
                raise policed.refused
            else:
                policies = Policies(policed, retuning, asked.model, config, communicator)
        except BaseException:
            transport.close()
            raise
        return cls(config, transport, communicator, Bypass(mode, plain, communicator), policies)


def for_group(config: Config, process_group: Any) -> Config:
    """Return `config` for the ranks of a group, with the group's own timeout where none was set."""
    timeout_s = timeout_for(process_group, config.transport.given_timeout_s)
    transport = {**config.transport.model_dump(), "timeout_s": timeout_s}
    return config.variant(nodes=len(ranks_of(process_group)), transport=transport)


def default_config() -> Config:
    """Return the configuration of a state that gets none: ASC, the quantiser `auto`, error feedback."""
    return Config.model_validate({"quantiser": {"error_feedback": True}})
