"""Random lists of a whole NIC: commands wait for frames, for each other, and for values that come late."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from oscar.coding.asc.params import GROUP_ROWS, LANES
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.control.list_ports import AFTER, COUNTS, NO_GATE, OWN
from oscar_hdl.nic.control.registers import LIST_ENTRIES, command_values
from oscar_hdl.nic.ports import BFLOAT16, FLOAT32, LEAST_EXPONENT
from oscar_sim.driver.lists import PACKETS, entry_words, trigger
from oscar_sim.driver.row_packets import Quantised
from oscar_sim.frames import Generator
from oscar_sim.whole import Making, Told, WholeNic
from oscar_sim.whole_stress import Target, Traffic, batch

LOWEST = -1 << 15  # of 16 bits, which no quantised value is


class ListTraffic(Traffic):
    """One batch whose commands a list gives, with triggers at random.

    SENDs of a link follow each other, as their tables do; so frames of links may leave in any order. The
    values of some come while the list runs. Some send sums: a RECEIVE adds to their rows, which it must not
    do before they are made. adder: packets may add.
    """

    refusable, adder = False, True

    def __init__(self, generate: Generator, nic: WholeNic, frames: int) -> None:
        self.into: dict[int, int] = {}  # RECEIVEs that add to rows of a SEND: both by number
        self.leaves = nic.leaves
        self.adding: tuple[np.ndarray, np.ndarray, int, np.ndarray] | None = None
        super().__init__(generate, nic, frames)

    def _frame(self) -> tuple[np.ndarray, np.ndarray] | None:
        self.fresh = super()._frame()
        return self.fresh

    def _send(self) -> bool:
        if not super()._send():
            return False
        if self.rng.random() < 0.4 and self.fresh is not None:
            self._sum(*self.fresh)
        return True

    def _sum(self, values: np.ndarray, positions: np.ndarray) -> None:
        """Let frames bring some of what the last SEND sends."""
        row, own = self.sends[-1].fields["row"], values
        for _ in range(self._terms()):
            number = len(self.receives)
            comes = self.rng.integers(-3, 4, values.size) * (self.rng.random(values.size) < self.rng.random())
            self.adding = comes.astype(np.int16), positions, row, (values - comes).astype(np.int16)
            if self._receive():
                own = (own - comes).astype(np.int16)
                self.memory.load(row, frame_rows(own, positions))
                self.into[number] = len(self.sends) - 1
                self.last = None  # the SEND's rows hold still
        self.adding = None

    def _terms(self) -> int:
        """Return how many frames bring it."""
        return int(self.rng.integers(1, 3))

    def _target(self) -> Target | None:
        return self.adding or super()._target()

    def _adopts(self, local: np.ndarray | None) -> bool:
        return self.adding is None and super()._adopts(local)

    def _entries(self) -> np.ndarray:
        first, events = len(self.receives), Counter[int]()
        self.made = {n for n in range(len(self.sends)) if self.rng.random() < 0.6}
        self.adds = {n for n in sorted(self.made) if self.adder and self.rng.random() < 0.4}  # by packets
        chain, before = list(range(len(self.sends))), dict[int, int]()
        for n, send in enumerate(self.sends):
            if (behind := before.get(link := send.fields["step"])) is not None:
                chain[behind] = n
                events[n] += 1
            before[link] = n
        triggers = self._gates(first, chain, events)
        words = [
            entry_words(command_values("RECEIVE", **order.fields), trigger(gate=gate, need=need))
            for order, (gate, need) in zip(self.receives, triggers, strict=True)
        ]
        words += [
            entry_words(
                command_values("SEND", **order.fields),
                trigger(
                    kind=1,
                    events=events[n],
                    next=first + chain[n],
                    values=(1 if n in self.adds else PACKETS) * order.fields["count"] * (n in self.made),
                ),
            )
            for n, order in enumerate(self.sends)
        ]
        self._make(first)
        return np.array(words, np.uint64).reshape(-1, 3)

    def _make(self, first: int) -> None:
        """Let values of SENDs come in packets of whole groups or blocks, and some that no entry waits for.

        These come before the last of the others, since behind the list they would wait for the next one.
        """
        rng, size = self.rng, GROUP_ROWS * LANES if self.units == 1 else 1 << self.log2
        for n in self.made:
            fields = self.sends[n].fields
            for side in (False,) if n in self.adds else (False, True):
                at = 0
                while at < fields["count"]:
                    count = min(fields["count"] - at, size * int(rng.integers(1, 4)))
                    row, adds = fields["row"] + at // LANES, n in self.adds
                    self.makings.append(Making(side, row, count, first + n, adds=adds))
                    at += count
        self.makings = [self.makings[n] for n in rng.permutation(len(self.makings))]
        none = [*range(first), *range(first + len(self.sends), LIST_ENTRIES)]
        self.bad_packets = int(rng.integers(4)) if self.made else 0
        for _ in range(self.bad_packets):
            side = self.makings[int(rng.integers(len(self.makings)))].side
            count, entry = int(rng.integers(1, 99)), int(rng.choice(none))
            last = max(n for n, making in enumerate(self.makings) if making.side is side)
            at = int(rng.integers(last + 1))
            adds = not side and bool(rng.integers(2))
            if adds and not self.adder and rng.random() < 0.5:  # is refused for an entry that waits, too
                entry = first + int(rng.choice(sorted(self.made)))
            self.makings.insert(at, Making(side, 0, count, entry, refused=True, adds=adds))

    def _gates(self, first: int, chain: list[int], events: Counter[int]) -> list[tuple[int, int]]:
        """Return gate and need of each RECEIVE, and count those of a SEND in `events`.

        No frame is held up by a SEND that waits for one of those behind it.
        """
        rng, result, closed = self.rng, [], set[int]()
        for number in range(first):
            need, gate = int(rng.choice([COUNTS, OWN, AFTER, NO_GATE])), -first
            late = {send for receive, send in self.into.items() if receive > number}
            ends = [
                send for send in range(len(self.sends)) if not any(self._leads(chain, n, send) for n in late)
            ]
            if number in self.into:
                gate = self.into[number]
                need = int(rng.choice([COUNTS, OWN]))
                if gate in self.made:
                    need = COUNTS if gate in self.adds else OWN
                events[gate] += 1
            elif need == AFTER and ends:
                gate = int(rng.choice(ends))
                closed |= {n for n in range(len(self.sends)) if self._leads(chain, n, gate)}
            elif need in (COUNTS, OWN) and (free := sorted(set(range(len(self.sends))) - closed)):
                gate = int(rng.choice(free))
                events[gate] += 1
            else:
                need = NO_GATE
            result.append((first + gate, need))
        return result

    @staticmethod
    def _leads(chain: list[int], n: int, to: int) -> bool:
        """Whether SEND n is before `to` on its link, or that one."""
        while n != to and chain[n] != n:
            n = chain[n]
        return n == to

    def faults(self, told: Told) -> list[str]:
        """Return what was wrong."""
        result = [told.fault] if told.fault else []
        order = self._order(told)
        if any(n is None for n in order):
            return [*result, f"frames differ, or leave in another order on their link: {order}"]
        result += self._peer_faults([n for n in order if n is not None], told)
        if told.reset:
            return result
        if told.listed != 1:  # one list has ended, without an error
            result.append(f"LIST_RESULT is {told.listed:08x}")
        if told.fault:
            return result
        told.receives = np.zeros(len(self.receives), [("error", "u4")])
        return result + self._counted(told) + self._memory_faults(told)

    def _order(self, told: Told) -> list[int | None]:
        """Return which SEND each frame is of, as links have them; None: of none."""
        left: dict[tuple[int, int], list[int]] = {}
        for n, send in enumerate(self.sends):
            for port in self.leaves(send.fields["peer"]):
                left.setdefault((port, send.fields["step"]), []).append(n)
        result: list[int | None] = []
        for data, port in zip(told.frames, self._ports(told), strict=True):
            here = (ns for (at, _), ns in left.items() if at == port and ns and self.wanted[ns[0]] == data)
            result.append(next(here, [None]).pop(0))
        return result

    def _ports(self, told: Told) -> list[int]:
        """Return where each frame left."""
        return [0] * len(told.frames)

    def _peer_faults(self, order: list[int], told: Told) -> list[str]:
        """Return whether frames went to others than they should; order: of which SEND each is."""
        peers = [self.sends[n].fields["peer"] for n in order]
        return [] if peers == told.peers else [f"frames go to peers {told.peers}, not {peers}"]


class FloatTraffic(ListTraffic):
    """One batch in which values that are made while the list runs come as floats, too."""

    def _make(self, first: int) -> None:
        super()._make(first)
        shared = {first + send for send in self.into.values()}  # others add to the same rows meanwhile
        for n, making in enumerate(self.makings):
            integers = self.memory.values[making.rows].reshape(-1)[: making.count]
            if making.adds and not making.refused and integers.min() > LOWEST and self.rng.random() < 0.8:
                adds = making.entry in shared or self.rng.random() < 0.5
                self.makings[n] = replace(making, floats=self._floats(integers), adds=adds)

    def _floats(self, integers: np.ndarray) -> tuple[np.ndarray, Quantised]:
        """Return float32 that are quantised to integers, and how; as bfloat16 where they can be."""
        rng, exponent = self.rng, int(self.rng.integers(LEAST_EXPONENT, 112))
        parts = rng.integers(-127, 128, integers.size) / 256 * (rng.random(integers.size) < rng.random())
        values = np.ldexp((integers + parts).astype(np.float32), np.int32(exponent))
        short = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        form = BFLOAT16 if np.array_equal(short, values) else FLOAT32
        return values, Quantised(form, exponent, 16)


def floated(nic: WholeNic, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch through a NIC to which a list's values come as floats; return what was wrong."""
    return batch(FloatTraffic(generate, nic, int(generate.rng.integers(2, 24))), nic, seed, tally)


def listed(nic: WholeNic, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch through a NIC whose commands a list gives; return what was wrong."""
    return batch(ListTraffic(generate, nic, int(generate.rng.integers(2, 24))), nic, seed, tally)
