"""Clocks that a whole NIC takes for frames: converted RTL under Verilator, looked at on its ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oscar.coding.asc import AscParams, Encoder
from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.coding.asc.params import PREFIX_BYTES
from oscar.coding.asc.turns import cells_of, raw_rows
from oscar.coding.frame import HEADER_BYTES
from oscar.errors import OscarError
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.control.registers import BY_NAME
from oscar_sim.whole import Arrival, NicMemory, Order, WholeNic

TRACED = 1 << 21  # clocks
CLEARED = 2000  # clocks from a reset until all memories are cleared: the first frame does not wait
LATE = 1  # clocks by which the probe shows what has happened


@dataclass(frozen=True)
class Given:
    """A frame to code: values of up to 16 bits, their position classes, and its link."""

    values: np.ndarray
    positions: np.ndarray | None
    link: int


@dataclass(frozen=True)
class Times:
    """Clocks at which frames of a run began and ended, int64 [frames]. They count with the NIC's phase.

    Attributes:
        begin: The command of a sent frame. Of a received one its last word in, or its command if that is
            later.
        first_row: The first row that is read from then on. It is the frame's own where frames are alone.
        end: The first word out of a sent frame. A received one is reported.
        cells: What each frame gives units to do (`asc.turns.cells_of`).
    """

    begin: np.ndarray
    first_row: np.ndarray
    end: np.ndarray
    cells: Sequence[np.ndarray]


def measure(nic: WholeNic, frames: Sequence[Given], *, send: bool, apart: bool) -> Times:
    """Send or receive frames after a reset, one right after the other or (apart) each alone.

    Every frame and sum is checked. Raises OscarError where one is wrong.
    """
    block_log2, block_rows = nic.block_log2, 1 << nic.block_log2 - 5
    params, cells = AscParams(sent_rows=False, block_log2=block_log2), []
    coder = CompiledCoder(params, 1)
    encoders = [Encoder(params, coder=coder) for _ in range(16)]
    memory, orders, arrivals, made = NicMemory(nic.rows), [], [], []
    rng, at, numbers, sums = np.random.default_rng(1), 0, [0] * 16, []
    for i, frame in enumerate(frames):
        link, count = frame.link, frame.values.size
        rows = frame_rows(frame.values, frame.positions)
        data = encoders[link].encode(
            frame.values, step=link, context=frame.positions, width=16, chunk=3, sub=1
        )
        payload = np.frombuffer(data, np.uint8, offset=HEADER_BYTES)
        cells.append(cells_of(rows.classes, count, raw_rows(payload, PREFIX_BYTES, count)))
        fields = {
            "step": link, "chunk": 3, "sub": 1, "width": 16, "count": count, "sequence": numbers[link],
            "load": link, "save": link, "fresh": int(numbers[link] == 0), "row": at,
        }  # fmt: skip
        numbers[link] += 1
        made.append(data)
        if send:
            memory.load(at, rows)
        else:
            local = rng.integers(-99, 99, count).astype(np.int16)
            memory.load(at, frame_rows(local, frame.positions))
            fields["add"] = 1
            arrivals.append(Arrival(data, i if apart else 0))
            sums.append((at, frame_rows(frame.values + local, frame.positions)))
        ended = i if apart else 0
        orders.append(Order(fields, (0, ended) if send else (ended, 0)))
        at += (-(-count >> block_log2)) * block_rows
    if at > nic.rows:
        raise OscarError(f"expected at most {nic.rows} rows, got {at}")
    nic.reset(CLEARED)
    nic.model.trace(TRACED)
    told = nic.run(memory, **({"sends": orders} if send else {"receives": orders, "arrivals": arrivals}))
    ports = nic.model.traced()
    nic.model.trace(0)
    errors = [int(e) for e in (*told.receives["error"], *told.sends["error"]) if e]
    if told.fault or errors or (send and told.frames != made):
        raise OscarError(f"the NIC fails: {told.fault or errors or 'other frames'}")
    for row, wanted in sums:
        if not np.array_equal(memory.values[row : row + wanted.means.size], wanted.values):
            raise OscarError("the NIC fails: other sums")
    phase = int(ports["probe_phase"][0]) + LATE
    return Times(*(part + phase for part in (_sent(ports) if send else _received(ports))), cells)


def _sent(ports: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    words = ports["m_axis_tx_tvalid"] & ports["m_axis_tx_tready"]
    last, word = np.flatnonzero(words & ports["m_axis_tx_tlast"]), np.flatnonzero(words)
    first, begin = word[np.searchsorted(word, np.append(0, last[:-1] + 1))], _commands(ports, "SEND")
    return begin, _first_rows(ports["probe_encode_row"], begin), first


def _received(ports: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    words = ports["s_axis_rx_tvalid"] & ports["s_axis_rx_tready"]
    begin = np.maximum(np.flatnonzero(words & ports["s_axis_rx_tlast"]), _commands(ports, "RECEIVE"))
    end = np.flatnonzero(ports["probe_received"]) - LATE
    return begin, _first_rows(ports["probe_decode_row"], begin), end


def _first_rows(strobes: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Return when a unit reads the first row from each begin on, or the begin. Raw units do not count."""
    clocks = np.flatnonzero(strobes) - LATE
    places = np.searchsorted(clocks, begin)
    return np.where(places < clocks.size, np.append(clocks, 0)[places], begin)


def _commands(ports: dict[str, np.ndarray], way: str) -> np.ndarray:
    """Return when the commands of a direction were given, at the write of their last register."""
    took = ports["s_axil_wvalid"] & ports["s_axil_wready"]
    return np.flatnonzero(took & (ports["s_axil_awaddr"] == BY_NAME[f"{way}_COMMAND"].offset))
