"""Gradients between a GPU and the host, through pinned memory, and buckets that are reduced on the GPU.

On the GPU buckets are quantised, coded, added and decoded. Also the dtypes, layouts and devices of buckets
that the hook codes: docs/how-to/ddp.md has the same table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from oscar.adapters.torch.jobs import Job, Key
from oscar.array import sizes_of
from oscar.coding.asc.params import AscParams
from oscar.coding.asc.state import TableState
from oscar.numerics.tensors import Room, why_uncoded
from oscar.reducers.communicator import Communicator, PeerStats
from oscar.reducers.on_device import kernels
from oscar.transports.gloo import load_torch

LOG = logging.getLogger("oscar.ddp")
KEPT_COPIES = 1024  # after which pinned memory of a size that no bucket has any more is given back


class Staging:
    """Copies of buckets. The hook's thread makes Futures and marks, the state's thread fetches and puts.

    A GPU's copies have a stream of their own, so that they do not queue behind what backward launches
    meanwhile. They cross in the bucket's dtype, through pinned memory, reused while buckets have its size.
    """

    DEVICES = ("cpu", "cuda")

    def __init__(self) -> None:
        self._torch = load_torch()[0]
        self._streams: dict[Any, Any] = {}  # by device
        self._rooms: dict[int, Room] = {}  # pinned memory by its bytes, that used last at the end
        self._used: dict[int, int] = {}  # by its bytes, after how many copies it was used last
        self._copies = 0

    def future(self, buffer: Any) -> Any:
        """Return a Future of `buffer`; streams that wait for it wait for what was done to the buffer."""
        devices = [] if buffer.device.type == "cpu" else [buffer.device]
        return self._torch.futures.Future(devices=devices)

    def mark(self, buffer: Any) -> Any:
        """Return what `fetch` waits for: all that the current stream has been given; None on the CPU."""
        if buffer.device.type == "cpu":
            return None
        return self._torch.cuda.current_stream(buffer.device).record_event()

    def fetch(self, buffer: Any, mark: Any) -> np.ndarray:
        """Return the values of `buffer` as flat float32 on the host; those on the CPU stay where they are."""
        if mark is None:
            return buffer.detach().float().numpy()
        host = self._host(buffer)
        with self.beside(buffer.device, mark):
            host.copy_(buffer.detach().reshape(-1), non_blocking=True)
        return host.float().numpy()

    def put(self, buffer: Any, values: np.ndarray) -> None:
        """Write flat float32 values to `buffer`; they are there on return, whatever the stream."""
        host = self._torch.from_numpy(values)
        if buffer.device.type == "cpu":
            write(buffer, host.reshape(buffer.shape))
            return
        staged = self._host(buffer)
        write(staged, host.reshape(-1))
        with self._beside(buffer.device) as stream:
            buffer.copy_(staged.reshape(buffer.shape), non_blocking=True)
            stream.synchronize()

    @contextmanager
    def beside(self, device: Any, mark: Any) -> Iterator[None]:
        """Let a block work on a GPU on the copies' stream, after `mark`; its work is done on return."""
        with self._beside(device) as stream:
            stream.wait_event(mark)
            yield
            stream.synchronize()

    def _host(self, buffer: Any) -> Any:
        """Return a flat tensor of the buffer's size and dtype in pinned memory that nobody else holds."""
        size = buffer.numel() * buffer.element_size()
        self._copies += 1
        room = self._rooms.pop(size) if size in self._rooms else Room(self._pinned)
        self._rooms[size] = room
        self._used[size] = self._copies
        oldest = next(iter(self._rooms))
        if self._copies - self._used[oldest] > KEPT_COPIES:
            del self._rooms[oldest], self._used[oldest]
        return self._torch.from_numpy(room.take(size, np.uint8)).view(buffer.dtype)

    def _pinned(self, size: int, dtype: Any) -> np.ndarray:
        return self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True).numpy()

    @contextmanager
    def _beside(self, device: Any) -> Iterator[Any]:
        """Make `device` the thread's, and its copies' stream the current one."""
        cuda = self._torch.cuda
        with cuda.device(device):
            if device not in self._streams:
                self._streams[device] = cuda.Stream(device)
            with cuda.stream(self._streams[device]):
                yield self._streams[device]


def write(buffer: Any, means: Any) -> None:
    """Copy float32 means to a bucket of their shape, within its dtype's finite range.

    The mean of float16 values is within float16; the quantiser's error may put it beyond.
    """
    torch = load_torch()[0]
    if buffer.dtype != torch.float32:
        most = torch.finfo(buffer.dtype).max
        means = means.clamp(-most, most)
    buffer.copy_(means)


def why_uncompressed(buffer: Any, parameters: Iterable[Any] = ()) -> str | None:
    """Return why a bucket is sent uncompressed, as DDP would send it; None: it is coded.

    parameters: of the bucket. DDP shows the gradients of complex ones as twice as many real values.
    Raises TypeError for integers, and for layouts other than dense and COO.
    """
    torch = load_torch()[0]
    if buffer.layout not in (torch.strided, torch.sparse_coo):
        raise TypeError(
            f"expected dense gradients or sparse ones in COO layout, got {buffer.layout}; make the module "
            "with sparse=False, or take the hook off for this model"
        )
    device = buffer.device.type
    dtypes = (buffer.dtype, *(each.dtype for each in parameters if each.dtype.is_complex))
    reason = next((why for dtype in dtypes if (why := why_uncoded(dtype)) is not None), None)
    if reason is None and device not in Staging.DEVICES:
        reason = f"gradients on {device} are not coded, only those on {' and '.join(Staging.DEVICES)}"
    if reason is None and buffer.is_sparse and device != "cpu":
        reason = f"sparse gradients are coded on the CPU, these are on {device}"
    return reason


class Uncompressed:
    """Logs once for each reason what goes uncompressed because of its dtype, layout or device."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, buffer: Any, index: int, reason: str) -> None:
        """Log a bucket, if the reason was not given before."""
        if reason not in self._logged:
            LOG.warning(
                "bucket %d (%s values) goes uncompressed, as DDP would send it: %s",
                index,
                f"{buffer.numel():,}",
                reason,
            )
        self._logged.add(reason)


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
