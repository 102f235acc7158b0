"""A spanning tree for each chunk: what routing makes and ordering puts in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from oscar.collective.routes import Transfer


class Trees(NamedTuple):
    """reduce: up to the owners, gather: down from them; each in the order in which they were found."""

    reduce: tuple[Transfer, ...]
    gather: tuple[Transfer, ...]


def turned(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    """Return the transfers backwards: the last first, from receiver to sender."""
    return tuple(Transfer(t.chunk, t.receiver, t.sender) for t in reversed(tuple(transfers)))


def terms(reduce: Iterable[Transfer]) -> dict[Transfer, int]:
    """Return how many workers each transfer of reduce trees sums, whatever their order."""
    fed: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
    every = list(reduce)
    for t in every:
        fed[t.chunk, t.receiver].append(t)
    out: dict[Transfer, int] = {}

    def count(t: Transfer) -> int:
        if t not in out:
            out[t] = 1 + sum(count(one) for one in fed[t.chunk, t.sender])
        return out[t]

    for t in every:
        count(t)
    return out
