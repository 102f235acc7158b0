"""What a NIC's planner gets and gives: final sums from memory, and the next chunk plan."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from oscar.numerics.plans import ChunkPlan, make_plan
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import Stream
from oscar_sim.allreduce.network import WordSource, in_words
from oscar_sim.driver.nic_driver import NicDriver, Script


class Planning:
    """A stream of sums into a NIC, and its plan of the next iteration."""

    def __init__(self, sums: Stream, values: int, nodes: int, granule: int) -> None:
        self.source = WordSource(sums)
        self.values, self.nodes, self.granule = values, nodes, granule
        self.plan = make_plan("splitter", values, nodes, granule=granule)

    def split(self, driver: NicDriver, plan: ChunkPlan, sums: np.ndarray) -> Script:
        """Stream the sums of one AllReduce, chunk by chunk; `plan` is the next one afterwards."""
        for low, high in pairwise(plan.bounds):
            if high > low:
                yield from driver.count_sums(low)
                self.source.words.extend(in_words(sums[low:high].astype("<i2").tobytes(), STREAM_BITS // 8))
                while not self.source.idle:
                    yield
        edges = yield from driver.cut_plan(self.nodes, -(-self.values // self.granule))
        self.plan = make_plan("splitter", self.values, self.nodes, granule=self.granule)
        if edges is not None:
            inner = (min(self.values, edge * self.granule) for edge in edges)
            self.plan = ChunkPlan("splitter", None, (0, *inner, self.values))
