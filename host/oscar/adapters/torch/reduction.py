"""The work of the hook's thread: buckets become means, through the communicator or a policy's groups."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from oscar.adapters.torch.arguments import Ends
from oscar.adapters.torch.jobs import Job, Key, Totals
from oscar.adapters.torch.sparse import DenseNotice, Rows, sparse_of
from oscar.adapters.torch.staging import OnGpu, Staging
from oscar.numerics.tensors import split
from oscar.reducers.communicator import PeerStats

LOG = logging.getLogger("oscar.ddp")


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
