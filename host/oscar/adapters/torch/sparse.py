"""Sparse gradients, as of `nn.Embedding(sparse=True)`: their rows are exchanged, or made dense.

DDP gives each a bucket of its own: a COO tensor that is not coalesced, with an entry for everything that this
rank's batch looked up. The method zen exchanges the rows as they are; others need a dense tensor.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from oscar.adapters.torch.jobs import Job
from oscar.array import Array
from oscar.coding.index import make_index
from oscar.config import Config
from oscar.numerics.tensors import check_tensors
from oscar.reducers.checks import check_means
from oscar.reducers.party import Party
from oscar.reducers.remote_wire import RemoteWire
from oscar.schemes.registry import parse, scheme_class
from oscar.schemes.sparse.exchanges import AllGather, Doubling, PointToPoint, Run, Set, SparseExchange
from oscar.schemes.sparse.partitions import Grains, make_partition
from oscar.schemes.sparse.sparsifier import SparseWorker
from oscar.transports.gloo import load_torch

EXCHANGES = "auto", "balanced", "doubling", "all-gather"  # those that take rows as they are
T = TypeVar("T")
LOG = logging.getLogger("oscar.ddp")


class Rows:
    """Exchanges of rows over `party`'s transport, with the options of the method zen; sums are exact.

    It keeps no state: with `exchange: auto` each call takes what Zen's formulas find cheaper for the rows
    that ranks have then.
    """

    def __init__(self, party: Party, config: Config) -> None:
        self.party, self.seed = party, config.seed
        self.wire = RemoteWire(party, {})
        self.options = parse("zen", scheme_class("zen"), config.scheme)
        self._exchanges: dict[tuple[str, int, int], SparseExchange] = {}

    @classmethod
    def serve(cls, config: Config) -> bool:
        """Return True if the method of `config` exchanges rows as they are."""
        if config.method != "zen":
            return False
        o = parse("zen", scheme_class("zen"), config.scheme)
        return bool(o.values == "fp32" and o.exchange in EXCHANGES and o.partition != "learnt")

    def mean(self, gradient: Any, counts: Sequence[int]) -> tuple[Any, int]:
        """Return the mean of a coalesced gradient over all ranks, and the bytes that this one sent.

        counts: rows of every rank. Rows that some rank has stay in it, even where they are zero. Raises
        GradientError on NaN or Inf, GradientOverflowError on all ranks where a sum is beyond float32.
        """
        if not gradient.numel():
            return gradient, 0
        shape, dims = tuple(gradient.shape), gradient.sparse_dim()
        positions = np.ravel_multi_index(tuple(gradient.indices().numpy()), shape[:dims])
        (items,) = check_tensors([gradient.values().detach().float().numpy()], self.party.rank)
        size, width = int(np.prod(shape[:dims])), int(np.prod(shape[dims:]))
        exchange = self._exchange(self._choose(counts, size), size, width)
        self.wire.values = size * width
        worker = SparseWorker(self.party.rank, 0)
        (union, sums), sent = self._run(exchange.run(worker, (positions, items), _Alone()))
        mean = sums / np.float32(self.party.nodes)
        check_means(self.wire, [mean], [[items]])
        return _tensor(union, mean, gradient), sent

    def _run(self, running: Run) -> tuple[Set, int]:
        answer: Any = None
        sent = 0
        while True:
            try:
                message = running.send(answer)
            except StopIteration as end:
                return end.value, sent
            answer, moved = self.wire.combine([message])
            answer = answer[0] if message.op == "exchange" else answer
            sent += moved.sent_bytes

    def _choose(self, counts: Sequence[int], size: int) -> str:
        """Return the exchange; alike on all ranks, as nothing but sums and products is taken."""
        if self.options.exchange != "auto":
            return str(self.options.exchange)
        nodes, density = self.party.nodes, sum(counts) / (len(counts) * size)
        missed, grown = 1.0, []  # rows of the union of m ranks, as multiples of one's, were they independent
        for _ in range(nodes):
            missed *= 1 - density
            grown.append((1 - missed) / density if density else 1.0)
        balanced = (nodes - 1) / nodes * (1 + grown[-1])
        stages = nodes.bit_length() - 1
        doubling = sum(grown[(1 << stage) - 1] for stage in range(stages))
        if nodes != 1 << stages:
            doubling += 1 + grown[-1]  # ranks beyond a power of two hand over, and get the sums
        return "balanced" if balanced < doubling else "doubling"

    def _exchange(self, name: str, size: int, width: int) -> SparseExchange:
        key = name, size, width
        if key not in self._exchanges:
            self._exchanges[key] = self._make(name, Grains.of(np.array([0, size * width]), [width]))
        return self._exchanges[key]

    def _make(self, name: str, grains: Grains) -> SparseExchange:
        o, nodes, push = self.options, self.party.nodes, make_index(self.options.push)
        if name == "all-gather":
            return AllGather(grains, nodes, push)
        if name == "doubling":
            return Doubling(grains, nodes, push)
        partition = make_partition(o.partition, grains.size, nodes, seed=self.seed)
        memory = o.memory if o.partition == "hash" else None
        return PointToPoint(grains, nodes, push, partition, make_index(o.pull), memory, self.seed)


class _Alone:
    """The part of a scheme that exchanges call, for one worker in a process."""

    def once(self, key: str, compute: Callable[[], T]) -> T:
        return compute()


def sparse_of(mean: Array, like: Any) -> Any:
    """Return a dense mean, flat, as a sparse tensor like `like`, of the rows in which something is not 0."""
    size = int(np.prod(like.shape[: like.sparse_dim()]))
    rows = mean.reshape(size, -1)
    hit = np.flatnonzero(rows.any(axis=1))
    return _tensor(hit, rows[hit], like)


def _tensor(positions: Array, values: Array, like: Any) -> Any:
    """Return a coalesced tensor of the shape and type of `like`; positions: sorted, of its rows."""
    torch, shape, dims = load_torch()[0], tuple(like.shape), like.sparse_dim()
    indices = np.stack(np.unravel_index(positions, shape[:dims])).astype(np.int64)
    return torch.sparse_coo_tensor(
        torch.from_numpy(indices),
        torch.from_numpy(values.reshape(len(positions), *shape[dims:])).to(like.dtype),
        shape,
        is_coalesced=True,
        check_invariants=False,
    )


class DenseNotice:
    """Logs once what it costs that sparse gradients are made dense."""

    def __init__(self) -> None:
        self._logged = False

    def log(self, job: Job, rows: float, method: str) -> None:
        """Log a bucket, if none was logged before.

        Args:
            job: The bucket.
            rows: Number of rows that a rank has, on average.
            method: The method that cannot take rows.
        """
        if self._logged:
            return
        self._logged = True
        of = math.prod(job.layout.shapes[0][: job.layout.sparse])
        LOG.warning(
            "the sparse gradient of bucket %d is made dense for the method %s: every step copies, codes and "
            "sends %s values, of which a rank has %.3g %% (%d of %d rows); Config(method=\"zen\") with "
            "values: fp32 sends the rows alone, exactly",
            job.key[0], method, f"{job.key[1]:,}", 100 * rows / max(1, of), round(rows), of,
        )  # fmt: skip
