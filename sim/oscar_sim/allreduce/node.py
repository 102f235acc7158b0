"""A simulated node: what is around its NIC, and what it does in an AllReduce."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from oscar.coding.asc.params import LANES
from oscar.coding.frame import Header
from oscar.timeline.driver import Part, load_order
from oscar.timeline.nic import load_nic
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.nic.ports import NicProbe, frames_in, frames_out, row_streams
from oscar_hdl.streams.bundles import AxiLite, Stream, bit
from oscar_sim.allreduce.expected import Iteration
from oscar_sim.allreduce.network import LateLevel, Manager, NetworkPort, WordSource
from oscar_sim.allreduce.plan import Planning
from oscar_sim.allreduce.row_streams import RowStreams
from oscar_sim.allreduce.timeline import UnitWork
from oscar_sim.driver.lists import Entry, entries, makers
from oscar_sim.driver.nic_driver import NicDriver, Place, Script, together
from oscar_sim.driver.programme import Key, programme
from oscar_sim.driver.row_packets import Lines

if TYPE_CHECKING:
    from oscar_sim.allreduce.run import Run


class SimulatedNode:
    """A NIC, its streams of rows, its port and its driver."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank = run, rank
        options = run.options
        self.signals: dict[str, Any] = {
            "s_axil": AxiLite(8),
            "irq": bit(),
            "s_axis_rx": frames_in(options.bus_bits),
            "m_axis_tx": frames_out(options.bus_bits),
            "s_axis_list": Stream(64),
            **row_streams(options.units),
            "probe": NicProbe(),
        }
        self.work = UnitWork(self.signals["probe"])
        self.rows = RowStreams(self.signals, Lines(options.units, 1 << (options.block_log2 - 5)))
        self.sums = np.zeros(0, np.int16)  # of the last AllReduce, in plan order
        self.ready = False  # for frames of an AllReduce: values are there, or made from now on
        self.began = self.clocks = 0  # of an AllReduce: its first clock, and from there to its last frame
        self.port = NetworkPort(
            rank, self.signals["s_axis_rx"], self.signals["m_axis_tx"], rate=options.rate,
            latency=options.latency, forward=self._forward,
        )  # fmt: skip
        write, read, notice = options.host
        self.manager = Manager(self.signals["s_axil"], write=write, read=read)
        self.lists = WordSource(self.signals["s_axis_list"])
        self.used: dict[str, int] = {}  # registers and interrupts of an AllReduce
        self.irq = LateLevel(self.signals["irq"], notice, lambda: run.clocks)
        self.driver = NicDriver(
            self.manager, self.irq, rank=rank,
            width=run.width, block_log2=options.block_log2, now=lambda: run.clocks,
            list_stream=self.lists if options.driver != "registers" else None,
        )  # fmt: skip
        self.programme = programme(rank, run.schedule)
        self.planning = Planning(options.values, options.nodes, options.granule)

    def _key(self, source: int, header: Header) -> Key:
        return Key.of_header(source, header, self.run.options.nodes)

    def _forward(self, source: int, header: Header) -> list[int]:
        return self.programme.forwards.get(self._key(source, header), [])

    def start(self, expected: Iteration) -> Script:
        """Make local values, perform an AllReduce, and read the sums, which then count for the next plan."""
        places, options, self.expected = self.run.places, self.run.options, expected
        self.ready = False
        self.port.frames.clear()
        self.port.spans.clear()
        self.work.clear()
        self.driver.commands.clear()
        if options.asks:  # early reads count when they are repeated: a write for each would take clocks
            yield from self.driver.count_sums(0, count=0)
        self.used, start = self._counts(), self.run.clocks
        early: dict[Part, Any] = {}  # read while a list runs

        def read(chunk: int, sub: int) -> Script:
            place = places[chunk, sub]
            early[chunk, sub] = yield from self.rows.fetch(place.row, place.count)

        reads = read if options.asks else None
        if options.driver in ("triggered", "adding"):
            if options.driver == "adding":
                yield from self._empty(expected)
                start = self.run.clocks
            listed = self._listed(late=True)
            self.ready = True
            armed = self.run.clocks + round(_entry_clocks() * len(listed))
            making = self._make(expected, makers(listed), armed)
            yield from together([self.driver.run_list(listed, self.run.place, reads=reads), making])
        else:
            yield from self._make(expected, {}, 0)
            if not options.make:
                start = self.run.clocks
            self.ready = True
            if options.driver == "registers":
                yield from self.driver.run(self.programme, self.run.place)
            else:
                yield from self.driver.run_list(self._listed(late=False), self.run.place, reads=reads)
        sent = sum((send.frame.chunk, send.frame.sub) in places for send in self.programme.sends)
        self.used = {name: count - self.used[name] for name, count in self._counts().items()}
        while len(self.port.frames) < sent or not self.port.idle:
            yield
        self.began, self.clocks = start, self.run.clocks - start
        sums = []
        for part, place in places.items():
            yield from self.driver.count_sums(place.first)
            sums.append((yield from self.rows.fetch(place.row, place.count)))
            if part in early and not np.array_equal(early[part], sums[-1]):
                self.run.faults.append(f"node {self.rank} read sums of {part} that were not whole")
        self.sums = np.concatenate([self.sums[:0], *sums])

    def _listed(self, *, late: bool) -> list[Entry]:
        """Return the list of an AllReduce; late: own values come while it runs, their last packets count."""

        def count(*part: int) -> int:
            return self.run.place(*part).count

        made = (lambda *part: self._last(self.run.place(*part))) if late else None
        return entries(self.programme, count, made=made, adds=self.run.options.driver == "adding")

    def _counts(self) -> dict[str, int]:
        """Return how many registers were written and read so far, and interrupts noticed."""
        return self.manager.used | {"interrupts": self.irq.rises}

    def _empty(self, expected: Iteration) -> Script:
        """Lay out rows of zeros, before any value is known."""
        for place in self.run.places.values():
            yield from self.rows.empty(place.row, self._rows(expected, place.first, place.count))

    def _rows(self, expected: Iteration, first: int, count: int) -> FrameRows:
        """Return rows of so many local values, from one on."""
        part = slice(first, first + count)
        return frame_rows(expected.local[self.rank][part], expected.classes[part])

    def _cuts(self, count: int) -> list[int]:
        """Return the values of each packet of so many.

        Where values are made, a packet is a line of blocks. Where all are there, all lines but the last are
        one packet.
        """
        options = self.run.options
        each = options.units << options.block_log2
        cuts = [min(each, count - low) for low in range(0, count, each)]
        return cuts if options.make else [n for n in (sum(cuts[:-1]), cuts[-1]) if n]

    def _last(self, place: Place) -> int:
        """Return the values of the last packet of a part."""
        last = self._cuts(place.count)[-1]
        if floats := self.expected.floats:
            first = place.first + place.count - last
            *_, packet = floats.packets(self.rank, first, last, rows=self._aligned())
            return packet.values.size
        return last

    def _aligned(self) -> int:
        """Return the rows of which a multiple is the first row of a packet of values."""
        return 1 if self.run.options.units == 1 else self.rows.lines.block

    def _order(self) -> Iterable[Part]:
        """Return the parts in the order in which values are made."""
        run = self.run
        if run.options.order == "plain":
            return run.places
        if run.options.order == "pieces":
            return [part for part in load_order(run.schedule, self.rank) if part in run.places]
        sends = (send.frame for send in self.programme.sends)
        return [part for part in dict.fromkeys((a.chunk, a.sub) for a in sends) if part in run.places]

    def _make(self, expected: Iteration, numbers: dict[Part, int], armed: int) -> Script:
        """Make local values and load them in packets; numbers: of entries, by part.

        A part's last packet counts for its entry, and waits for its turn until the clock at which the list is
        armed: others go before it, or they would wait behind it.
        """
        due, late = float(self.run.clocks), deque[Script]()
        for part in self._order():
            place, low = self.run.place(*part), 0
            for count in self._cuts(place.count):
                due += count * self.run.options.make
                while self.run.clocks < due:
                    yield
                entry = numbers.get(part) if low + count == place.count else None
                packet = self._load(expected, place, low, count, entry)
                low += count
                if entry is not None and self.run.clocks < armed:
                    late.append(packet)
                    continue
                while late and self.run.clocks >= armed:
                    yield from late.popleft()
                yield from packet
        while late:
            yield from late.popleft()

    def _load(self, expected: Iteration, place: Place, low: int, count: int, entry: int | None) -> Script:
        """Load so many values of a part, from number `low` on; entry: that waits for them."""
        row, rows = place.row + low // LANES, self._rows(expected, place.first + low, count)
        adds = self.run.options.driver == "adding"
        if expected.floats:
            if not adds:
                yield from self.rows.empty(row, rows)
            first, aligned = place.first + low, self._aligned()
            packets = list(expected.floats.packets(self.rank, first, count, rows=aligned))
            for n, packet in enumerate(packets):
                waited = entry if n == len(packets) - 1 else None
                yield from self.rows.quantise(row, packet, waited, adds=adds)
        elif adds:
            yield from self.rows.add(row, rows, entry)
        else:
            settles = self.run.options.driver != "triggered"
            yield from self.rows.load(row, rows, entry, settles=settles)

    def split(self) -> Script:
        """Have the planner cut the sums of the last AllReduce."""
        yield from self.planning.split(self.driver)

    def tick(self) -> None:
        """One rising edge."""
        self.rows.tick()
        self.port.tick()
        self.work.tick(self.run.clocks)
        self.lists.tick()


@cache
def _entry_clocks() -> float:
    """Return the clocks in which an entry of a list is judged and armed, by the package's NIC."""
    driver = load_nic().driver
    assert driver is not None
    assert driver.list is not None
    return driver.list.entry_clocks
