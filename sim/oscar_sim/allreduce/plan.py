"""The plan of the next iteration that a NIC's planner makes of the sums that were read."""

from __future__ import annotations

from oscar.numerics.plans import ChunkPlan, make_plan
from oscar_sim.driver.nic_driver import NicDriver, Script


class Planning:
    """Asks a NIC for its plan of the next iteration."""

    def __init__(self, values: int, nodes: int, granule: int) -> None:
        self.values, self.nodes, self.granule = values, nodes, granule
        self.plan = make_plan("splitter", values, nodes, granule=granule)

    def split(self, driver: NicDriver) -> Script:
        """Have the sums that were counted cut into chunks; `plan` is the next one afterwards."""
        edges = yield from driver.cut_plan(self.nodes, -(-self.values // self.granule))
        self.plan = make_plan("splitter", self.values, self.nodes, granule=self.granule)
        if edges is not None:
            inner = (min(self.values, edge * self.granule) for edge in edges)
            self.plan = ChunkPlan("splitter", None, (0, *inner, self.values))
