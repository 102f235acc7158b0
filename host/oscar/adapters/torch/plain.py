"""The AllReduce that DDP does without a hook, for what is not compressed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from oscar.adapters.torch.bypass import ring_bytes
from oscar.transports.gloo import load_torch


def bytes_of(buffer: Any, nodes: int) -> int:
    """Return about how many bytes a rank sends for a bucket that is not compressed."""
    if buffer.is_sparse:  # torch gathers indices and values
        return int(sum(part.nbytes for part in (buffer._indices(), buffer._values())) * (nodes - 1))
    return ring_bytes(buffer.numel() * buffer.element_size(), nodes)


def plain_mean(buffer: Any, nodes: int, group: Any, took: Callable[[float], None]) -> Any:
    """Return a Future of a bucket's mean, reduced by DDP's group. took: is called with the seconds."""
    buffer.div_(nodes)
    begin = time.perf_counter()
    work = load_torch()[1].all_reduce(buffer, group=group, async_op=True)

    def result(future: Any) -> Any:
        sums = future.value()[0]
        took(time.perf_counter() - begin)
        return sums if buffer.is_sparse else buffer  # of complex numbers torch returns a view as real ones

    return work.get_future().then(result)
