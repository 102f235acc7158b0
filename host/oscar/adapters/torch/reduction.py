"""The work of the hook's thread: buckets become means, through the communicator or a policy's groups.

DDP gives each sparse gradient, as of `nn.Embedding(sparse=True)`, a bucket of its own: a COO tensor that
is not coalesced, with an entry for every look-up of this rank's batch. The method zen exchanges the rows
as they are. Other methods need a dense tensor.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from oscar.adapters.torch.arguments import Ends
from oscar.adapters.torch.jobs import Job, Key, Totals
from oscar.adapters.torch.staging import OnGpu, Staging
from oscar.array import Array
from oscar.coding.index import make_index
from oscar.config import Config
from oscar.numerics.tensors import check_tensors, split
from oscar.reducers.checks import check_means
from oscar.reducers.communicator import PeerStats
from oscar.reducers.party import Party
from oscar.reducers.remote_wire import RemoteWire
from oscar.schemes.registry import parse, scheme_class
from oscar.schemes.sparse.exchanges import AllGather, Doubling, PointToPoint, Run, Set, SparseExchange
from oscar.schemes.sparse.partitions import Grains, make_partition
from oscar.schemes.sparse.sparsifier import SparseWorker
from oscar.transports.gloo import load_torch

LOG = logging.getLogger("oscar.ddp")
EXCHANGES = "auto", "balanced", "doubling", "all-gather"  # those that take rows as they are
T = TypeVar("T")


class BucketReduction:
    """Reduces buckets. All methods are for the hook's thread, which does one job after the other."""

    def __init__(self, ends: Ends, staging: Staging, totals: Totals, *, on_gpu: bool) -> None:
        self._config, self._communicator, self._bypass = ends.config, ends.communicator, ends.bypass
        self._policies, self._staging, self._totals = ends.policies, staging, totals
        self.on_gpu = OnGpu(ends.communicator, staging, wanted=on_gpu)
        self.rows = Rows(ends.communicator.party, ends.config) if Rows.serve(ends.config) else None
        self._dense_notice = DenseNotice()
        self._timed: dict[Key, bool] = {}  # by bucket, True if all ranks can time it
        self._reported = False  # True once a bucket that cannot be timed was logged

    def measures(self, job: Job) -> bool:
        """Return True if a bucket is timed beside a plain AllReduce; equal on all ranks.

        It is not where some rank has it on a GPU, which is logged once: a second thread would have to use
        DDP's communicator of the GPU at the same time as DDP.
        """
        if not job.measure or (job.layout.sparse and self.rows is not None):
            return False
        if self._timed[job.key]:
            return True
        self._bypass.leave(job.key)
        if not self._reported and self._communicator.rank == 0:
            LOG.warning(
                "gradients on a GPU are compressed without a measurement of whether that pays; compare a "
                'step\'s time with OscarState(bypass="always"), which compresses nothing; bypass="never" '
                "compresses without this message",
            )
        self._reported = True
        return False

    def reduce(self, job: Job) -> list[tuple[Job, Any]]:
        """Return the buckets that have their means now; collective."""
        gradient = job.buffer.detach().coalesce() if job.layout.sparse else None
        entries = 0 if gradient is None else gradient._nnz()
        met = job.new or gradient is not None
        counts: list[int] = []
        if met or job.key not in self._timed:
            counts, self._timed[job.key] = job.layout.meet(
                self._communicator, job.key[0], entries, timed=job.mark is None
            )
        if job.forget:
            self._communicator.reset()
            self._bypass.forget_times()
        done = self._reduced(job, gradient, counts)
        if job.last:
            self._bypass.settle()
        return done

    def _reduced(self, job: Job, gradient: Any, counts: list[int]) -> list[tuple[Job, Any]]:
        """gradient: of one sparse tensor, or None."""
        if self._policies is None:
            return [(job, self._dense(job) if gradient is None else self._sparse(job, gradient, counts))]
        if gradient is not None:
            raise TypeError("expected dense gradients under a policy, got a sparse one: leave the policy out")
        values = self._staging.fetch(job.buffer, job.mark).reshape(-1)
        results, sent = self._policies.take(job, split(values, job.layout.shapes))
        for stats in sent:
            self._totals.note(stats)
        for each, mean in results:
            self._staging.put(each.buffer, mean)
        return [(each, each.buffer) for each, _ in results]

    def _dense(self, job: Job) -> Any:
        """Return the bucket, which has its mean now."""
        measure = self.measures(job)
        if self.on_gpu.serves(job):
            self._note(job, self.on_gpu.reduce(job))
            return job.buffer
        values = self._staging.fetch(job.buffer, job.mark)
        self._staging.put(job.buffer, self._mean(job, values, measure=measure))
        return job.buffer

    def _sparse(self, job: Job, gradient: Any, counts: list[int]) -> Any:
        """Return the mean of a coalesced gradient, sparse; counts: entries of every rank."""
        if self.rows is not None:
            mean, sent = self.rows.mean(gradient, counts)
            self._totals.sent_bytes += sent
            return mean
        if self._communicator.rank == 0:
            self._dense_notice.log(job, sum(counts) / len(counts), self._config.method)
        values = gradient.to_dense().float().numpy()
        return sparse_of(self._mean(job, values, measure=self.measures(job)), gradient)

    def _mean(self, job: Job, values: np.ndarray, *, measure: bool) -> np.ndarray:
        tensors = split(values.reshape(-1), job.layout.shapes)

        def compressed() -> list[np.ndarray]:
            result = self._communicator.allreduce(tensors, key=job.key)
            self._note(job, result.stats)
            return result.mean

        mean = self._bypass.measured(job.key, job.buffer, compressed) if measure else compressed()
        return np.concatenate([tensor.reshape(-1) for tensor in mean])

    def _note(self, job: Job, stats: PeerStats) -> None:
        self._totals.note(stats)
        if not job.measure:
            self._bypass.watch.note(job.key, stats.seconds)


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
