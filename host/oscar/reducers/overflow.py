"""A mean that is no float32 any more: told on all ranks alike, with the ranks whose values are the largest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from oscar.array import Array, split
from oscar.errors import GradientOverflowError
from oscar.numerics.quantiser_kernels import all_finite
from oscar.reducers.wire import Wire
from oscar.schemes.base import Message, Scheme

NAMED = 4  # ranks, at most
ADVICE = "; skip this iteration, or lower the loss scale or the learning rate"


def check_mean(scheme: Scheme, wire: Wire, mean: Array, tensors: Sequence[Sequence[Array]]) -> None:
    """Raise GradientOverflowError unless the mean, and all floats that the scheme keeps, are finite.

    mean: flat float32, after `Scheme.finish`; tensors: flat, of the wire's ranks, as they came. The mean and
    the scheme's state are the same on all ranks, so all decide alike: only then they tell each other, in one
    more collective, how large their values are.
    """
    if all_finite(mean) and all(map(all_finite, _floats(scheme.snapshot()))):
        return
    parts = split(mean, scheme.shapes)
    bad = [np.flatnonzero(~np.isfinite(part)) for part in parts]
    tensor = next((t for t, places in enumerate(bad) if places.size), -1)
    largest = _largest(wire, [own if tensor < 0 else own[tensor : tensor + 1] for own in tensors])
    if tensor < 0:
        what = f"what the scheme {scheme.name} keeps of the mean of {scheme.nodes} ranks is beyond float32"
    else:
        what = (
            f"the mean of {scheme.nodes} ranks is beyond float32 in {bad[tensor].size} of "
            f"{parts[tensor].size} values, the first at flat index {bad[tensor][0]}"
        )
    what += f"; the largest values that came are {largest}; all state is as before the call"
    raise GradientOverflowError(what, tensor=tensor, advice=ADVICE)


def _largest(wire: Wire, tensors: Sequence[Sequence[Array]]) -> str:
    """Return the ranks of the largest magnitudes, and these, in words; collective."""
    mine = [np.float32(max((np.abs(part).max(initial=0) for part in own), default=0)) for own in tensors]
    messages = [Message("largest values", np.frombuffer(one.tobytes(), np.uint8), "agree") for one in mine]
    every = np.concatenate(wire.combine(messages)[0]).view(np.float32)
    order = np.argsort(-every, kind="stable")[:NAMED]
    more = " and others" if every.size > NAMED else ""
    return ", ".join(f"{every[rank]:.3g} of rank {rank}" for rank in order) + more


def _floats(held: Any) -> Iterator[Array]:
    """Yield the arrays of floats in a snapshot, flat."""
    if isinstance(held, np.ndarray):
        if held.dtype == np.float32:
            yield held.reshape(-1)
    elif isinstance(held, (dict, list)):
        for each in held.values() if isinstance(held, dict) else held:
            yield from _floats(each)
