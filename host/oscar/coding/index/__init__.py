from typing import Any

import numpy as np


class IndexCodec:
    def encode(self, p: Any, size: int) -> Any:
        return (
            np.packbits(np.isin(np.arange(size), p))
            if self.n == "bitmap"
            else np.ascontiguousarray(p, "<u4").view(np.uint8)
        )

    def decode(self, s: Any, size: int) -> Any:
        return (
            np.flatnonzero(np.unpackbits(s, count=size))
            if self.n == "bitmap"
            else np.ascontiguousarray(s).view("<u4").astype(np.int64)
        )


INDEX_CODECS = {"coo": 0, "gaps": 0, "bitmap": 0}


def make_index(name: str) -> IndexCodec:
    c = IndexCodec()
    c.n = name
    return c
