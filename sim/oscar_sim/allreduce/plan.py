"""The hardware splitter beside a NIC: final sums in, the next plan out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from oscar.numerics.plans import ChunkPlan, make_plan
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.driver.nic_driver import Script
from oscar_sim.ends import Collector, Feeder


class Splitter:
    """Signals of a splitter, by name, and what drives it."""

    def __init__(self, values: int, nodes: int, granule: int) -> None:
        self.values, self.nodes, self.granule = values, nodes, granule
        self.blocks = -(-values // granule)
        block_bits = max(8 - granule.bit_length() + 1, 3, self.blocks.bit_length())
        place_bits = block_bits + granule.bit_length() - 1
        self.signals: dict[str, Any] = {
            "clear_smoothing": bit(), "nodes": word(5, nodes), "blocks": word(block_bits + 1, self.blocks),
            "seg_start": word(place_bits), "s_axis": Stream(16), "finish": bit(), "m_axis": Stream(16),
            "equal": bit(), "done": bit(),
        }  # fmt: skip
        self.sums, self.edges = Feeder(self.signals["s_axis"]), Collector(self.signals["m_axis"])
        self.plan = make_plan("splitter", values, nodes, granule=granule)

    def tick(self) -> None:
        """One rising edge."""
        self.sums.tick()
        self.edges.tick()

    def clear(self) -> Script:
        """Forget all costs."""
        self.signals["clear_smoothing"].next = True
        yield
        self.signals["clear_smoothing"].next = False
        for _ in range(2 << len(self.signals["blocks"])):
            yield

    def split(self, plan: ChunkPlan, sums: np.ndarray) -> Script:
        """Stream the sums of one AllReduce, chunk by chunk; `plan` is the next one afterwards."""
        self.edges.words.clear()
        for low, high in pairwise(plan.bounds):
            if high > low:
                self.signals["seg_start"].next = low
                self.sums.put((sums[low:high] & 0xFFFF).tolist())
                while self.sums.queue or self.sums.offered:
                    yield
        self.signals["finish"].next = True
        yield
        self.signals["finish"].next = False
        while not self.signals["done"]:
            yield
        if self.signals["equal"]:
            self.plan = make_plan("splitter", self.values, self.nodes, granule=self.granule)
        else:
            edges = (min(self.values, edge * self.granule) for edge in self.edges.words)
            self.plan = ChunkPlan("splitter", None, (0, *edges, self.values))
