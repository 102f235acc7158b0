"""Gradients between where they are and the host, which reduces them: on a GPU through pinned memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.transports.gloo import load_torch


class Staging:
    """Copies of buckets. The hook's thread makes Futures and marks, the state's thread fetches and puts."""

    DEVICES = ("cpu", "cuda")

    def __init__(self) -> None:
        self._torch = load_torch()[0]

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
        mark.synchronize()
        host = self._torch.empty(buffer.numel(), dtype=self._torch.float32, pin_memory=True)
        host.copy_(buffer.detach().reshape(-1))
        return host.numpy()

    def put(self, buffer: Any, values: np.ndarray) -> None:
        """Write flat float32 values to `buffer`; they are there on return, whatever the stream."""
        host = self._torch.from_numpy(values)
        if buffer.device.type != "cpu":
            host = host.pin_memory()
        buffer.copy_(host.reshape(buffer.shape))
