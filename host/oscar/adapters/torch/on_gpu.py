"""Buckets of a GPU that are reduced where they are: quantised, coded, added and decoded there."""

from __future__ import annotations

import logging
from typing import Any

from oscar.adapters.torch.jobs import Job
from oscar.adapters.torch.staging import Staging, write
from oscar.adapters.torch.watch import Key
from oscar.array import sizes_of
from oscar.coding.asc.params import AscParams
from oscar.coding.asc.state import TableState
from oscar.reducers.communicator import Communicator, PeerStats
from oscar.reducers.on_device import kernels
from oscar.transports.gloo import load_torch

LOG = logging.getLogger("oscar.ddp")


class OnGpu:
    """Reduces buckets of a GPU there, with the bits that the host would give them.

    Args:
        communicator: Reduces the buckets.
        staging: Its streams run the kernels.
        wanted: False leaves all buckets to the host, even if the configuration allows a GPU.
    """

    def __init__(self, communicator: Communicator, staging: Staging, *, wanted: bool) -> None:
        self._communicator, self._staging, self._wanted = communicator, staging, wanted
        self._served: dict[Key, bool] = {}
        self._tried: dict[Any, str | None] = {}
        self._logged = False

    def serves(self, job: Job) -> bool:
        """Return True if a dense bucket is reduced where it is. Rank 0 logs once why it is not."""
        if job.mark is None or not self._wanted:
            return False
        if job.new or job.key not in self._served:
            reason = self._communicator.why_on_host(job.layout.shapes) or self._why_not(job.buffer.device)
            self._served[job.key] = reason is None
            if reason is not None and not self._logged and self._communicator.rank == 0:
                LOG.warning("gradients of the GPU are copied to the host and coded there: %s", reason)
                self._logged = True
        return self._served[job.key]

    def _why_not(self, device: Any) -> str | None:
        """Return why kernels do not run on a device, which is tried once; None: they do."""
        if device not in self._tried:
            torch = load_torch()[0]
            try:
                nothing = torch.zeros(32, dtype=torch.int16, device=device)
                coder = kernels().TritonCoder(AscParams(block_log2=10), device)
                coder.encode(nothing, None, 12, TableState.initial())
                self._tried[device] = None
            except Exception as error:  # of Triton, its compiler or the driver
                self._tried[device] = f"Triton's kernels do not run there ({type(error).__name__}: {error})"
        return self._tried[device]

    def reduce(self, job: Job) -> PeerStats:
        """Put the mean of a bucket in its place, where it is on return, whatever the stream."""
        buffer, shapes = job.buffer.detach(), job.layout.shapes
        with self._staging.beside(buffer.device, job.mark):
            parts = buffer.reshape(-1).float().split(sizes_of(shapes))
            tensors: list[Any] = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
            result = self._communicator.allreduce(tensors, key=job.key, device=buffer.device)
            means: list[Any] = [mean.reshape(-1) for mean in result.mean]
            write(buffer, kernels().joined(means).reshape(buffer.shape))
        return result.stats
