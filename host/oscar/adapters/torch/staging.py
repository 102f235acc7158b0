"""Gradients between a GPU and the host, through pinned memory; and work on a GPU beside backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from oscar.numerics.tensors import Room
from oscar.transports.gloo import load_torch

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
        """Let a block work on a GPU on the copies' stream, behind `mark`; its work is done on return."""
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
