"""Time of one training iteration, in which gradients are reduced while the backward pass still runs.

The backward pass delivers tensors from the last to the first. They are put into buckets. Each bucket has an
AllReduce of its own, which starts once the bucket is complete, as in torch's DistributedDataParallel (Li et
al., 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from oscar.array import Array
from oscar.coding.asc.turns import cell_values
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.frames import Frames, Stats
from oscar.planning.tuning.profile import FORWARD
from oscar.timeline.engine import Floats
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import time_of
from oscar.timeline.topology import Topology


def bucket_shares(sizes: Sequence[int], buckets: int) -> Floats:
    """Return each bucket's share of all values, float64 [at most `buckets`], in the order they are ready.

    sizes: values per tensor, first to last. Buckets are consecutive tensors from the last on, cut where the
    values before the cut are nearest to an equal part; tensors are not split, so there may be fewer.
    """
    if buckets < 1:
        raise ValueError(f"expected 1 bucket or more, got {buckets}")
    ends = np.cumsum(np.asarray(sizes, np.int64)[::-1])
    if not ends.size or not ends[-1]:
        return np.ones(1)
    wanted = ends[-1] * np.arange(1, buckets) / buckets
    cuts = ends[np.abs(ends[:, None] - wanted).argmin(axis=0)]
    bounds = np.unique(np.concatenate([[0], cuts, ends[-1:]]))
    return np.diff(bounds) / ends[-1]


def iteration_time(compute_s: npt.ArrayLike, shares: Floats, communication_s: npt.ArrayLike) -> Floats:
    """Return the seconds until the last bucket is reduced, float64 [...]; above `compute_s` is exposed.

    compute_s: forward and backward of one node [...]; communication_s: of each bucket's AllReduce alone
    [..., buckets]. A bucket is ready when the backward pass has made its share and those before it, and
    starts when it is ready and the bucket before it has ended.
    """
    compute, communication = np.asarray(compute_s, float), np.asarray(communication_s, float)
    if communication.shape[-1:] != shares.shape:
        raise ValueError(f"expected {shares.size} buckets, got communication of {communication.shape}")
    done = np.cumsum(shares)
    done[-1] = 1.0  # whatever the shares were rounded to
    ready = compute[..., None] * (FORWARD + (1 - FORWARD) * done)
    ready[..., -1] = compute
    left = np.cumsum(communication[..., ::-1], axis=-1)[..., ::-1]  # from this bucket to the last
    # Some bucket is the last that did not wait for the one before it; all later ones follow without a gap.
    return np.asarray((ready + left).max(axis=-1))


def bucket_times(stats: Stats, link: LinkModel, shares: Floats, topology: Topology | None = None) -> Floats:
    """Return the modelled seconds of every bucket's AllReduce, float64 [buckets].

    stats: of one AllReduce of everything. Bytes and values of every frame are scaled by the bucket's share;
    headers and the latency of every hop stay. What `stats.time_s` has beyond the messages' own times counts
    for every bucket.
    """

    def together(share: float) -> float:
        return sum(
            time_of(m.schedule, scaled(m.frames, share), link, topology, coded=m.coded) for m in stats.moved
        )

    beyond = stats.time_s - together(1.0)
    return np.array([stats.time_s if share == 1 else max(0.0, together(share) + beyond) for share in shares])


def scaled(frames: Frames, share: float) -> Frames:
    """Return frames with a share of the values, of the payload and of a NIC's work; headers stay."""
    rows = frames.rows.copy()
    payload = np.maximum(rows["bytes"] - HEADER_BYTES, 0)
    rows["bytes"] = HEADER_BYTES + np.ceil(payload * share).astype(np.int64)
    rows["count"] = np.ceil(rows["count"] * share).astype(np.int64)
    smaller = Frames(rows)
    before, after = frames.sizes(), smaller.sizes()
    cells = {key: _cells(each, before[key][0], after[key][0]) for key, each in frames.cells.items()}
    return Frames(rows, cells)


def _cells(cells: Array, before: int, after: int) -> Array:
    """Return the cells of a frame whose number of values was `before` and is `after`.

    Each new cell has the work per value of the cell in the same part of the old frame.
    """
    old, new = cell_values(before), cell_values(after)
    starts = np.arange(0, after, new)
    source = starts * before // after // old
    values = np.minimum(new, after - starts) / np.minimum(old, before - source * old)
    return np.ceil(cells[source] * values[:, None]).astype(cells.dtype)
