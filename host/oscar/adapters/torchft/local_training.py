"""What DiLoCo and LocalSGD tell their process group, and what they would lose silently."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from oscar.adapters.torchft.group import ProcessGroupOscar
from oscar.errors import ConfigError

MIB = 1 << 20


def watch(local_sgd: Any) -> None:
    """Have each DiLoCo and LocalSGD of torchft's module tell a ProcessGroupOscar what it will reduce.

    A group sees sizes only, so fragments of equal sizes would share their error feedback. On other groups the
    classes do what they did. A second call does nothing.
    """
    for name, before in (("DiLoCo", _tell_of_fragments), ("LocalSGD", _tell_of_parameters)):
        kind = getattr(local_sgd, name)
        if not hasattr(kind.__init__, "of_oscar"):
            kind.__init__ = _told(kind.__init__, before)


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
