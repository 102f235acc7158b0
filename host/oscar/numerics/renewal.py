"""New steps within a call, where the gradients grew or fell so much that the present steps do not fit them.

Each worker gives notice of its own misfits, beside its first integers. When all notices are known, all ranks
take the same branch: they agree on new steps for the tensors concerned, whose integers are summed again.
docs/reference/protocol.md, "New steps within a call", has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.numerics.integers import least_exponent
from oscar.numerics.plans import ChunkPlan, in_order
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import WorkerQuantiser
from oscar.numerics.saturation import WARN_SHARE, bounded_by, power_of
from oscar.numerics.steps import JUMP, StepTracker, headroom
from oscar.numerics.summaries import summarise

COARSE, SATURATED = 1, 2  # the bits of a notice
FALL = 9  # a step is too coarse if its tensor has less than 1 / FALL of the expected energy
FAR_FALL = 1 << 12  # replaces it for few values, and with a step per value: their energy varies more
FEW = 6  # values
CONFIRMED = 4, 9  # the share of the expected energy below which sums confirm a fall
LEAST_FALL, LEAST_FAR_FALL = 2, 6  # octaves by which a fallen tensor's exponent changes at least
# New steps that the residual of a fallen tensor may have: what rounding leaves.
RESIDUAL_STEPS = np.float32(0.5)
NOT_SATURATED = -(1 << 15)
NO_PLACES = np.zeros(0, np.int64)
# A tensor's record in the message: mantissa and exponent of its size, and the exponent that holds its peak.
_RECORD = np.dtype([("mantissa", "<u4"), ("exponent", "<i2"), ("peak", "<i2")])


def notice_of(worker: WorkerQuantiser, tensors: Sequence[Any], integers: Any, steps: StepTracker) -> int:
    """Return the notice of one worker, after its `quantise`: SATURATED, COARSE, both, or 0.

    tensors, integers: what `quantise` took and returned. Sets `worker.grown`, which `records_of` reads.
    """
    worker.grown = _grown(worker, tensors, steps)
    notice = SATURATED if worker.grown else 0
    return notice | (COARSE if _is_coarse(worker, tensors, integers, steps) else 0)


def _grown(worker: WorkerQuantiser, tensors: Sequence[Any], steps: StepTracker) -> list[int]:
    """Return the tensors that grew, and lost more by that than error feedback should return."""
    grown: list[int] = []
    if not worker.lost:
        return grown
    energies = worker.gradient_energies(tensors)
    for t, lost in worker.lost.items():
        expected = _expected(steps, t)
        if expected is not None:
            unit = math.ldexp(1.0, 2 * (steps.exponents[t] or 0))
            if energies[t] <= JUMP * expected * unit:
                continue  # its largest values saturate in every call
        (corrected,) = worker.corrected(tensors, [t])
        if lost > WARN_SHARE * worker.energies_of([corrected], [0.0])[0]:
            grown.append(t)
    return grown


def _is_coarse(worker: WorkerQuantiser, tensors: Sequence[Any], integers: Any, steps: StepTracker) -> bool:
    """Return True if some tensor that is not zero has much smaller integers than its step should give."""
    stepped = _with_steps(steps)
    if steps.params.scale == "max":
        largest = max(int(integers.max()), -int(integers.min())) if stepped else 0
        return largest < _small_peak(steps) and any(not worker.is_idle(tensors[t]) for t in stepped)
    for t in stepped:
        least = worker.energies[t] * (FAR_FALL if _varies(steps, t) else FALL)
        if _is_less(least, 1, steps, t) and not worker.is_idle(tensors[t]):
            return True
    return False


def _is_less(energy: int, workers: int, steps: StepTracker, t: int) -> bool:
    """Return True if `energy` is less than the integers of `workers` workers should have; not for "max"."""
    if steps.params.step == "tensor":  # in integers: fractions take microseconds, in every call
        return energy << 32 < workers * steps.variances[t] * steps.sizes[t]
    return energy < workers * (_expected(steps, t) or 0)


def _expected(steps: StepTracker, t: int) -> Fraction | None:
    """Return the energy, in steps, that one worker's integers of a tensor should have; None for "max"."""
    if steps.params.scale == "max":
        return None
    if steps.params.step == "value":
        return steps.sizes[t] / Fraction(steps.coarseness) ** 2
    return Fraction(steps.variances[t] * steps.sizes[t], 1 << 32)


def _varies(steps: StepTracker, t: int) -> bool:
    """Return True if a tensor's energy varies so much in ordinary calls that only a far fall counts."""
    return steps.params.step == "value" or steps.sizes[t] < FEW


def _small_peak(steps: StepTracker) -> float:
    """Return the largest magnitude, in steps, that is too small for "max"."""
    return steps.params.limit / (6 * headroom(steps.nodes))


def confirmed(steps: StepTracker, energies: Sequence[int]) -> list[int]:
    """Return the tensors whose sums confirm that their steps are too coarse; not for "max".

    energies: the sum of squares of each tensor's sums.
    """
    share, of = CONFIRMED
    times = of * (FALL if steps.params.step == "value" else 1)
    return [t for t in _with_steps(steps) if _is_less(times * energies[t], share * steps.nodes, steps, t)]


def confirmed_by_peak(steps: StepTracker, peak: int) -> list[int]:
    """Return what `confirmed` does, for "max". peak: the largest magnitude of all sums."""
    return _with_steps(steps) if peak < steps.nodes * _small_peak(steps) else []


def records_of(
    worker: WorkerQuantiser, tensors: Sequence[Any], steps: StepTracker, shifts: Array | None
) -> bytes:
    """Return one worker's part of the message `steps again`; `notice_of` comes before it."""
    stepped = _with_steps(steps)
    records = np.zeros(len(stepped), _RECORD)
    if steps.params.scale == "sigma":
        energies = np.array(worker.gradient_energies(tensors), np.float64)[stepped]
        mantissas, exponents = np.frexp(energies / np.array(steps.sizes)[stepped])
        # As `summary_of` has it, for all tensors at once: a training may have hundreds.
        records["mantissa"], records["exponent"] = np.ldexp(mantissas, 24), exponents - 24
    else:
        sizes = summarise([worker.fetched(tensors[t]) for t in stepped], steps.params)
        records["mantissa"], records["exponent"] = zip(*sizes, strict=True) if sizes else ((), ())
    records["peak"] = NOT_SATURATED
    for t in worker.grown:
        (corrected,) = worker.corrected(tensors, [t])
        inverse = 0 if shifts is None else -shifts[worker.slice_of(t, tensors)].astype(np.int32)
        magnitudes = np.ldexp(np.abs(worker.fetched(corrected)).astype(np.float64), inverse)
        peak = least_exponent(Fraction(float(magnitudes.max())) / steps.params.limit)
        records["peak"][stepped.index(t)] = peak
    return records.tobytes()


def _with_steps(steps: StepTracker) -> list[int]:
    """Return the tensors that have values and a step."""
    return [t for t, e in enumerate(steps.exponents) if e is not None and steps.sizes[t]]


def renew(steps: StepTracker, packed: Sequence[bytes], fallen: Collection[int]) -> dict[int, int]:
    """Set new steps from all workers' records; return by how much the exponents changed, by tensor.

    packed: what `records_of` returned, by rank. fallen: what `confirmed` returned. Changes `steps` alone, and
    alike on all ranks.
    """
    stepped, records = _with_steps(steps), np.stack([np.frombuffer(part, _RECORD) for part in packed])
    saturated = records["peak"] != NOT_SATURATED  # [rank, tensor with a step]
    changed: dict[int, int] = {}
    if steps.params.scale == "max":
        peaks = records["peak"][saturated].tolist()
        sizes = [Fraction(m) * Fraction(2) ** e for m, e, _ in records.ravel().tolist()]
        largest = max(sizes, default=Fraction(0))
        if not peaks and (not fallen or not largest):
            return {}
        wanted = max(peaks) if peaks else least_exponent(largest / steps.params.limit)
        for t in stepped:
            _change(steps, t, wanted, None, changed)
        return changed
    for slot in np.flatnonzero(saturated.any(axis=0) | np.isin(stepped, list(fallen))).tolist():
        t, peaks = stepped[slot], records["peak"][saturated[:, slot], slot].tolist()
        mean = _mean([(m, e) for m, e, _ in records[:, slot].tolist()])
        if mean == 0:
            continue
        wanted = max([steps.fitting(mean), *peaks])
        least = LEAST_FAR_FALL if _varies(steps, t) else LEAST_FALL
        if peaks or wanted <= (steps.exponents[t] or 0) - least:
            _change(steps, t, wanted, mean, changed)
    return changed


def _mean(sizes: Sequence[tuple[int, int]]) -> Fraction:
    """Return the mean of numbers that are given as mantissas and exponents."""
    low = min(exponent for _, exponent in sizes)
    total = sum(mantissa << exponent - low for mantissa, exponent in sizes)
    return Fraction(total << max(0, low), len(sizes) << max(0, -low))


def _change(
    steps: StepTracker, t: int, wanted: int, mean_square: Fraction | None, changed: dict[int, int]
) -> None:
    before, exponent = steps.exponents[t] or 0, steps.clamp(wanted)
    if exponent != before:
        changed[t] = exponent - before
        steps.begin_anew(t, exponent, mean_square)


def requantise(
    worker: WorkerQuantiser,
    tensors: Sequence[Any],
    steps: StepTracker,
    changed: dict[int, int],
    shifts: Array | None,
) -> Array:
    """Quantise the tensors in `changed` once more, by the new steps; return their integers, flat, int32.

    Energies, losses and the pending residual of these tensors follow. shifts: what `quantise` took.
    """
    places = {t: worker.slice_of(t, tensors) for t in changed}
    part = WorkerQuantiser(worker.params, worker.rank)  # of the changed tensors alone
    part.iteration, dropped = worker.iteration, {}
    if worker.residual is not None:
        residuals = []
        for t, here in places.items():
            residual = worker.fetched(worker.residual[here])
            if changed[t] < 0 and not worker.is_idle(tensors[t]):
                # Rounding to the earlier, much larger steps left it.
                power = power_of(steps.exponents[t], here, shifts)
                dropped[t], residual = bounded_by(RESIDUAL_STEPS, power, residual)
            residuals.append(residual)
        part.residual = np.concatenate(residuals)

    integers = part.quantise(
        [worker.fetched(tensors[t]) for t in changed],
        [steps.exponents[t] for t in changed],
        steps.params.sum_dtype(steps.nodes),  # for which kernels are compiled
        shifts=None if shifts is None else np.concatenate([shifts[here] for here in places.values()]),
    )

    first = 0
    for slot, (t, here) in enumerate(places.items()):
        worker.clipped[t], worker.energies[t] = part.clipped[slot], part.energies[slot]
        worker.lost.pop(t, None)
        if slot in part.lost:
            worker.lost[t] = part.lost[slot]
        if slot in part.cut_off:
            dropped[t] = dropped.get(t, 0.0) + part.cut_off[slot]
        end = first + here.stop - here.start
        if part.pending is not None:
            worker.store(here, part.pending[first:end])
        first = end
    worker.sum_up(tensors, steps.exponents, shifts, dropped)
    return integers.astype(np.int32)


def follow(position: Any, steps: StepTracker, changed: dict[int, int]) -> None:
    """Rescale a PositionState for new steps. Any other state of positions stays as it is."""
    if isinstance(position, PositionState):
        position.renew(steps.offsets, [changed.get(t, 0) for t in range(len(steps.sizes))])


def places_of(steps: StepTracker, plan: ChunkPlan, changed: Collection[int]) -> Array:
    """Return where the values of the changed tensors lie in the order of `plan`: int64, in their order."""
    natural = np.concatenate([NO_PLACES, *(np.arange(*steps.offsets[t : t + 2]) for t in changed)])
    places, granule = plan.places
    return places[natural // granule] + natural % granule


def summed(
    workers: Sequence[WorkerQuantiser],
    gradients: Sequence[Sequence[Array]],
    steps: StepTracker,
    position: PositionState | None = None,
) -> tuple[list[Array], Array]:
    """Do what a call does between `StepTracker.agree` and `settle`, for workers of one process.

    Args:
        workers: All ranks' quantisers.
        gradients: Flat float32 arrays, [rank][tensor].
        steps: The replicated steps; tensors without one are zeros.
        position: The replicated position state, which follows new steps.

    Returns:
        The integers that each worker would send first, and the sums, which follow from new steps where the
        call takes some; both flat, in the natural order.
    """
    first = [
        worker.quantise(tensors, steps.exponents) for worker, tensors in zip(workers, gradients, strict=True)
    ]
    sums: Array = np.add.reduce(first, dtype=np.int32)
    pairs = list(zip(workers, gradients, strict=True))
    notices = [notice_of(*pair, mine, steps) for pair, mine in zip(pairs, first, strict=True)]
    fallen: list[int] = []
    if any(notice & COARSE for notice in notices):
        by_peak = steps.params.scale == "max"
        fallen = (
            confirmed_by_peak(steps, steps.peak(sums)) if by_peak else confirmed(steps, steps.energies(sums))
        )
    if fallen or any(notice & SATURATED for notice in notices):
        changed = renew(steps, [records_of(*pair, steps, None) for pair in pairs], fallen)
        if changed:
            again = [requantise(*pair, steps, changed, None) for pair in pairs]
            follow(position, steps, changed)
            replaced = places_of(steps, in_order(sums.size), changed)
            sums[replaced] = np.add.reduce(again, dtype=np.int32)
    return first, sums
