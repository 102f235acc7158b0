"""Whether a call's tensors can stay on a GPU, and how they are taken there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from oscar.collective.schedule import Schedule
from oscar.config import Config
from oscar.errors import needed
from oscar.numerics.plans import USES_COSTS
from oscar.transports.gloo import load_torch

MOST_VALUES = 1 << 28  # whose squares add up within int64
TILE = (
    1024  # values of a kernel's tile (oscar_gpu.quantiser_kernels), which whole blocks of a plan have to fill
)


def why_on_host(config: Config, schedule: Schedule, nodes: int, values: int) -> str | None:
    """Return why a GPU's tensors have to be coded on the host; None: they are coded where they are."""
    quantiser, plan = config.quantiser_params(nodes), config.plan
    interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")  # needs no compiler
    compiles = interpreted or os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    reasons = {
        f"the method is {config.method}": config.method != "asc",
        f"nic is {config.nic}": config.nic != "compiled",
        f"quantiser.rounding is {quantiser.rounding}": quantiser.rounding != "nearest",
        f"quantiser.step is {quantiser.step}": quantiser.step != "tensor",
        f"sums of {nodes} ranks need {quantiser.sum_width(nodes)} bits": quantiser.sum_width(nodes) > 16,
        f"the schedule {schedule.name} keeps sums apart": schedule.apart,
        f"plan.granule is {plan.granule}": plan.name in USES_COSTS and TILE % plan.granule > 0,
        f"{values:,} values are too many or none": not 0 < values <= MOST_VALUES,
        "triton is not installed": find_spec("triton") is None,
        "triton finds no C compiler (install gcc, or set CC)": not compiles,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def kernels() -> Any:
    """Return oscar_gpu, which no other function imports; raises MissingExtraError without torch or Triton."""
    return needed("oscar_gpu", "coding gradients on a GPU", "gpu")


def there(device: Any) -> AbstractContextManager[Any]:
    """Return a context in which kernels start on a GPU; nothing for None or the CPU."""
    if device is None or device.type != "cuda":
        return nullcontext()
    context: AbstractContextManager[Any] = load_torch()[0].cuda.device(device)
    return context


def place_of(tensors: Sequence[Any], device: Any) -> Any:
    """Return the device with its index; raises TypeError unless all are float tensors there."""
    torch = load_torch()[0]
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"tensor {index}: expected a torch.Tensor on {place}, got {type(tensor)}")
        if not tensor.dtype.is_floating_point or tensor.device != place:
            got = f"{tensor.dtype} on {tensor.device}"
            raise TypeError(f"tensor {index}: expected floats on {place}, got {got}")
    return place


def flat_on(tensors: Sequence[Any]) -> list[Any]:
    """Return float tensors as flat float32, each in one piece of memory."""
    return [tensor.detach().reshape(-1).float().contiguous() for tensor in tensors]
