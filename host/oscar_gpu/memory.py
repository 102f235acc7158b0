"""Tensors of a bucket on a device: laid one after the other, cut into pieces, in a plan's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from oscar.numerics.plans import ChunkPlan
from oscar.numerics.tensors import offsets_of
from oscar_gpu import quantiser_kernels as kernels
from oscar_gpu.quantiser_kernels import OPTIONS, SIZE


@dataclass(frozen=True)
class Layout:
    """Where tensors lie: device, sizes, offsets [tensors + 1], and pieces, see `kernels`."""

    device: torch.device
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    pieces: torch.Tensor

    @classmethod
    def of(cls, sizes: Sequence[int], device: torch.device) -> Layout:
        """Return the layout of tensors of these sizes."""
        offsets = offsets_of(sizes)
        edges = np.unique(np.concatenate([offsets, np.arange(0, offsets[-1], SIZE)]))
        tensors = np.searchsorted(offsets, edges[:-1], side="right") - 1
        pieces = np.stack([tensors, edges[:-1], edges[1:]], axis=1).astype(np.int32)
        return cls(device, tuple(sizes), tuple(offsets.tolist()), torch.from_numpy(pieces).to(device))

    @property
    def values(self) -> int:
        """Values of all tensors."""
        return self.offsets[-1]

    def put(self, numbers: Any) -> torch.Tensor:
        """Return integers as int32 on the device; nobody waits for the copy."""
        held = torch.from_numpy(np.array(numbers, np.int32))
        return held if self.device.type == "cpu" else held.pin_memory().to(self.device, non_blocking=True)

    def room(self, dtype: torch.dtype, count: int | None = None) -> torch.Tensor:
        """Return new memory for a value of each."""
        return torch.empty(self.values if count is None else count, dtype=dtype, device=self.device)


@dataclass(frozen=True)
class Places:
    """Where the blocks of a plan lie: `at`, int32 on the device; if not `ordered`, in place."""

    plan: ChunkPlan
    at: torch.Tensor
    granule: int
    ordered: bool

    @classmethod
    def of(cls, plan: ChunkPlan, device: torch.device) -> Places:
        """Return the places of a plan."""
        if plan.order is None:  # nothing is read of it, nor copied for each new plan
            return cls(plan, torch.empty(1, dtype=torch.int32, device=device), granule=1, ordered=False)
        at, granule = plan.places
        return cls(plan, torch.from_numpy(at.astype(np.int32)).to(device), granule, ordered=True)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return `values` in the order of the plan."""
        if not self.ordered or not values.numel():
            return values
        out, n = torch.empty_like(values), values.numel()
        kernels.spread[(triton.cdiv(n, SIZE),)](values, n, self.at, self.granule, out, SIZE=SIZE, **OPTIONS)
        return out


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return flat tensors as one; without a copy where they lie in one memory, one after the other."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.numel() and tensor.data_ptr() != end:
            return torch.cat(list(tensors))
        end = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    count = sum(tensor.numel() for tensor in tensors)
    room = first.untyped_storage().nbytes() // first.element_size() - first.storage_offset()
    if room < count:  # neighbours by chance
        return torch.cat(list(tensors))
    return first.as_strided((count,), (1,))


def host(tensor: Any) -> Any:
    """Return a copy of a tensor, or of None, as an array."""
    return None if tensor is None else tensor.detach().cpu().numpy().copy()
