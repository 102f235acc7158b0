"""DEFT: each tensor's share of k follows its norm. Tensors are dealt to workers by the cost of choosing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.errors import GradientError
from oscar.schemes.base import Message
from oscar.schemes.sparse.sparsifier import Choice, SparseWorker, Sparsifier
from oscar.schemes.sparse.thresholds import moments, top

PLACE = np.dtype([("count", "<u4"), ("bin", "<u2")])  # the leader's record of one piece


def pieces_of(sizes: Sequence[int], nodes: int) -> Array:
    """Return begin and end of each piece, int64 [pieces, 2].

    A tensor of more than 1 / nodes of all values is cut into `nodes` pieces. Empty pieces are left out.
    """
    edges, most, first = [], sum(sizes) // nodes, 0
    for size in sizes:
        parts = nodes if size > most else 1
        cuts = [first + size * part // parts for part in range(parts + 1)]
        edges += [(low, high) for low, high in pairwise(cuts) if high > low]
        first += size
    return np.array(edges, np.int64).reshape(-1, 2)


def shares_of(norms: Array, lengths: Array, count: int, *, least: int) -> Array:
    """Return how many values to choose from each piece, int64.

    Pieces are served in the order of falling norms. Each gets its part of the remaining count, in proportion
    to its norm. least: minimum of each piece; with 1, the sum may exceed `count`.
    """
    order = np.argsort(-norms, kind="stable")
    rest = np.cumsum(norms[order][::-1])[::-1]  # sum of the norms of this piece and all later ones
    shares, left = np.zeros(len(norms), np.int64), count
    for piece, behind in zip(order.tolist(), rest.tolist(), strict=True):
        wanted = int(left * (float(norms[piece]) / behind)) if behind > 0 else 0
        shares[piece] = min(max(wanted, least), int(lengths[piece]))
        left = max(0, left - int(shares[piece]))
    return shares


def pack(costs: Array, nodes: int) -> Array:
    """Return the bin of each piece, int64. The costliest piece comes first; each goes to the emptiest bin."""
    bins, load = np.zeros(len(costs), np.int64), np.zeros(nodes)
    for piece in np.argsort(-costs, kind="stable"):
        bins[piece] = np.argmin(load)
        load[bins[piece]] += costs[piece]
    return bins


class Deft(Sparsifier):
    """Rank r chooses the largest values of the pieces in bin (t + r) mod N: no position is chosen twice.

    Rank t mod N deals the pieces and tells the others. controller: "released" takes at least one value of
    each piece, as published. "corrected" takes none of a piece whose norm is too small.
    """

    name: ClassVar[str] = "deft"

    def _setup(self) -> None:
        super()._setup()
        self.pieces = pieces_of(self.sizes, self.nodes)

    def deal(self, acc: Array) -> Array:
        """Deal pieces of tensors to workers, by this worker's values.

        Returns each piece's share of k, and its bin; bins rotate among workers (see `Deft`). dtype PLACE.
        """
        norms = np.array([math.sqrt(moments(acc[low:high])[2]) for low, high in self.pieces])
        lengths = np.diff(self.pieces, axis=1)[:, 0]
        least = int(self.options.controller == "released")
        places = np.zeros(len(lengths), PLACE)
        places["count"] = shares_of(norms, lengths, self.count, least=least)
        places["bin"] = pack(lengths * np.log2(np.maximum(2, places["count"])), self.nodes)
        return places

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        leader, data = self.iteration % self.nodes, np.zeros(0, np.uint8)
        if worker.rank == leader:
            data = self.deal(acc).view(np.uint8)
        streams = yield Message("pieces", data, "gather", bits=8)
        places = self.once("pieces", lambda: self._read(streams, leader))
        mine = np.flatnonzero(places["bin"] == (self.iteration + worker.rank) % self.nodes)
        result = [top(acc, int(places["count"][i]), *self.pieces[i].tolist()) for i in mine]
        return np.concatenate([np.zeros(0, np.int64), *result])

    def _read(self, streams: Sequence[Array], leader: int) -> Array:
        """Return the leader's records. Raises GradientError if they are invalid."""
        lengths = np.diff(self.pieces, axis=1)[:, 0]
        sent = [len(stream) for stream in streams]
        if sent[leader] == len(lengths) * PLACE.itemsize == sum(sent):
            places = np.frombuffer(streams[leader].tobytes(), PLACE)
            if (places["count"] <= lengths).all() and (places["bin"] < self.nodes).all():
                return places
        raise GradientError(
            f"expected rank {leader} to deal {len(lengths)} pieces of the gradient to {self.nodes} ranks, "
            f"with counts within their lengths; the ranks sent {sent} bytes, which are not such a list: all "
            "ranks must run the same model and configuration"
        )
