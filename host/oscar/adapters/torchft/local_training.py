"""What torchft's trainings tell their process group, and what they would lose silently."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from torch.utils.weak import WeakTensorKeyDictionary

from oscar.adapters.torchft.group import ProcessGroupOscar
from oscar.errors import ConfigError

MIB = 1 << 20
_PLACES: Any = WeakTensorKeyDictionary()  # of the parameters of models under torchft's DDP


def watch(local_sgd: Any, ddp: Any) -> None:
    """Have the trainings in torchft's modules tell a ProcessGroupOscar what they will reduce.

    A group sees sizes only, so tensors of equal sizes would share their error feedback. On other groups the
    classes do what they did. A second call does nothing.
    """
    for module, name, before in (
        (local_sgd, "DiLoCo", _tell_of_fragments),
        (local_sgd, "LocalSGD", _tell_of_parameters),
        (ddp, "DistributedDataParallel", _number_parameters),
        (ddp, "PureDistributedDataParallel", _name_gradients),
    ):
        kind = getattr(module, name)
        if not hasattr(kind.__init__, "of_oscar"):
            kind.__init__ = _told(kind.__init__, before)
    hook = ddp.DistributedDataParallel._comm_hook
    if not hasattr(hook, "of_oscar"):
        ddp.DistributedDataParallel._comm_hook = staticmethod(_named(hook))


def _named(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return DDP's hook, which now names the bucket by its first parameter."""

    @functools.wraps(hook)
    def with_name(state: Any, bucket: Any) -> Any:
        group = getattr(state, "_pg", None)
        if isinstance(group, ProcessGroupOscar):
            place = _PLACES.get(bucket.parameters()[0])
            if place is not None:
                group.name_next(f"bucket from {place}")
        return hook(state, bucket)

    with_name.of_oscar = True  # type: ignore[attr-defined]
    return with_name


def _number_parameters(group: ProcessGroupOscar, given: dict[str, Any]) -> None:
    model = group.next_model()
    for place, parameter in enumerate(given["module"].parameters()):
        _PLACES[parameter] = f"parameter {place} of model {model}"


def _name_gradients(group: ProcessGroupOscar, given: dict[str, Any]) -> None:
    """Name each gradient just before torchft's hook, which is registered later, reduces it."""
    model = group.next_model()
    for name, parameter in given["module"].named_parameters():
        text = f"{name} of model {model}"
        parameter.register_post_accumulate_grad_hook(lambda _, text=text: group.name_next(text))


def _told(init: Callable[..., None], before: Callable[[ProcessGroupOscar, dict[str, Any]], None]) -> Any:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def with_group(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        group = getattr(bound.arguments["manager"], "_pg", None)
        if isinstance(group, ProcessGroupOscar):
            before(group, bound.arguments)
        init(self, *args, **kwargs)

    with_group.of_oscar = True  # type: ignore[attr-defined]
    return with_group


def _tell_of_fragments(group: ProcessGroupOscar, given: dict[str, Any]) -> None:
    fragments = given["model_fragments"]
    if given["should_quantize"]:
        raise ConfigError(
            "expected should_quantize=False, got True: torchft then goes past its process group; leave it out"
        )
    if given["use_bucketization"] or os.environ.get("TORCHFT_USE_BUCKETIZATION") == "True":
        cap = given["bucket_cap_mb"]
        for at, fragment in enumerate(fragments):
            _refuse_lossy(at, fragment, 1 << 30 if cap is None else int(cap * MIB))
    group.reduces(fragments=len(fragments), parameters=False)


def _refuse_lossy(at: int, fragment: Any, cap: int) -> None:
    """Raise ConfigError where a fragment needs several buckets: torchft 0.2.0 loses what is in the others.

    Of tensors of 50, 50 and 50 values with a bucket of 60 the last one is never averaged.
    """
    local = [p.to_local() if hasattr(p, "to_local") else p for p in fragment.parameters()]
    size = sum(p.numel() for p in local) * (local[0].element_size() if local else 0)
    if size > cap:
        raise ConfigError(
            f"expected fragment {at} of DiLoCo in one bucket of {cap:,} bytes, got {size:,} bytes: torchft "
            f"loses tensors of further buckets; set bucket_cap_mb to {-(-size // MIB)} or more, make smaller "
            "fragments, or leave use_bucketization out"
        )


def _tell_of_parameters(group: ProcessGroupOscar, given: dict[str, Any]) -> None:
    group.reduces(fragments=1, parameters=True)
