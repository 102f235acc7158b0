"""The tensors of a bucket, which stay the same, on all ranks."""

from __future__ import annotations

import json
import logging
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from oscar.errors import GradientError
from oscar.reducers.communicator import Communicator
from oscar.state import crc

CAP = 1 << 16  # bytes in which a rank describes a bucket
Shapes = list[tuple[int, ...]]
LOG = logging.getLogger("oscar.ddp")


@dataclass(frozen=True, eq=False)
class BucketLayout:
    """The parameters of a bucket.

    Attributes:
        shapes: Shapes of the gradients.
        parameters: None after a load. They are compared as objects: another one may get the place in memory,
            and so the identity, of one that is gone.
        sparse: The number of dimensions that a sparse gradient's indices have. 0 for a dense gradient. None
            after a load.
        names: Names of the parameters in their model. None if they are unknown.
        coded: False if no method codes a bucket of this dtype or layout, or on this device.
    """

    shapes: Shapes
    parameters: tuple[weakref.ref[Any], ...] | None
    sparse: int | None = None
    names: Sequence[str] | None = None
    coded: bool = True

    @classmethod
    def of(cls, bucket: Any, names: Sequence[str] | None = None, *, coded: bool = True) -> BucketLayout:
        """Return the layout of a bucket of DDP, which has one sparse gradient or any number of dense ones."""
        buffer, parameters = bucket.buffer(), tuple(weakref.ref(each) for each in bucket.parameters())
        if buffer.is_sparse:
            return cls([tuple(buffer.shape)], parameters, buffer.sparse_dim(), names, coded)
        shapes = [tuple(gradient.shape) for gradient in bucket.gradients()]
        return cls(shapes, parameters, 0, names, coded)

    @property
    def identities(self) -> tuple[int, ...]:
        """Identities of the parameters; empty after a load."""
        return tuple(id(parameter()) for parameter in self.parameters or ())

    @property
    def values(self) -> int:
        """Values of all parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    def fits(self, other: BucketLayout) -> bool:
        """Return True if the other bucket can use the state of this one."""
        if self.shapes != other.shapes or self.coded != other.coded:
            return False
        pairs = (self.names, other.names), (self.sparse, other.sparse)
        if not all(one is None or two is None or one == two for one, two in pairs):
            return False
        if self.parameters is None or other.parameters is None:
            return True
        couples = zip_longest(self.parameters, other.parameters)
        return all(one and two and one() is not None and one() is two() for one, two in couples)

    def meet(
        self, communicator: Communicator, index: int, entries: int = 0, *, timed: bool = True
    ) -> tuple[list[int], bool]:
        """Return the entries of every rank's sparse gradient, and True if all ranks can be timed; collective.

        timed: True if this rank can time the bucket. Raises GradientError on all ranks where bucket `index`
        is another one there.
        """
        head = [self.sparse, entries]
        mine = json.dumps([*head, self.shapes, timed, self.coded]).encode()
        if len(mine) > CAP:
            mine = json.dumps([*head, crc(self.shapes), timed, self.coded]).encode()
        all_ranks = [json.loads(one) for one in communicator.gather(mine, CAP)]
        advice = "a parameter's gradient is sparse on all ranks or on none"
        for rank, (sparse, _, shapes, _, coded) in enumerate(all_ranks):
            if (sparse, shapes) != (all_ranks[0][0], all_ranks[0][2]):
                text = f"rank {rank}: {_difference(index, all_ranks[rank], all_ranks[0])}"
            elif coded != all_ranks[0][4]:
                text = f"bucket {index} can be coded on one of the ranks 0 and {rank} only"
                advice = "ranks with a GPU and ranks without one share dense gradients only"
            else:
                continue
            error = GradientError(f"{text}: all ranks must run one model, in which {advice}")
            raise communicator.party.shared(error)
        return [entries for _, entries, *_ in all_ranks], all(timed for *_, timed, _ in all_ranks)


def _difference(index: int, theirs: list[Any], ours: list[Any]) -> str:
    """Return the first tensor of a bucket that differs from rank 0's, in words."""
    one, two = (layout[2] if isinstance(layout[2], list) else [] for layout in (theirs, ours))
    pairs = [(one[t : t + 1], two[t : t + 1]) for t in range(max(len(one), len(two)))]
    tensor = next((t for t, (mine, first) in enumerate(pairs) if mine != first), 0)
    given, expected = (
        f"a {'sparse' if layout[0] else 'dense'} gradient of shape {tuple(shapes[tensor])}"
        if tensor < len(shapes)
        else "none"
        for layout, shapes in ((theirs, one), (ours, two))
    )
    return f"tensor {tensor} of bucket {index} is {given}, on rank 0 it is {expected}"


def noted(layouts: dict[int, BucketLayout], layout: BucketLayout, index: int) -> bool:
    """Note a bucket's tensors. Return True if all state has to go because buckets were made anew."""
    known = layouts.get(index)
    changed = known is not None and not known.fits(layout)
    if changed:
        loaded = known is not None and known.parameters is None
        level, when = (logging.WARNING, "the state that was loaded") if loaded else (logging.DEBUG, "before")
        LOG.log(level, "bucket %d has other tensors than %s; compression starts anew", index, when)
        layouts.clear()
    layouts[index] = layout
    return changed
