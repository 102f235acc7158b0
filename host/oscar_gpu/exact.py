"""The exact scheme with tensors on a GPU: only frames cross. Its state is that of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from oscar.coding.asc.params import AscParams
from oscar.numerics import renewal
from oscar.numerics.plans import USES_COSTS, ChunkPlan
from oscar.numerics.steps import Settled
from oscar.schemes.exact import Exact, ExactOptions
from oscar_gpu.link import device_codec
from oscar_gpu.memory import Layout, Places
from oscar_gpu.quantiser import DevicePosition, DeviceQuantiser, DeviceSteps


@dataclass(frozen=True)
class GpuOptions(ExactOptions):
    """Options of the coded ring on a device.

    Attributes:
        asc: The coder's parameters.
        device: Where tensors are. The codec takes tensors there.
    """

    asc: AscParams = field(kw_only=True)
    device: torch.device = field(kw_only=True)

    @classmethod
    def of(cls, options: ExactOptions, asc: AscParams, device: torch.device) -> GpuOptions:
        """Return the same options for a device."""
        return cls(**{**vars(options), "codec": device_codec(asc, device)}, asc=asc, device=device)


class GpuExact(Exact):
    """Sums gradients that are on a GPU; see Exact. The mean and the sums are tensors there."""

    Options: ClassVar[type[Any]] = GpuOptions

    def _place(self) -> None:
        o = self.options
        self._layout = Layout.of(self.sizes, o.device)
        self._places: Places | None = None
        granule = o.granule if o.plan in USES_COSTS else None
        self.steps = DeviceSteps(self.params, self._layout, self.nodes, granule)
        if self.codec.uses_context:
            self.position = DevicePosition(self._layout)

    def make_worker(self, rank: int) -> DeviceQuantiser:
        return DeviceQuantiser(self.params, rank, self._layout)

    def _summaries(self, worker: Any, tensors: Sequence[Any]) -> list[tuple[int, int]]:
        summaries: list[tuple[int, int]] = worker.summaries(tensors, self.steps.unset)
        return summaries

    def _quantise(self, worker: Any, tensors: Sequence[Any], plan: ChunkPlan) -> Any:
        return worker.quantise(tensors, self.steps.exponents, plan=self._there(plan))

    def _classes(self, plan: ChunkPlan) -> Any:
        return None if self.position is None else self._there(plan).spread(self.position.classes)  # type: ignore[arg-type]

    def _meanwhile(self, plan: ChunkPlan) -> None:
        """Return None: the device makes all passes over sums in one launch."""

    def _energies(self, sums: Any, plan: ChunkPlan) -> list[int]:
        """Return the sum of squares of each tensor's sums; the sums stay on the device."""
        steps: Any = self.steps
        energies: list[int] = steps.energies_of(sums, self._there(plan))
        return energies

    def _settle(self, sums: Any) -> Settled:
        assert self.plan is not None
        steps: Any = self.steps
        settled: Settled = steps.settle(sums, self._there(self.plan), self.position)
        if steps.costs is not None:
            self._observe_costs(steps.costs)
        return settled

    def _replace(self, sums: Any, plan: ChunkPlan, changed: dict[int, int], again: Any) -> dict[int, int]:
        """Do what `Exact._replace` does; the passes over sums are still to come."""
        self._put(sums, plan, changed, again)
        renewal.follow(self.position, self.steps, changed)
        return changed

    def _put(self, sums: Any, plan: ChunkPlan, changed: dict[int, int], again: Any) -> None:
        there = torch.from_numpy(renewal.places_of(self.steps, plan, changed)).to(sums.device)
        sums[there] = torch.from_numpy(again.astype(np.int16)).to(sums.device)

    def _there(self, plan: ChunkPlan) -> Places:
        """Return the places of `plan` on the device."""
        if self._places is None or self._places.plan is not plan:
            self._places = Places.of(plan, self.options.device)
        return self._places
