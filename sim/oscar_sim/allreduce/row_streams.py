"""What loads and reads the rows of a simulated NIC: its streams, moved on once a clock."""

from __future__ import annotations

from typing import Any

from oscar_hdl.coder.rows import FrameRows
from oscar_sim.allreduce.network import WordSource
from oscar_sim.driver.float_packets import FloatPacket
from oscar_sim.driver.nic_driver import Script
from oscar_sim.driver.row_packets import Lines, emptied, packet_start

SETTLES = 140  # clocks until the last row of a packet and zeros behind it are in memory


class RowStreams:
    """Loads and reads rows by a NIC's streams, whose signals are `ports`; lines: of its packets."""

    def __init__(self, ports: dict[str, Any], lines: Lines) -> None:
        self.lines = lines
        self.values, self.side, self.read = (
            WordSource(ports[f"s_axis_{name}"]) for name in ("values", "side", "read")
        )
        self._out, self._kinds = ports["m_axis_values"], ports["m_axis_descriptors"]
        self._words: list[int] = []
        self._ends = 0
        self._ready = False

    def load(self, row: int, rows: FrameRows, entry: int | None, *, settles: bool) -> Script:
        """Write rows of a frame, from a row on; entry: of a list that waits for them.

        settles: until they are in memory, not just on their way there.
        """
        start = packet_start(row, rows.count, entry)
        self.values.put([start, *self.lines.value_words(row, rows)])
        self.side.put([start, *self.lines.side_words(row, rows)])
        while not (self.values.idle and self.side.idle):
            yield
        for _ in range(SETTLES if settles else 0):
            yield

    def empty(self, row: int, rows: FrameRows) -> Script:
        """Write all but the values of rows, which read as zeros then."""
        self.side.put([packet_start(row, rows.count), *self.lines.side_words(row, emptied(rows))])
        while not self.side.idle:
            yield
        for _ in range(SETTLES):
            yield

    def add(self, row: int, rows: FrameRows, entry: int | None) -> Script:
        """Add values to rows; entry: of a list that waits for them."""
        start = packet_start(row, rows.count, entry, adds=True)
        self.values.put([start, *self.lines.value_words(row, rows)])
        while not self.values.idle:
            yield

    def quantise(self, row: int, packet: FloatPacket, entry: int | None, *, adds: bool) -> Script:
        """Give floats, which replace values of rows or, where the packet shares one, are added to them.

        row: at which the part begins.
        """
        first = row + packet.row
        start = packet_start(first, packet.values.size, entry, adds=adds or packet.shared, floats=packet.how)
        self.values.put([start, *self.lines.float_words(first, packet.values, packet.how)])
        while not self.values.idle:
            yield

    def fetch(self, row: int, count: int) -> Script:
        """Return `count` values from a row on, int16."""
        self._words.clear()
        self._ends = 0
        self.read.put([packet_start(row, count)])
        while self._ends < 2:
            yield
        return self.lines.values(row, count, self._words)

    def tick(self) -> None:
        """One rising edge."""
        for source in (self.values, self.side, self.read):
            source.tick()
        if self._ready:
            if self._out.tvalid:
                self._words.append(int(self._out.tdata))
                self._ends += int(self._out.tlast)
            self._ends += int(self._kinds.tvalid and self._kinds.tlast)
        else:
            self._out.tready.next = self._kinds.tready.next = self._ready = True
