"""Clocks that a whole NIC takes for frames: converted RTL under Verilator, looked at on its ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.coding.asc import AscParams, Encoder
from oscar.coding.asc.compiled import CompiledCoder
from oscar.errors import OscarError
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.registers import BY_NAME
from oscar_sim.whole import NicMemory, Order, WholeNic

GROUP_ROWS = 32
TRACED = 1 << 21  # clocks


@dataclass(frozen=True)
class Given:
    """A frame to code: values of up to 16 bits, their position classes, and its link."""

    values: np.ndarray
    positions: np.ndarray | None
    link: int


@dataclass(frozen=True)
class Times:
    """Of each frame of a run, in clocks: when it could begin, its first and last row, first word, end.

    Sent: begin is its command, rows are read, end is the last word out. Received: begin is the last word in,
    rows are read, first_word is the first sum and end the last.
    """

    begin: np.ndarray
    first_row: np.ndarray
    last_row: np.ndarray
    first_word: np.ndarray
    end: np.ndarray
    sizes: np.ndarray  # bytes
    cells: Sequence[np.ndarray | None]


def measure(
    nic: WholeNic, frames: Sequence[Given], *, send: bool, apart: bool, block_log2: int = 12
) -> Times:  # fmt: skip
    """Send or receive frames after a reset, one right after the other or (apart) each alone.

    Every frame and sum is checked. Raises OscarError where one is wrong.
    """
    params = AscParams(sent_rows=False, block_log2=block_log2)
    coder, cells = CompiledCoder(params, 1), []
    encoders = [Encoder(params, coder=coder) for _ in range(16)]
    memory, orders, arrivals, coded = NicMemory(nic.rows), [], [], []
    rng, at, numbers, sums = np.random.default_rng(1), 0, [0] * 16, []
    for i, frame in enumerate(frames):
        link, count = frame.link, frame.values.size
        rows = frame_rows(frame.values, frame.positions)
        data = encoders[link].encode(
            frame.values, step=link, context=frame.positions, width=16, chunk=3, sub=1
        )
        cells.append(coder.work())
        fields = {
            "step": link, "chunk": 3, "sub": 1, "width": 16, "count": count, "sequence": numbers[link],
            "load": link, "save": link, "fresh": int(numbers[link] == 0), "row": at,
        }  # fmt: skip
        numbers[link] += 1
        coded.append(data)
        if send:
            memory.load(at, rows)
            fields |= {"last": rows.last, "block_log2": block_log2}
        else:
            local = rng.integers(-99, 99, count).astype(np.int16)
            memory.load(at, frame_rows(local, frame.positions))
            fields["add"] = 1
            arrivals.append((data, i if apart else 0))
            sums.append((at, frame_rows(frame.values + local, frame.positions)))
        ended = i if apart else 0
        orders.append(Order(fields, (0, ended) if send else (ended, 0)))
        at += -(-count // (32 * GROUP_ROWS)) * GROUP_ROWS
    if at > nic.rows:
        raise OscarError(f"expected at most {nic.rows} rows, got {at}")
    nic.reset()
    nic.model.trace(TRACED)
    told = nic.run(memory, **({"sends": orders} if send else {"receives": orders, "arrivals": arrivals}))
    ports = nic.model.traced()
    nic.model.trace(0)
    errors = [int(e) for e in (*told.receives["error"], *told.sends["error"]) if e]
    if told.fault or errors or (send and told.frames != coded):
        raise OscarError(f"the NIC fails: {told.fault or errors or 'other frames'}")
    for row, wanted in sums:
        if not np.array_equal(memory.values[row : row + wanted.means.size], wanted.values):
            raise OscarError("the NIC fails: other sums")
    told_of = np.array([len(data) for data in coded]), cells
    if send:
        return Times(*_sent(nic, ports), *told_of)
    live = np.array([np.count_nonzero(frame_rows(frame.values).classes) for frame in frames])
    return Times(*_received(ports, live), *told_of)


def _sent(nic: WholeNic, ports: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    words = ports["m_axis_tx_tvalid"] & ports["m_axis_tx_tready"]
    last = np.flatnonzero(words & ports["m_axis_tx_tlast"])
    word = np.flatnonzero(words)
    first = word[np.searchsorted(word, np.append(0, last[:-1] + 1))]
    takes = np.flatnonzero(_wide(ports["source_take"]) & np.uint64((1 << nic.engines) - 1))
    begin = _commands(ports, "SEND")
    one = takes[
        np.minimum(np.searchsorted(takes, np.maximum(begin, np.append(0, first[:-1]))), takes.size - 1)
    ]
    return begin, one, takes[np.searchsorted(takes, first) - 1], first, last


def _received(ports: dict[str, np.ndarray], live: np.ndarray) -> tuple[np.ndarray, ...]:
    words = ports["s_axis_rx_tvalid"] & ports["s_axis_rx_tready"]
    arrived = np.flatnonzero(words & ports["s_axis_rx_tlast"])
    totals = np.cumsum(_ones(ports["sum_valid"]))
    until = 32 * np.cumsum(live)
    end, first = np.searchsorted(totals, until), np.searchsorted(totals, until - 32 * live + 1)
    takes = np.flatnonzero(_wide(ports["position_take"]))
    begin = np.maximum(arrived, _commands(ports, "RECEIVE"))
    one = takes[np.minimum(np.searchsorted(takes, begin), takes.size - 1)]
    return begin, one, takes[np.searchsorted(takes, end) - 1], first, end


def _commands(ports: dict[str, np.ndarray], way: str) -> np.ndarray:
    """Return when the commands of a direction were given, at the write of their last register."""
    took = ports["s_axil_wvalid"] & ports["s_axil_wready"]
    return np.flatnonzero(took & (ports["s_axil_awaddr"] == BY_NAME[f"{way}_COMMAND"].offset))


def _wide(port: np.ndarray) -> np.ndarray:
    return port.astype(np.uint64)


def _ones(port: np.ndarray) -> np.ndarray:
    """Return how many bits of each are set."""
    bits: Any = np.unpackbits(port.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1)
    return np.asarray(bits.sum(axis=1, dtype=np.int64))
