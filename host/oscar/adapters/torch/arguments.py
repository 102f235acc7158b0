"""The arguments of OscarState, checked before any rank waits for another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscar.adapters.torch.bypass import Mode, check_mode
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.policy_file import PolicyFile
from oscar.transports.gloo import load_torch


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
        _check_config(self.config)
        check_mode(self.bypass)
        if self.policy is not None and not isinstance(self.policy, (PolicyFile, Path, str)):
            raise TypeError(f"policy: expected a file that `oscar tune` wrote, got {_shown(self.policy)}")
        if self.model is not None and not isinstance(self.model, load_torch()[0].nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {_shown(self.model)}")
        if not isinstance(self.on_gpu, bool):
            raise TypeError(f"on_gpu: expected True or False, got {_shown(self.on_gpu)}")


def _check_config(config: Any) -> None:
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
