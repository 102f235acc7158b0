"""The tensors of a bucket, and the model that they are of: both stay the same, on all ranks."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oscar.errors import ConfigError, GradientError
from oscar.reducers.communicator import Communicator
from oscar.state import crc

CAP = 1 << 16  # bytes in which a rank describes a bucket
Shapes = list[tuple[int, ...]]
LOG = logging.getLogger("oscar.ddp")


@dataclass(frozen=True)
class BucketLayout:
    """The parameters of a bucket.

    parameters: identities in this process, None after a load. sparse: the number of dimensions that a sparse
    gradient's indices have; 0 for a dense gradient; None after a load.
    """

    shapes: Shapes
    parameters: tuple[int, ...] | None
    sparse: int | None = None

    @classmethod
    def of(cls, bucket: Any) -> BucketLayout:
        """Return that of a bucket of DDP's, which has one sparse gradient or any number of dense ones."""
        buffer, parameters = bucket.buffer(), tuple(id(parameter) for parameter in bucket.parameters())
        if buffer.is_sparse:
            return cls([tuple(buffer.shape)], parameters, buffer.sparse_dim())
        return cls([tuple(gradient.shape) for gradient in bucket.gradients()], parameters, 0)

    def fits(self, other: BucketLayout) -> bool:
        """Whether state of this bucket is good for the other one."""
        pairs = (self.parameters, other.parameters), (self.sparse, other.sparse)
        alike = all(one is None or two is None or one == two for one, two in pairs)
        return self.shapes == other.shapes and alike

    def meet(self, communicator: Communicator, index: int, entries: int = 0) -> list[int]:
        """Return the entries of every rank's sparse gradient; collective.

        Raises GradientError on all ranks where bucket `index` is another one there.
        """
        mine = json.dumps([self.sparse, entries, self.shapes]).encode()
        if len(mine) > CAP:
            mine = json.dumps([self.sparse, entries, crc(self.shapes)]).encode()
        every = [json.loads(one) for one in communicator.gather(mine, CAP)]
        for rank, (sparse, _, shapes) in enumerate(every):
            if (sparse, shapes) != (every[0][0], every[0][2]):
                text = f"rank {rank}: {_difference(index, every[rank], every[0])}"
                advice = "a parameter's gradient is sparse on all ranks or on none"
                error = GradientError(f"{text}: all ranks must run one model, in which {advice}")
                raise communicator.party.shared(error)
        return [entries for _, entries, _ in every]


def _difference(index: int, theirs: list[Any], ours: list[Any]) -> str:
    """Return the first tensor of a bucket that differs from rank 0's, in words."""
    one, two = (layout[2] if isinstance(layout[2], list) else [] for layout in (theirs, ours))
    pairs = [(one[t : t + 1], two[t : t + 1]) for t in range(max(len(one), len(two)))]
    tensor = next((t for t, (mine, first) in enumerate(pairs) if mine != first), 0)
    came, expected = (
        f"a {'sparse' if layout[0] else 'dense'} gradient of shape {tuple(shapes[tensor])}"
        if tensor < len(shapes)
        else "none"
        for layout, shapes in ((theirs, one), (ours, two))
    )
    return f"tensor {tensor} of bucket {index} is {came}, on rank 0 it is {expected}"


def noted(layouts: dict[int, BucketLayout], layout: BucketLayout, index: int) -> bool:
    """Note a bucket's tensors; return whether all state has to go because buckets were made anew."""
    known = layouts.get(index)
    changed = known is not None and not known.fits(layout)
    if changed:
        loaded = known is not None and known.parameters is None
        level, when = (logging.WARNING, "the state that was loaded") if loaded else (logging.DEBUG, "before")
        LOG.log(level, "bucket %d has other tensors than %s; compression starts anew", index, when)
        layouts.clear()
    layouts[index] = layout
    return changed


class ModelGradients:
    """The parameters of the first model whose buckets came, known until they are gone.

    DDP may make its buckets anew, of the same parameters, and a model may be wrapped again. Buckets of none
    of its parameters are another model's.
    """

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}
        self._complete = False  # whether a whole backward of it has been seen
        self._next = 0  # the index of the bucket that comes next, as long as it is not complete

    def check(self, index: int, parameters: Iterable[Any], *, last: bool) -> None:
        """Take in a bucket; raises ConfigError, and changes nothing, where it is another model's."""
        given = list(parameters)
        known = {at: there for at, there in self._known.items() if there() is not None}
        if not known:  # it is gone, or there was none
            self._complete, self._next = False, index
        first = not self._complete and index == self._next  # its other buckets have not been seen yet
        if not first and given and not any(id(parameter) in known for parameter in given):
            raise ConfigError(
                "this OscarState is registered with another model, whose error feedback would be lost at "
                "every change of model: make one OscarState for each model"
            )
        self._known = known | {id(parameter): weakref.ref(parameter) for parameter in given}
        self._complete |= last
        self._next = index + 1
