"""Random lists of a whole NIC: commands wait for frames, for each other, and for values that come late."""

from __future__ import annotations

from collections import Counter

import numpy as np

from oscar.coding.asc.params import LANES
from oscar_hdl.nic.control.list_ports import AFTER, COUNTS, NO_GATE, OWN
from oscar_hdl.nic.control.registers import LIST_ENTRIES
from oscar_sim.driver.lists import PACKETS, entry_words, packed, trigger
from oscar_sim.frames import Generator
from oscar_sim.whole import Making, Told, WholeNic
from oscar_sim.whole_stress import GROUP_ROWS, Traffic, batch


class ListTraffic(Traffic):
    """One batch whose commands a list gives, with triggers at random.

    SENDs of a link follow each other, as their tables do; so frames of links may leave in any order. The
    values of some come while the list runs.
    """

    refusable = False

    def _entries(self) -> np.ndarray:
        first, events = len(self.receives), Counter[int]()
        self.made = {n for n in range(len(self.sends)) if self.rng.random() < 0.6}
        chain, before = list(range(len(self.sends))), dict[int, int]()
        for n, send in enumerate(self.sends):
            if (behind := before.get(link := send.fields["step"])) is not None:
                chain[behind] = n
                events[n] += 1
            before[link] = n
        triggers = self._gates(first, chain, events)
        words = [
            entry_words(packed("RECEIVE", **order.fields), trigger(gate=gate, need=need))
            for order, (gate, need) in zip(self.receives, triggers, strict=True)
        ]
        words += [
            entry_words(
                packed("SEND", **order.fields),
                trigger(
                    kind=1,
                    events=events[n],
                    next=first + chain[n],
                    values=PACKETS * order.fields["count"] * (n in self.made),
                ),
            )
            for n, order in enumerate(self.sends)
        ]
        self._make(first)
        return np.array(words, np.uint64).reshape(-1, 3)

    def _make(self, first: int) -> None:
        """Let values of SENDs come in packets of whole groups, and packets for which no entry waits.

        These come before the last of the others, since behind the list they would wait for the next one.
        """
        rng, size = self.rng, GROUP_ROWS * LANES
        for n in self.made:
            fields = self.sends[n].fields
            for side in (False, True):
                at = 0
                while at < fields["count"]:
                    count = min(fields["count"] - at, size * int(rng.integers(1, 4)))
                    self.makings.append(Making(side, fields["row"] + at // LANES, count, first + n))
                    at += count
        self.makings = [self.makings[n] for n in rng.permutation(len(self.makings))]
        none = [*range(first), *range(first + len(self.sends), LIST_ENTRIES)]
        self.bad_packets = int(rng.integers(4)) if self.made else 0
        for _ in range(self.bad_packets):
            side, count, entry = bool(rng.integers(2)), int(rng.integers(1, 99)), int(rng.choice(none))
            last = max(n for n, making in enumerate(self.makings) if making.side is side)
            at = int(rng.integers(last + 1))
            self.makings.insert(at, Making(side, 0, count, entry, refused=True))

    def _gates(self, first: int, chain: list[int], events: Counter[int]) -> list[tuple[int, int]]:
        """Return gate and need of each RECEIVE, and count those of a SEND in `events`.

        No frame is held up by a SEND that waits for one of those behind it.
        """
        rng, found, closed = self.rng, [], set[int]()
        for _ in self.receives:
            need, gate = int(rng.choice([COUNTS, OWN, AFTER, NO_GATE])), -first
            if need == AFTER and self.sends:
                gate = int(rng.integers(len(self.sends)))
                closed |= {n for n in range(len(self.sends)) if self._leads(chain, n, gate)}
            elif need in (COUNTS, OWN) and (free := sorted(set(range(len(self.sends))) - closed)):
                gate = int(rng.choice(free))
                events[gate] += 1
            else:
                need = NO_GATE
            found.append((first + gate, need))
        return found

    @staticmethod
    def _leads(chain: list[int], n: int, to: int) -> bool:
        """Whether SEND n is before `to` on its link, or that one."""
        while n != to and chain[n] != n:
            n = chain[n]
        return n == to

    def faults(self, told: Told) -> list[str]:
        """Return what was wrong."""
        found = [told.fault] if told.fault else []
        order = self._order(told)
        if any(n is None for n in order):
            return [*found, f"frames differ, or leave in another order on their link: {order}"]
        peers = [self.sends[n].fields["peer"] for n in order if n is not None]
        if peers != told.peers:
            found.append(f"frames go to peers {told.peers}, not {peers}")
        if told.reset:
            return found
        if told.listed != 1:  # one list has ended, without an error
            found.append(f"LIST_RESULT is {told.listed:08x}")
        if told.fault:
            return found
        told.receives = np.zeros(len(self.receives), [("error", "u4")])
        return found + self._counted(told) + self._memory_faults(told)

    def _order(self, told: Told) -> list[int | None]:
        """Return which SEND each frame is of, as links have them; None: of none."""
        left: dict[int, list[int]] = {}
        for n, send in enumerate(self.sends):
            left.setdefault(send.fields["step"], []).append(n)
        found: list[int | None] = []
        for data in told.frames:
            at = next((ns[0] for ns in left.values() if ns and self.wanted[ns[0]] == data), None)
            if at is not None:
                left[self.sends[at].fields["step"]].pop(0)
            found.append(at)
        return found


def listed(nic: WholeNic, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch through a NIC whose commands a list gives; return what was wrong."""
    return batch(ListTraffic(generate, nic, int(generate.rng.integers(2, 24))), nic, seed, tally)
