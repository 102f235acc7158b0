"""A policy for a PyTorch model before it trains: profiled on every rank, chosen by rank 0, equal on all.

A profile says when the gradients of a model become ready. It is measured by hooks on parameters, on one
process and without DDP. Nothing is sent and nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.planning.tuning.apply import made_of
from oscar.planning.tuning.options import check_processors, default_choices, measured
from oscar.planning.tuning.policy import THREAD, PolicyFile
from oscar.planning.tuning.profile import ITERATIONS, ReadyTimes, here
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
    problems = problems_of(sizes, np.asarray(ready), prices, config.nodes, plain, kinds)
    problem, best = better_of(problems)
    return PolicyFile.of(names, problem, best.policy, made_of(config, times, problem, best.policy, kinds))


class Profile:
    """Measures iterations of a model: `with Profile(model) as profile:` around some, then `profile.times`.

    An iteration is a call of the model and a backward pass, on the CPU or on a CUDA device; what else is in
    the block does not count. The first iteration is not counted where there are others: it allocates.
    """

    def __init__(self, model: Any) -> None:
        self._torch = load_torch()[0]
        self._model = model
        self._named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not self._named:
            raise ConfigError("expected a model with a parameter that takes a gradient, got one without")
        devices = {parameter.device for _, parameter in self._named}
        if len(devices) > 1 or (device := devices.pop()).type not in ("cpu", "cuda"):
            raise ConfigError(
                f"expected all parameters on the CPU or on one CUDA device, got {sorted(map(str, devices))}"
            )
        self._device = device
        self._hooks: list[Any] = []
        self._iterations: list[_Iteration] = []

    def __enter__(self) -> Profile:
        self._hooks = [
            self._model.register_forward_pre_hook(self._begin),
            self._model.register_forward_hook(self._middle),
        ]
        for name, parameter in self._named:
            self._hooks.append(parameter.register_post_accumulate_grad_hook(partial(self._ready, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @property
    def tensors(self) -> list[tuple[str, int]]:
        """Name and values of each parameter, in the model's order."""
        return [(name, parameter.numel()) for name, parameter in self._named]

    def _begin(self, *_: Any) -> None:
        """Note where an iteration begins; a second call of the model before its backward pass does not."""
        if self._torch.is_grad_enabled() and not (self._iterations and not self._iterations[-1].ready):
            self._iterations.append(_Iteration(self._now()))

    def _middle(self, *_: Any) -> None:
        if self._torch.is_grad_enabled() and not self._iterations[-1].ready:  # else a checkpoint calls it
            self._iterations[-1].forward = self._now()

    def _ready(self, name: str, _: Any) -> None:
        if not self._iterations:
            raise OscarError("expected the model to be called within the block, got a backward pass alone")
        self._iterations[-1].ready[name] = self._now()

    def _now(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def _since(self, begin: Any, event: Any) -> float:
        if self._device.type == "cpu":
            return float(event - begin)
        return float(begin.elapsed_time(event)) * 1e-3

    @property
    def times(self) -> ReadyTimes:
        """The medians over iterations; raises ConfigError where there are none, or a gradient is missing."""
        done = [one for one in self._iterations if one.ready]
        if not done:
            raise ConfigError(
                "expected iterations with a forward and a backward pass, got none; call the model and "
                "loss.backward() within the block"
            )
        for name, _ in self._named:
            if any(name not in one.ready for one in done):
                raise ConfigError(
                    f"expected a gradient for every parameter in every iteration, got none for {name}; "
                    "freeze it (requires_grad_(False)), or measure iterations that use it"
                )
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)
        counted = done[1:] or done
        where = "cpu" if self._device.type == "cpu" else self._torch.cuda.get_device_name(self._device)
        return ReadyTimes.median(
            self.tensors,
            [[self._since(one.begin, one.ready[name]) for name, _ in self._named] for one in counted],
            [self._since(one.begin, one.forward) for one in counted],
            f"hooks, median of {len(counted)} iterations on {where}, {self._torch.get_num_threads()} threads",
            here("torch"),
        )


class _Iteration:
    """Times of an iteration, clock or events: its begin, the end of its forward pass, and each gradient."""

    def __init__(self, begin: Any) -> None:
        self.begin = self.forward = begin
        self.ready: dict[str, Any] = {}
