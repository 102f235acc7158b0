"""The order in which a lane takes and gives values: decoding order by blocks (docs/format2.md, "Lanes")."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oscar_hdl.format2.params import LANES


def block_order(n: int) -> np.ndarray:
    """Return the positions of a block's `n` values in decoding order, int64."""
    full, rest = divmod(n, LANES)
    lanes = np.arange(LANES)
    starts = lanes * full + np.minimum(lanes, rest)
    rows = (starts[None, :] + np.arange(full)[:, None]).reshape(-1)
    return np.concatenate([rows, starts[:rest] + full]).astype(np.int64)


@lru_cache(maxsize=64)
def lane_order(count: int, block: int) -> np.ndarray:
    """Return the positions of a frame's `count` values in the order a lane streams them, int64."""
    full, rest = divmod(count, block)
    parts = [block_order(block)[None, :] + block * np.arange(full)[:, None]] if full else []
    whole = [part.reshape(-1) for part in parts]
    if rest:
        whole.append(full * block + block_order(rest))
    order = np.concatenate(whole) if whole else np.zeros(0, np.int64)
    order.flags.writeable = False
    return order
