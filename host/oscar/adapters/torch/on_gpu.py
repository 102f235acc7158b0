"""Buckets of a GPU that are reduced where they are: quantised, coded, added and decoded there."""

from __future__ import annotations

import logging
from typing import Any

from oscar.adapters.torch.bypass import Key
from oscar.adapters.torch.jobs import Job
from oscar.adapters.torch.staging import Staging
from oscar.array import sizes_of
from oscar.reducers.communicator import Communicator, PeerStats

LOG = logging.getLogger("oscar.ddp")


class OnGpu:
    """Reduces buckets of a GPU there, with the bits that the host would give them.

    wanted: whether to do so where the configuration allows it.
    """

    def __init__(self, communicator: Communicator, staging: Staging, *, wanted: bool) -> None:
        self._communicator, self._staging, self._wanted = communicator, staging, wanted
        self._served: dict[Key, bool] = {}
        self._told = False

    def serves(self, job: Job) -> bool:
        """Whether a dense bucket is reduced where it is; rank 0 logs once why it is not."""
        if job.mark is None or not self._wanted:
            return False
        if job.new or job.key not in self._served:
            reason = self._communicator.why_on_host(job.layout.shapes)
            self._served[job.key] = reason is None
            if reason is not None and not self._told and self._communicator.rank == 0:
                LOG.warning("gradients of the GPU are copied to the host and coded there: %s", reason)
                self._told = True
        return self._served[job.key]

    def reduce(self, job: Job) -> PeerStats:
        """Put the mean of a bucket in its place, where it is on return, whatever the stream."""
        buffer, shapes = job.buffer.detach(), job.layout.shapes
        from oscar.numerics.gpu.memory import joined  # needs Triton

        with self._staging.beside(buffer.device, job.mark):
            parts = buffer.reshape(-1).float().split(sizes_of(shapes))
            tensors: list[Any] = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
            result = self._communicator.allreduce(tensors, key=job.key, device=buffer.device)
            means: list[Any] = [mean.reshape(-1) for mean in result.mean]
            buffer.copy_(joined(means).reshape(buffer.shape))
        return result.stats
