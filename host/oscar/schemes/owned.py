"""Messages of bytes from each worker to the owner of a chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oscar.array import Array
from oscar.errors import FrameError
from oscar.schemes.base import Message


def handed(channel: str, parts: Sequence[Array]) -> Message:
    """Return the message that hands parts[rank], uint8, to each rank."""
    return Message(
        channel, np.concatenate(parts), "exchange", bits=8, parts=tuple(part.size for part in parts)
    )


def check_bytes(data: Array, size: int, source: int) -> None:
    """Raise FrameError unless `source` sent `size` bytes."""
    if data.size != size:
        raise FrameError(
            f"rank {source} sent {data.size} bytes, expected {size}: all ranks must reduce the same tensors "
            "with the same options"
        )
