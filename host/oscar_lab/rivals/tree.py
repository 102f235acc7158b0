"""The tree of all ways to reduce a tensor between machines of several accelerators (Espresso, EuroSys'23).

A way is a chain of actions. Flat: one collective between all; hierarchical: the first half of a collective
inside the machines, one between them, the second half inside. A collective is whole (AllReduce, or AllGather
of what is compressed) or in two halves, of which the second goes with the first. Between two actions, and
after the last, data is compressed or decompressed as the next one asks for, each on either processor; where
both are compressed, it is handed on as it is, or decompressed, added up and compressed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oscar.planning.tuning.policy import OTHER, SAME

FLAT, INSIDE, BETWEEN = "flat", "inside", "between"
WHOLE = {False: "allreduce", True: "allgather"}  # by whether data is compressed
FIRST = {False: ("reduce-scatter", "reduce"), True: ("alltoall", "gather")}
SECOND = "allgather", "broadcast"  # of the first ones at the same place
COMPRESS, DECOMPRESS = "compress", "decompress"


class Placing(NamedTuple):
    """A routine and where: a collective on a level, or compression on a processor."""

    routine: str
    where: str


Way = tuple[Placing, ...]


def ways() -> Iterator[Way]:
    """Yield all ways."""
    for collective in _collective(FLAT):
        yield from _filled(collective)
    for first, second in _halves(INSIDE):
        for middle in _collective(BETWEEN):
            yield from _filled((first, *middle, second))


_Asked = tuple[Placing, bool]  # a collective, and whether it takes compressed data


def _collective(level: str) -> Iterator[tuple[_Asked, ...]]:
    for compressed, routine in WHOLE.items():
        yield ((Placing(routine, level), compressed),)
    yield from _halves(level)


def _halves(level: str) -> Iterator[tuple[_Asked, _Asked]]:
    for before in (False, True):
        for first, second in zip(FIRST[before], SECOND, strict=True):
            for after in (False, True):
                yield (Placing(first, level), before), (Placing(second, level), after)


def _filled(asked: tuple[_Asked, ...], compressed: bool = False) -> Iterator[Way]:
    """Yield a chain of collectives with all that may stand between them."""
    if not asked:
        yield from ((Placing(DECOMPRESS, p),) for p in (SAME, OTHER)) if compressed else [()]
        return
    (action, takes), *others = asked
    between: list[Way] = [()]
    if takes != compressed:
        between = [(Placing(COMPRESS if takes else DECOMPRESS, p),) for p in (SAME, OTHER)]
    elif takes:
        again = [(Placing(DECOMPRESS, p), Placing(COMPRESS, q)) for p in (SAME, OTHER) for q in (SAME, OTHER)]
        between = [(), *again]
    for some in between:
        for rest in _filled(tuple(others), takes):
            yield (*some, action, *rest)
