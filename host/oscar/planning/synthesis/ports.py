"""When the ports of a network are free: the model of time that synthesis plans with."""

from __future__ import annotations

from oscar.planning.synthesis.problem import RoutingProblem
from oscar.timeline.topology import Link


class Ports:
    """Frames are sent one at a time over each port; a frame occupies those where it leaves and arrives."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.ports, self.message_s = problem.topology.ports, problem.topology.message_s
        self.free = [0.0] * len(self.ports)

    def ready(self, link: Link) -> float:
        """Return from when on a frame would meet no other, at either end."""
        out = max((self.free[at] for at in link.out), default=0.0)
        return max([out, *(self.free[at] - link.latency_s for at in link.into)])

    def leaves(self, link: Link) -> float:
        """Return from when on the ports out are free."""
        return max((self.free[at] for at in link.out), default=0.0)

    def send(self, link: Link, start: float, size: float) -> float:
        """Send `size` bytes at `start`; return when they have arrived (cut-through)."""
        cost = self.message_s + size * max((self.ports[at].seconds_per_byte for at in link.out), default=0.0)
        leave, first = start + cost, start + link.latency_s
        arrival = leave + link.latency_s
        for at in link.out:
            self.free[at] = leave
        for at in link.into:
            begin = max(self.free[at], first)
            arrival = max(arrival, begin + self.message_s + size * self.ports[at].seconds_per_byte)
        for at in link.into:
            self.free[at] = arrival
        return arrival
