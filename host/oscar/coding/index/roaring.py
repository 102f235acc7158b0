"""Index codec of Roaring bitmaps in their portable form; the only module that imports pyroaring."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index.base import IndexCodec, damaged
from oscar.errors import ConfigError, install


class Roaring(IndexCodec):
    """Run-optimised bitmaps as pyroaring serialises them; raises ConfigError without that package."""

    name: ClassVar[str] = "roaring"
    kind: ClassVar[int] = 4

    def __init__(self) -> None:
        try:
            from pyroaring import BitMap
        except ImportError:
            raise ConfigError(
                "the index codec roaring needs the package pyroaring, which is not installed; "
                f"install it with: {install('peers')}"
            ) from None
        self.make: Any = BitMap

    def _pack(self, positions: Array, size: int, classes: Array | None) -> Array:
        found = self.make(positions.astype(np.uint32))
        found.run_optimize()
        return np.frombuffer(found.serialize(), np.uint8)

    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        try:
            found = self.make.deserialize(body.tobytes())
            if len(found) != count:  # before it is expanded
                raise ValueError(f"{len(found)} positions")
            positions = np.array(found.to_array(), np.int64)
            again = found.serialize()
        except (ValueError, IndexError, MemoryError, OverflowError) as error:
            raise damaged("a Roaring bitmap", f"{body.size} bytes that are none ({error})") from None
        if positions.size != count or again != body.tobytes():
            raise damaged(f"a Roaring bitmap of {count} positions", f"{positions.size}, or bytes behind it")
        return positions
