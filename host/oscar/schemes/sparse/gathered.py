"""Code the positions that every worker sends to all others, and keep the learned state of `popular`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index import IndexCodec, Popular, Popularity, make_index
from oscar.coding.index.popular import MOST_COUNT
from oscar.errors import FrameError
from oscar.state import Reader, Saved, Stateful, absent, optional


def _read_counts(index: Any, saved: Saved) -> Array:
    return saved.array(np.int64, index.counts.shape, 0, MOST_COUNT)


class GatheredIndex(Stateful):
    """The index codec of gathered positions, with its replicated state. All workers see all streams.

    counts: for `popular`, the counts learned from each worker's streams, int64 [nodes, 2, 16]. Only `observe`
    changes state, so a failed iteration leaves it as it was.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "popularity": absent("for a codec without classes"),
        "counts": optional(
            _read_counts, when=lambda index: index.counts is not None, without="without classes"
        ),
    }

    def __init__(self, name: str, size: int, nodes: int) -> None:
        self.name, self.size, self.nodes = name, size, nodes
        learns = name == Popular.name
        self.popularity = Popularity(size) if learns else None
        self.counts = np.stack([Popular().counts] * nodes) if learns else None
        self._moved: Array | None = None

    def _end(self, rank: int) -> IndexCodec:
        end = make_index(self.name)
        if isinstance(end, Popular) and self.counts is not None:
            end.counts = self.counts[rank]
        return end

    @property
    def _classes(self) -> Array | None:
        return None if self.popularity is None else self.popularity.classes

    def encode(self, rank: int, positions: Array) -> Array:
        """Return the stream of the sorted positions of `rank`. The state stays."""
        return self._end(rank).encode(positions, self.size, self._classes)

    def decode_one(self, rank: int, stream: Array) -> Array:
        """Return the positions of one worker's stream. The state stays. Raises FrameError."""
        return self._end(rank).decode(stream, self.size, self._classes)

    def decode(self, streams: Sequence[Array]) -> list[Array]:
        """Return all workers' positions, by rank. Raises FrameError."""
        ends = [self._end(rank) for rank in range(self.nodes)]
        pairs = zip(ends, streams, strict=True)
        found = []
        for rank, (end, stream) in enumerate(pairs):
            try:
                found.append(end.decode(stream, self.size, self._classes))
            except FrameError as error:
                raise FrameError(f"rank {rank} sent positions that cannot be read: {error}") from None
        counts = [end.counts for end in ends if isinstance(end, Popular)]
        self._moved = np.stack(counts) if counts else None
        return found

    def observe(self, union: Array) -> None:
        """Update the state by the last decoded streams and the sorted union of their positions."""
        if self.popularity is not None and self._moved is not None:
            self.counts, self._moved = self._moved, None
            self.popularity.observe(union)

    def _follow(self) -> None:
        self._moved = None
