"""Measures by hooks on parameters when the gradients of a PyTorch model become ready.

Nothing is sent and nothing is changed: a profile is made of a model on one process, without DDP.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from oscar.errors import ConfigError, OscarError
from oscar.planning.tuning.profile import ReadyTimes, here
from oscar.transports.gloo import load_torch


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
