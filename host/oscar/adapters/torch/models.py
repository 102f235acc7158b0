"""The model of a state: its parameters, their names, and the ranks that DDP trains it on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from oscar.errors import ConfigError, OscarError
from oscar.transports.gloo import load_torch, ranks_of


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
