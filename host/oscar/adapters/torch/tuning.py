"""A policy for a PyTorch model before it trains: profiled on every rank, chosen by rank 0, equal on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oscar.adapters.torch.profile import Profile
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.apply import made_of
from oscar.planning.tuning.options import SCHEDULES, check_processors, default_choices, measured
from oscar.planning.tuning.policy import THREAD
from oscar.planning.tuning.policy_file import PolicyFile
from oscar.planning.tuning.profile import ITERATIONS
from oscar.planning.tuning.retune import better_of, problems_of
from oscar.timeline.link import LinkModel
from oscar.transports.gloo import load_torch

Choice = tuple[PolicyFile | None, str]  # the text says why there is no policy


def tune(
    model: Any,
    backward: Callable[[], object],
    config: Config,
    *,
    iterations: int = ITERATIONS,
    methods: Sequence[str] | None = None,
    processors: Sequence[str] = (THREAD,),
) -> PolicyFile:
    """Return the policy for `model` on the link of `config`; collective over the default process group.

    All ranks profile, so that they disturb each other as they will in the training. Rank 0 chooses.

    Args:
        model: Not in DDP yet.
        backward: A forward and a backward pass of the model, without a step of the optimiser. It runs
            several times, so statistics of batch normalisation and random states move on.
        config: The configuration of the training.
        iterations: Number of passes that count.
        methods: The methods to choose from, as `oscar tune --methods`.
        processors: As `oscar tune --processors`. The hook's is `thread`, which does group after group.

    Raises:
        ConfigError: There is no policy. All ranks raise.
    """
    _, distributed = load_torch()
    nodes = distributed.get_world_size()
    config = config.variant(nodes=nodes)
    with Profile(model) as profile:
        for _ in range(iterations + 1):
            backward()
    for parameter in model.parameters():
        parameter.grad = None
    choice: list[Choice] = [(None, "")]
    if distributed.get_rank() == 0:
        try:
            choice = [(_chosen(profile, config, methods, processors), "")]
        except Exception as error:  # whatever it is, the other ranks wait for it
            choice = [(None, str(error) if isinstance(error, ConfigError) else repr(error))]
    distributed.broadcast_object_list(choice, src=0)
    policy, refused = choice[0]
    if policy is None:
        raise ConfigError(f"rank 0 chose no policy: {refused}")
    return policy


def _chosen(
    profile: Profile, config: Config, methods: Sequence[str] | None, processors: Sequence[str]
) -> PolicyFile:
    times, link = profile.times, config.link.model()
    names = [name for name, _ in profile.tensors][::-1]
    sizes = tuple(size for _, size in profile.tensors)[::-1]
    ready = times.ready(list(zip(names, sizes, strict=True)))
    names_of = methods or default_choices(config.method)
    prices = [measured(method, config.nodes, config, native=False) for method in names_of]
    plain, kinds = LinkModel(link.bandwidth_bps, link.latency_s), check_processors(processors)
    problems = problems_of(sizes, np.asarray(ready), prices, config.nodes, plain, SCHEDULES, kinds)
    problem, best = better_of(problems)
    return PolicyFile.of(names, problem, best.policy, made_of(config, times, problem, best.policy, kinds))
