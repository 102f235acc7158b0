"""Quantiser, steps and position state whose values are on a GPU: the classes of the host with other passes.

Their saved states are those of the host: a run may go on at the other place. Arrays are tensors here, and
never written to once they are part of a state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from oscar.numerics.plans import ChunkPlan
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.quantiser_kernels import NORMAL_EXPONENTS
from oscar.numerics.steps import MAX_ALIGN, Settled, StepTracker
from oscar.numerics.summaries import summary_of
from oscar.numerics.tensors import check_finite
from oscar_gpu import crc
from oscar_gpu import quantiser_kernels as kernels
from oscar_gpu.memory import Layout, Places, host, joined
from oscar_gpu.quantiser_kernels import OPTIONS, SIZE, UNSET

FLOAT32_MAX = torch.finfo(torch.float32).max


def energies_beyond(tensors: Sequence[Any], edges: Sequence[float], residual: Any = None) -> list[float]:
    """Return what quantiser_kernels.energies_beyond does."""
    out, at = [], 0
    for tensor, edge in zip(tensors, edges, strict=True):
        left = None if residual is None else residual[at : at + tensor.numel()]
        at += tensor.numel()
        if edge == math.inf:
            out.append(0.0)
            continue
        value = tensor if left is None else (tensor + left).clamp(-FLOAT32_MAX, FLOAT32_MAX)
        out.append(float((value.double().abs() - edge).clamp(min=0).square().sum()))
    return out


class DeviceQuantiser(WorkerQuantiser):
    """The quantiser of one worker, whose tensors are flat float32 on the layout's device."""

    energies_of = staticmethod(energies_beyond)

    def __init__(self, params: QuantiserParams, rank: int, layout: Layout) -> None:
        super().__init__(params, rank, layout.values)
        self._layout = layout
        self.residual: Any = None
        self.pending: Any = None

    def summaries(self, tensors: Sequence[Any], unset: Sequence[int]) -> list[tuple[int, int]]:
        """Return steps.summarise of the unset tensors; raises GradientError on NaN and Inf in them."""
        for t in unset:
            if not bool(torch.isfinite(tensors[t]).all()):
                check_finite([host(tensor) for tensor in tensors], self.rank, [t])
        pairs = zip(unset, self.corrected(tensors, unset), strict=True)
        corrected = [tensors[t] if self.is_idle(tensors[t]) else values for t, values in pairs]
        if self.params.scale == "max":
            return [summary_of(float(tensor.abs().max())) for tensor in corrected]
        # Divided as NumPy does it: the device's own mean multiplies by a rounded 1 / n.
        sums = [float(tensor.double().square().sum()) for tensor in corrected]
        return [summary_of(total / max(1, t.numel())) for total, t in zip(sums, corrected, strict=True)]

    def corrected(self, tensors: Sequence[Any], only: Sequence[int] | None = None) -> list[Any]:
        """See WorkerQuantiser.corrected."""
        edges, chosen = self._layout.offsets, range(len(tensors)) if only is None else only
        if self.residual is None:
            return [tensors[t] for t in chosen]
        parts = [(tensors[t], self.residual[edges[t] : edges[t + 1]]) for t in chosen]
        return [(tensor + left).clamp(-FLOAT32_MAX, FLOAT32_MAX) for tensor, left in parts]

    def quantise(
        self,
        tensors: Sequence[Any],
        exponents: Sequence[int | None],
        dtype: Any = np.int16,
        plan: Any = None,
        out: Any = None,
        shifts: Any = None,
    ) -> Any:
        """See WorkerQuantiser.quantise; plan: its Places. Returns int16. dtype, out, shifts are not used."""
        if any(exponent is not None and exponent not in NORMAL_EXPONENTS for exponent in exponents):
            return self._by_the_host(tensors, exponents, plan.plan)
        layout, feedback, had = self._layout, self.params.error_feedback, self.residual is not None
        values, integers = joined(tensors), layout.room(torch.int16)
        keep = layout.room(torch.float32) if feedback else values

        def run(exponents: Sequence[int | None]) -> list[list[int]]:
            tallies = torch.zeros(len(tensors), 4, dtype=torch.int64, device=layout.device)
            steps = layout.put([UNSET if exponent is None else exponent for exponent in exponents])
            kernels.quantise[(len(layout.pieces),)](
                values, self.residual if had else values, layout.pieces, steps, plan.at, plan.granule,
                self.params.limit, integers, keep, tallies,
                ADDS=had, KEEPS=feedback, ORDERED=plan.ordered, SIZE=SIZE, **OPTIONS,
            )  # fmt: skip
            return tallies.T.tolist()

        self.clipped, bad, self.energies, nonzero = run(exponents)
        if any(bad):
            check_finite([host(tensor) for tensor in tensors], self.rank)
        if had and any(energy and not count for energy, count in zip(self.energies, nonzero, strict=True)):
            exponents = [e if count else None for e, count in zip(exponents, nonzero, strict=True)]
            # The residuals of tensors that are all zeros wait.
            self.clipped, _, self.energies, _ = run(exponents)
        self.pending = keep if feedback else None
        self._weigh(tensors, exponents)
        self.sum_up(tensors, exponents, None)
        return integers

    def _by_the_host(self, tensors: Sequence[Any], exponents: Sequence[int | None], plan: ChunkPlan) -> Any:
        """Quantise by steps whose reciprocals are no normal float32, which hardly any gradient has."""
        other = WorkerQuantiser(self.params, self.rank, self.values)
        other.residual, other.iteration = host(self.residual), self.iteration
        integers = other.quantise([host(tensor) for tensor in tensors], exponents, np.int16, plan)
        device = self._layout.device
        self.clipped, self.energies, self.lost = other.clipped, other.energies, other.lost
        self.saturation, self.dropped = other.saturation, other.dropped
        self.pending = None if other.pending is None else torch.from_numpy(other.pending).to(device)
        return torch.from_numpy(integers).to(device)

    def fetched(self, values: Any) -> np.ndarray:
        """See WorkerQuantiser.fetched."""
        return host(values)

    def store(self, here: slice, values: np.ndarray) -> None:
        """See WorkerQuantiser.store."""
        self.pending[here] = torch.from_numpy(values).to(self._layout.device)

    def state_dict(self) -> dict[str, Any]:
        """See Stateful.state_dict."""
        return super().state_dict() | {"residual": host(self.residual)}

    def _follow(self) -> None:
        super()._follow()
        if isinstance(self.residual, np.ndarray):
            self.residual = torch.from_numpy(self.residual).to(self._layout.device)


class DevicePosition(PositionState):
    """The position state; `mean` holds the bits of uint16 as int16."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(0)
        self._layout = layout
        self.mean: Any = torch.zeros(layout.values, dtype=torch.int16, device=layout.device)
        self.classes: Any = torch.zeros(layout.values, dtype=torch.uint8, device=layout.device)
        self._started: Any = None

    def begin(self) -> Any:
        """Return the means, and room for the next ones and their classes."""
        layout = self._layout
        return self.mean, layout.room(torch.int16), layout.room(torch.uint8)

    def take(self, moved: Any, classes: Any, rises: Sequence[int]) -> None:
        """Take over the means and classes that were written since `begin`; rises: as of `rescale`."""
        self.mean, self.classes = moved, classes
        if any(rises):
            self._rescale(rises)
        self._started = crc.start(self.classes)

    def renew(self, offsets: Any, rises: Sequence[int]) -> None:
        """See PositionState.renew."""
        self.mean, self.classes = self.mean.clone(), self.classes.clone()
        self._rescale(rises)
        self._started = crc.start(self.classes)

    def _rescale(self, rises: Sequence[int]) -> None:
        layout = self._layout
        kernels.rescale[(len(layout.pieces),)](
            self.mean, layout.pieces, layout.put(rises), self.classes, SIZE=SIZE, **OPTIONS
        )

    def digest(self) -> int:
        """See PositionState.digest."""
        if self._started is None:
            self._started = crc.start(self.classes)
        return crc.finish(self._started, self._layout.values)

    def state_dict(self) -> dict[str, Any]:
        """See Stateful.state_dict."""
        return {"mean": host(self.mean).view(np.uint16)}

    def _follow(self) -> None:
        layout = self._layout
        if isinstance(self.mean, np.ndarray):
            self.mean = torch.from_numpy(self.mean.view(np.int16)).to(layout.device)
        self.classes = layout.room(torch.uint8)
        self._started = None
        if layout.values:
            self._rescale([0] * len(layout.sizes))


class DeviceSteps(StepTracker):
    """The steps of all tensors.

    Attributes:
        costs: Costs of blocks of `granule` sums, int64 on the host. None without a granule.
    """

    previous: Any

    def __init__(self, params: QuantiserParams, layout: Layout, nodes: int, granule: int | None) -> None:
        super().__init__(params, layout.sizes, nodes)
        self._layout, self._granule = layout, granule
        self.costs: np.ndarray | None = None

    def settle(self, reduced: Any, plan: Any = None, position: Any = None, begun: Any = None) -> Settled:
        """See StepTracker.settle; plan: its Places, position: DevicePosition or None; begun: None."""
        layout, granule = self._layout, self._granule
        sums: Any = torch.empty_like(reduced) if plan.ordered else reduced
        mean: Any = layout.room(torch.float32)
        tensors = [self._compared(t) for t in range(len(layout.sizes))]
        old, moved, classes = (reduced, reduced, reduced) if position is None else position.begin()
        squares = 2 * len(layout.sizes)
        blocks = 0 if granule is None else -(-layout.values // granule)
        facts = torch.zeros(squares + blocks, dtype=torch.int64, device=layout.device)
        before = reduced if self.previous is None else self.previous
        kernels.settle[(len(layout.pieces),)](
            reduced, layout.pieces, layout.put(tensors), plan.at, plan.granule, self.nodes, before, old, sums,
            mean, moved, classes, facts, squares,
            ORDERED=plan.ordered, POSITIONS=position is not None, COSTS=granule is not None,
            BLOCK=granule or SIZE, SIZE=SIZE, **OPTIONS,
        )  # fmt: skip
        known = facts.cpu().numpy()
        self.costs = known[squares:] if granule else None
        pairs = known[:squares].reshape(-1, 2).tolist()
        rises = self._observe(sums, [self._squares(t, pair, sums) for t, pair in enumerate(pairs)])
        if position is not None:
            position.take(moved, classes, rises)
        return Settled(sums, mean)

    def _compared(self, t: int) -> tuple[int, int, int, bool]:
        """Return a tensor's exponent, shifts of its sums and of those before, and whether both compare."""
        exponent, old = self.exponents[t], self.previous_exponents[t]
        if self.previous is None or exponent is None or old is None or abs(old - exponent) > 1:
            return exponent or 0, 0, 0, False
        low = min(old, exponent)
        return exponent, exponent - low, old - low, self.nodes > 1

    def _squares(self, t: int, squares: Sequence[int], sums: Any) -> tuple[int, int | None]:
        """Return the sums of squares that `_observe_tensor` takes, from those of the kernel."""
        energy, change = squares
        exponent, old = self.exponents[t], self.previous_exponents[t]
        _, left, _, compared = self._compared(t)
        if compared or self.nodes == 1:
            return energy, change >> 2 * left
        if self.previous is None or exponent is None or old is None or abs(old - exponent) > MAX_ALIGN:
            return energy, None
        other = StepTracker(self.params, self.sizes, self.nodes)  # steps moved by octaves: a rare call
        other.previous, other.previous_exponents = host(self.previous), self.previous_exponents
        first, end = self._layout.offsets[t : t + 2]
        return energy, other.change(t, host(sums[first:end]), exponent)

    def peak(self, sums: Any) -> int:
        """See StepTracker.peak."""
        return int(sums.int().abs().max())

    def energies_of(self, reduced: Any, places: Places) -> list[int]:
        """Return the sum of squares of each tensor's sums, which are in the order of `places`."""
        layout = self._layout
        if places.ordered:
            natural = torch.arange(layout.values, device=layout.device)
            reduced = reduced[places.at[natural // places.granule].long() + natural % places.granule]
        energies = [part.long().square().sum() for part in reduced.split(layout.sizes)]
        return torch.stack(energies).tolist()  # one copy to the host

    def state_dict(self) -> dict[str, Any]:
        """See Stateful.state_dict."""
        return super().state_dict() | {"previous": host(self.previous)}

    def _follow(self) -> None:
        super()._follow()
        if isinstance(self.previous, np.ndarray):
            self.previous = torch.from_numpy(self.previous).to(self._layout.device)
