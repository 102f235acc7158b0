"""Parts of a state that reach other ranks: connections, a private group, a communicator."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oscar.adapters.torch.arguments import Asked
from oscar.adapters.torch.bypass import Bypass, Mode
from oscar.adapters.torch.grouped import Policed
from oscar.adapters.torch.policies import Policies
from oscar.adapters.torch.retune import Retuning
from oscar.config import Config
from oscar.errors import OscarError
from oscar.kernels import log_compiling
from oscar.reducers.communicator import Communicator
from oscar.transports.gloo import load_torch, private_group, ranks_of, timeout_for
from oscar.transports.tcp import TcpTransport


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
        config = _for_group(config, process_group)
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


def _for_group(config: Config, process_group: Any) -> Config:
    """Return `config` for the ranks of a group, with the group's own timeout where none was set."""
    timeout_s = timeout_for(process_group, config.transport.given_timeout_s)
    transport = {**config.transport.model_dump(), "timeout_s": timeout_s}
    return config.variant(nodes=len(ranks_of(process_group)), transport=transport)


def default_config() -> Config:
    """Return the configuration of a state that gets none: ASC, the quantiser `auto`, error feedback."""
    return Config.model_validate({"quantiser": {"error_feedback": True}})
