"""Which model a hook's buckets are of: a state of error feedback is worth nothing to another one."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from oscar.errors import ConfigError


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
