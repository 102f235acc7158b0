"""Random lists of a switch's slice: frames of four ports at once, some for one port, some for all."""

from __future__ import annotations

from collections import Counter

import numpy as np

from oscar_hdl.nic.control.list_ports import AFTER, COUNTS, NO_GATE, OWN
from oscar_hdl.nic.ports import TO_ALL
from oscar_hdl.nic.receive.deframer import PEER
from oscar_sim.frames import Generator
from oscar_sim.list_stress import ListTraffic
from oscar_sim.whole import Told, WholeSwitch
from oscar_sim.whole_stress import LINKS, Target, batch


class SwitchTraffic(ListTraffic):
    """One batch. A link's frames come at one port; those of ports come in any order. Nothing may add."""

    adder = False

    def __init__(self, generate: Generator, nic: WholeSwitch, frames: int) -> None:
        self.ports = nic.ports
        self.places = [int(port) for port in generate.rng.integers(nic.ports, size=LINKS)]
        self.strangers: set[int] = set()
        super().__init__(generate, nic, frames)

    def _peer(self, way: int, link: int) -> int:
        if way == 0:
            return self.places[link]
        return TO_ALL if self.rng.random() < 0.6 else int(self.rng.integers(self.ports + 1))

    def _stranger(self, peer: int) -> int:
        self.strangers.add(len(self.arrivals))
        return (peer + int(self.rng.integers(1, self.ports))) % self.ports

    def _terms(self) -> int:
        return int(self.rng.integers(1, self.ports + 1))

    def _target(self) -> Target | None:
        self.last = None  # of frames with the same rows no order is known: they only add, to those of a SEND
        return super()._target()

    def _entries(self) -> np.ndarray | None:
        """See Traffic. A strange frame that no other of its port follows might stay, and is left out."""
        good = {
            n for n, arrival in enumerate(self.arrivals)
            if n not in self.strangers and any(arrival.data is frame for frame in self.good)
        }  # fmt: skip
        last = {self.arrivals[n].peer: n for n in sorted(good)}
        stay = {n for n in self.strangers if last.get(self.arrivals[n].peer, -1) < n}
        for n in stay:
            self.drops.remove((self.arrivals[n].peer, (PEER,)))
        self.arrivals = [arrival for n, arrival in enumerate(self.arrivals) if n not in stay]
        self.bad -= len(stay)
        return super()._entries()

    def _gates(self, first: int, chain: list[int], events: Counter[int]) -> list[tuple[int, int]]:
        """See ListTraffic: whatever the order in which ports give their frames.

        A frame that waits behind a SEND holds up all others. So none of them is for that SEND, nor for one
        before it on its link.
        """
        rng, result, sums = self.rng, [], set(self.into.values())
        behind = [
            n for n in range(len(self.sends))
            if rng.random() < 0.3 and not any(self._leads(chain, each, n) for each in sums)
        ]  # fmt: skip
        free = [n for n in range(len(self.sends)) if not any(self._leads(chain, n, each) for each in behind)]
        for number in range(first):
            need, gate = int(rng.choice([COUNTS, OWN, AFTER, NO_GATE])), -first
            if number in self.into:
                gate = self.into[number]
                need = OWN if gate in self.made else int(rng.choice([COUNTS, OWN]))
                events[gate] += 1
            elif need == AFTER and behind:
                gate = int(rng.choice(behind))
            elif need in (COUNTS, OWN) and free:
                gate = int(rng.choice(free))
                events[gate] += 1
            else:
                need = NO_GATE
            result.append((first + gate, need))
        return result

    def _ports(self, told: Told) -> list[int]:
        return told.peers

    def _peer_faults(self, order: list[int], told: Told) -> list[str]:
        return []  # each frame was looked for at its port


def switched(nic: WholeSwitch, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch through a slice of a switch; return what was wrong."""
    return batch(SwitchTraffic(generate, nic, int(generate.rng.integers(2, 24))), nic, seed, tally)
