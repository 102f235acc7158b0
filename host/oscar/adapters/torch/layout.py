"""The tensors of a bucket, equal on all ranks, and the model they are of: its parameters and DDP's ranks."""

from __future__ import annotations

import gc
import json
import logging
import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from oscar.errors import ConfigError, GradientError, OscarError
from oscar.reducers.communicator import Communicator
from oscar.state import crc
from oscar.transports.gloo import load_torch, ranks_of

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


class ModelGradients:
    """The parameters of the first model whose buckets were reduced, known until they are gone.

    The first bucket is looked up among the DistributedDataParallel modules of this process. All parameters of
    its model are known then, frozen ones included, so that layers may be unfrozen and the model wrapped anew.
    Where no module has the bucket, the buckets of the first backward make the model.

    Args:
        ranks: The state's ranks, as numbers in the job. None: DDP's group is not compared.
        state: The state with which DDP modules have registered the hook.
    """

    def __init__(self, ranks: Sequence[int] | None = None, state: Any = None) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}
        self._names: dict[int, str] = {}
        self._complete = False  # True once all parameters of the model are known
        self._next = 0  # the index of the bucket that comes next, until the model is complete
        self._ranks = ranks
        self._state = None if state is None else weakref.ref(state)

    def check(self, index: int, parameters: Iterable[Any], *, last: bool) -> None:
        """Take in a bucket; raises ConfigError, and changes nothing, where it is another model's."""
        given = list(parameters)
        known = {key: ref for key, ref in self._known.items() if ref() is not None}
        fresh = not known  # the model is gone, or there was none
        if given and not any(id(parameter) in known for parameter in given):
            first = fresh or (not self._complete and index == self._next)
            modules = wrappers_of(given)
            whole = [parameter for module in modules for parameter in module.parameters()]
            if not first and not any(id(parameter) in known for parameter in whole):
                raise ConfigError(
                    "this OscarState is registered with another model, whose error feedback would be lost at "
                    "every change of model: make one OscarState for each model"
                )
            self._compare_groups(modules)
            known |= {id(parameter): weakref.ref(parameter) for parameter in whole}
            self._complete = bool(whole) or (self._complete and not fresh)
            self._names |= names_in(modules)
        self._known = known | {id(parameter): weakref.ref(parameter) for parameter in given}
        self._complete |= last
        self._next = index + 1

    def wrapped_anew(self, parameters: Iterable[Any]) -> None:
        """Take in that buckets were made anew; raises ConfigError where DDP has other ranks now."""
        modules = wrappers_of(parameters)
        self._compare_groups(modules)
        self._names |= names_in(modules)

    def names(self, parameters: Iterable[Any]) -> list[str] | None:
        """Return the names of parameters in their model; None where one is not known."""
        names = [self._names.get(id(parameter)) for parameter in parameters]
        return None if None in names else [str(name) for name in names]

    def _compare_groups(self, modules: Sequence[Any]) -> None:
        """Raise ConfigError where DDP averages over other ranks than this state."""
        state = None if self._state is None else self._state()
        registered = [
            module
            for module in modules
            if any(each is state for _, each in getattr(module, "_comm_hooks", ()))
        ]
        groups = [ranks for module in registered or modules if (ranks := _ranks_of(module)) is not None]
        if self._ranks is None or not groups or list(self._ranks) in groups:
            return
        raise ConfigError(
            f"DistributedDataParallel averages over the ranks {groups[0]}, this OscarState over "
            f"{list(self._ranks)}: make it with OscarState(process_group=model.process_group)"
        )


def _ranks_of(module: Any) -> list[int] | None:
    try:
        return ranks_of(module.process_group)
    except (OscarError, KeyError, ValueError, RuntimeError):  # a module of before, whose group is gone
        return None


def wrappers_of(parameters: Iterable[Any]) -> list[Any]:
    """Return the DistributedDataParallel modules of this process that have one of `parameters`.

    A bucket does not tell the module that it is of, so Python's collector is asked for all of them.
    """
    wrapper = load_torch()[0].nn.parallel.DistributedDataParallel
    kinds, wanted = {wrapper, *_subclasses(wrapper)}, {id(parameter) for parameter in parameters}
    modules = [each for each in gc.get_objects() if type(each) in kinds]
    # One of a constructor that failed has no parameters yet, or no group.
    return [
        each
        for each in modules
        if hasattr(each, "process_group") and any(id(one) in wanted for one in each.parameters())
    ]


def names_in(modules: Iterable[Any]) -> dict[int, str]:
    """Return the names of all parameters by identity, as in the model without DDP."""
    return {
        id(parameter): name.removeprefix("module.")
        for module in modules
        for name, parameter in module.named_parameters()
    }


def _subclasses(kind: Any) -> list[Any]:
    direct: list[Any] = kind.__subclasses__()
    return [each for child in direct for each in (child, *_subclasses(child))]
