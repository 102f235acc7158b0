"""A compressor of your own: signs with one size a tensor, and error feedback (after arXiv 1901.09847).

    oscar compare examples/compressor.yaml

`messages` runs once for each worker. Each yield sends a message, and returns all workers' messages combined.
`finish` makes the mean from the combined messages alone, so it is the same on all ranks.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.schemes.base import Message, Messages, Scheme, Worker
from oscar.schemes.fields import field_bits


class Signs(Scheme):
    """Sum the workers' signs. Each tensor's size is the mean of all workers' mean magnitudes."""

    name: ClassVar[str] = "signs"
    patient = True  # large values wait for many calls

    def messages(self, worker: Worker, values: Array) -> Messages:
        corrected = worker.corrected(values)  # plus what the last call left in `pending`
        parts = np.split(corrected, self.offsets[1:-1])
        sizes = yield Message(
            "sizes", np.array([np.abs(part).sum() / max(1, part.size) for part in parts], np.float32)
        )
        signs = np.where(corrected < 0, -1, 1).astype(np.int32)
        worker.pending = corrected - signs * self.spread(sizes)
        yield Message("signs", signs, bits=field_bits(1, self.nodes))

    def finish(self, totals: Sequence[Array]) -> Array:
        sizes, signs = totals
        self.iteration += 1
        return signs.astype(np.float32) * self.spread(sizes) / np.float32(self.nodes)

    def spread(self, sizes: Array) -> Array:
        """Return the size of each value, from the sums of the workers' sizes of each tensor."""
        return np.repeat(sizes / np.float32(self.nodes), self.sizes)
