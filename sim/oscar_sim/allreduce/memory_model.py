"""A NIC's memory in Python behind the ports of nic_core, moved on once a clock (docs/engine.md)."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from oscar_hdl.coder.ports import LANES, READ_CLOCKS
from oscar_hdl.coder.rows import MEAN_AT, SIZE_AT, TOP_AT, FrameRows


class _Reads:
    """What a port gives in the clocks to come: a slot's data from the fourth clock after its take on."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.due: deque[tuple[int, list[int], int]] = deque()  # first clock, data, mean
        self.at = 0

    def put(self, now: int, data: list[int], mean: int) -> None:
        """Data of a take in clock `now`."""
        self.due.append((now + READ_CLOCKS, data, mean))

    def tick(self, now: int) -> None:
        """Give what is due in the next clock."""
        if not self.due:
            return
        start, data, mean = self.due[0]
        k = now + 1 - start
        if k < 0:
            return
        self.port.data.next = data[k]
        if not k:
            self.port.mean.next = mean
        if k == LANES - 1:
            self.due.popleft()


class MemoryModel:
    """Rows of values, distances and descriptors; `ports` are nic_core's, by name."""

    def __init__(self, rows: int, ports: dict[str, Any]) -> None:
        self.ports = ports
        self.value = np.zeros((rows, LANES), np.int32)
        self.distance = np.zeros((rows, LANES), np.uint8)
        self.mean, self.row_class, self.size, self.top = (np.zeros(rows, np.uint8) for _ in range(4))
        self.clock = 0
        self.reads = [_Reads(port) for port in (*ports["positions"], *ports["sources"])]
        self.reset()

    def reset(self) -> None:
        """Forget what is under way; rows stay."""
        for read in self.reads:
            read.due.clear()
        sums = self.ports["sums"]
        self.locals: list[deque[tuple[int, list[int]]]] = [deque() for _ in sums]
        self.open: list[deque[int]] = [deque() for _ in sums]  # rows whose totals are due
        self.lane = [LANES - 1 for _ in sums]
        self.cleared_at = self.known_at = -1

    def load(self, row: int, rows: FrameRows) -> None:
        """Hold a frame's rows from `row` on; rows that fill up the last group are zeros."""
        n = rows.means.size
        end = row - (-n // LANES) * LANES
        for array in (self.value, self.distance, self.mean, self.row_class, self.size, self.top):
            array[row:end] = 0
        part = slice(row, row + n)
        self.value[part], self.distance[part], self.mean[part] = rows.values, rows.distances, rows.means
        self.row_class[part], self.size[part], self.top[part] = rows.classes, rows.sizes, rows.tops

    def values(self, row: int, count: int) -> np.ndarray:
        """Return `count` values from a row on."""
        return self.value[row : row - (-count // LANES)].reshape(-1)[:count].copy()

    def tick(self) -> None:
        """One rising edge."""
        now, ports = self.clock, self.ports
        if ports["clear"]:
            part = slice(int(ports["clear_row"]), int(ports["clear_row"]) + int(ports["clear_rows"]))
            for array in (self.value, self.row_class, self.size, self.top):
                array[part] = 0
            self.cleared_at = now + 2
        ports["cleared"].next = now == self.cleared_at
        top = ports["top"]
        if top.ask:
            rows = slice(int(top.row), int(top.row) - (-int(top.count) // LANES))
            top.symbol.next = int(self.top[rows].max())
            self.known_at = now + 2
        top.known.next = now == self.known_at
        for unit, port in enumerate(ports["positions"]):
            if port.take:
                self._position(unit, port)
        for unit, port in enumerate(ports["sources"]):
            if port.take:
                self._source(unit, port)
        for unit, port in enumerate(ports["sums"]):
            self._sum(unit, port)
        for read in self.reads:
            read.port.ok.next = True
            read.tick(now)
        self.clock += 1

    def _position(self, unit: int, port: Any) -> None:
        row = int(self.ports["decode_rows"][unit]) + int(port.row)
        data = self.mean[row : row + LANES] if port.header else self.distance[row]
        self.reads[unit].put(self.clock, data[::-1].tolist(), int(self.mean[row]))

    def _source(self, unit: int, port: Any) -> None:
        row = int(self.ports["encode_rows"][unit]) + int(port.row)
        if port.header:
            part = slice(row, row + LANES)
            arrays = self.row_class, self.size, self.mean, self.top
            classes, sizes, means, tops = (array[part].astype(np.int32) for array in arrays)
            data = classes | sizes << SIZE_AT | means << MEAN_AT | tops << TOP_AT
        else:
            data = (self.value[row] & 0xFFFF) | self.distance[row].astype(np.int32) << 16
        reader = self.reads[len(self.ports["positions"]) + unit]
        reader.put(self.clock, data.tolist(), int(self.mean[row]))

    def _sum(self, unit: int, port: Any) -> None:
        now, base = self.clock, int(self.ports["decode_rows"][unit])
        if port.described:
            row = base + int(port.described_row)
            self.row_class[row], self.size[row] = int(port.row_class), int(port.row_size)
            self.top[row] = int(port.row_top)
        if port.take:
            row = base + int(port.row)
            adopt = bool(self.ports["adopt"][unit])
            data = [0] * LANES if adopt else (self.value[row, ::-1] & 0xFFFF).tolist()
            self.locals[unit].append((now + READ_CLOCKS, data))
            self.open[unit].append(row)
        if port.valid:
            total = int(port.total)
            self.value[self.open[unit][0], self.lane[unit]] = total - (total >> 15 << 16)
            self.lane[unit] -= 1
            if self.lane[unit] < 0:
                self.lane[unit] = LANES - 1
                self.open[unit].popleft()
        due = self.locals[unit]
        if due and now + 1 >= due[0][0]:
            k = now + 1 - due[0][0]
            port.local.next = due[0][1][k]
            if k == LANES - 1:
                due.popleft()


def memory_ports(units: int) -> dict[str, Any]:
    """Return fresh signals for nic_core's ports of memory, by name."""
    from oscar_hdl.coder.ports import PositionPort, SourcePort, SumPort
    from oscar_hdl.nic.control.registers import ROW_BITS
    from oscar_hdl.nic.ports import STREAM_BITS, TopPort
    from oscar_hdl.streams.bundles import Stream, bit, word

    return {
        "phase": word(5),
        "positions": [PositionPort() for _ in range(units)],
        "sums": [SumPort() for _ in range(units)],
        "decode_rows": [word(ROW_BITS) for _ in range(units)],
        "adopt": [bit() for _ in range(units)],
        "sources": [SourcePort() for _ in range(units)],
        "encode_rows": [word(ROW_BITS) for _ in range(units)],
        "clear": bit(),
        "cleared": bit(),
        "clear_row": word(ROW_BITS),
        "clear_rows": word(14),
        "top": TopPort(),
        "bad_packets": word(3),
        "s_axis_sums": Stream(STREAM_BITS, keep=STREAM_BITS // 8),
    }
