"""What loads and reads the rows of a simulated NIC: its streams, moved on once a clock."""

from __future__ import annotations

from typing import Any

from oscar_hdl.coder.rows import FrameRows
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import Stream
from oscar_sim.allreduce.network import WordSource
from oscar_sim.driver.nic_driver import Script
from oscar_sim.driver.row_packets import packet_start, side_words, value_words, values_of

SETTLES = 140  # clocks until the last row of a packet and zeros behind it are in memory


def row_ports() -> dict[str, Any]:
    """Return fresh streams of an oscar_nic's rows, by name."""
    return {
        "s_axis_values": Stream(STREAM_BITS),
        "s_axis_side": Stream(STREAM_BITS),
        "s_axis_read": Stream(64),
        "m_axis_values": Stream(STREAM_BITS),
        "m_axis_descriptors": Stream(16),
    }


class RowStreams:
    """Loads and reads rows by a NIC's streams, whose signals are `ports`."""

    def __init__(self, ports: dict[str, Any]) -> None:
        self.values, self.side, self.read = (
            WordSource(ports[f"s_axis_{name}"]) for name in ("values", "side", "read")
        )
        self._out, self._kinds = ports["m_axis_values"], ports["m_axis_descriptors"]
        self._words: list[int] = []
        self._ends = 0
        self._ready = False

    def load(self, row: int, rows: FrameRows, entry: int | None = None) -> Script:
        """Write rows of a frame, from a row on; entry: of a list that waits for them."""
        start = packet_start(row, rows.count, entry)
        self.values.put([start, *value_words(rows)])
        self.side.put([start, *side_words(rows)])
        while not (self.values.idle and self.side.idle):
            yield
        for _ in range(SETTLES if entry is None else 0):
            yield

    def fetch(self, row: int, count: int) -> Script:
        """Return `count` values from a row on, int16."""
        self._words.clear()
        self._ends = 0
        self.read.put([packet_start(row, count)])
        while self._ends < 2:
            yield
        return values_of(self._words, count)

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
