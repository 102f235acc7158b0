"""Clocks that a whole NIC takes for frames: converted RTL under Verilator, looked at on its ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oscar.coding.asc import AscParams, Encoder
from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.coding.asc.params import CONSTANT, DIRECTORY_BYTES, PREFIX_BYTES
from oscar.coding.frame import HEADER_BYTES
from oscar.errors import OscarError
from oscar.timeline.units import UnitFrame
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.control.registers import BY_NAME
from oscar_sim.whole import Arrival, NicMemory, Order, WholeNic

TRACED = 1 << 21  # clocks
DONE = 63  # clocks from the last sum to the end of a RECEIVE, which waits for its descriptor


@dataclass(frozen=True)
class Given:
    """A frame to code: values of up to 16 bits, their position classes, and its link."""

    values: np.ndarray
    positions: np.ndarray | None
    link: int


@dataclass(frozen=True)
class Times:
    """Of each frame of a run, in clocks: when it could begin, its first row, first word, end.

    Sent: begin is its command; first_row is the first row read behind that, so it is right for frames that
    are alone, and for the first one; first_word is the first one out and end the last. Received: begin is
    the last word in, first_word is not told, end is the last sum.
    """

    begin: np.ndarray
    first_row: np.ndarray
    first_word: np.ndarray
    end: np.ndarray
    frames: Sequence[UnitFrame]


def measure(
    nic: WholeNic, frames: Sequence[Given], *, send: bool, apart: bool
) -> Times:  # fmt: skip
    """Send or receive frames after a reset, one right after the other or (apart) each alone.

    Every frame and sum is checked. Raises OscarError where one is wrong.
    """
    block_log2, block_rows = nic.block_log2, 1 << nic.block_log2 - 5
    params = AscParams(sent_rows=False, block_log2=block_log2)
    coder, coded = CompiledCoder(params, 1), []
    encoders = [Encoder(params, coder=coder) for _ in range(16)]
    memory, orders, arrivals, made = NicMemory(nic.rows), [], [], []
    rng, at, numbers, sums = np.random.default_rng(1), 0, [0] * 16, []
    for i, frame in enumerate(frames):
        link, count = frame.link, frame.values.size
        rows = frame_rows(frame.values, frame.positions)
        data = encoders[link].encode(
            frame.values, step=link, context=frame.positions, width=16, chunk=3, sub=1
        )
        coded.append(UnitFrame(coder.work(), count, len(data), block_bytes(data, count, block_log2), at))
        fields = {
            "step": link, "chunk": 3, "sub": 1, "width": 16, "count": count, "sequence": numbers[link],
            "load": link, "save": link, "fresh": int(numbers[link] == 0), "row": at,
        }  # fmt: skip
        numbers[link] += 1
        made.append(data)
        if send:
            memory.load(at, rows)
            fields["block_log2"] = block_log2
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
    nic.reset()
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
    return Times(*(_sent(ports) if send else _received(ports)), coded)


def block_bytes(data: bytes, count: int, log2: int) -> np.ndarray:
    """Return the bytes of a frame's blocks, 0 of constant ones. The frame has no sent rows."""
    blocks = -(-count >> log2)
    at = HEADER_BYTES + PREFIX_BYTES
    directory = np.frombuffer(data, np.uint8, DIRECTORY_BYTES * blocks, at).reshape(blocks, DIRECTORY_BYTES)
    sizes = directory[:, 3:].astype(np.int64) @ (1 << 8 * np.arange(3))
    return np.where(directory[:, 0] & 3 == CONSTANT, 0, sizes)


def _sent(ports: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    words = ports["m_axis_tx_tvalid"] & ports["m_axis_tx_tready"]
    last, word = np.flatnonzero(words & ports["m_axis_tx_tlast"]), np.flatnonzero(words)
    first, begin = word[np.searchsorted(word, np.append(0, last[:-1] + 1))], _commands(ports, "SEND")
    return begin, _rows(ports["probe_encode_row"], begin), first, last


def _received(ports: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    words = ports["s_axis_rx_tvalid"] & ports["s_axis_rx_tready"]
    begin = np.maximum(np.flatnonzero(words & ports["s_axis_rx_tlast"]), _commands(ports, "RECEIVE"))
    end = np.flatnonzero(ports["probe_received"]) - DONE
    return begin, _rows(ports["probe_decode_row"], begin), end, end


def _rows(strobes: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Return the first clock from each begin on in which a unit reads a row; raw units do not count."""
    clocks = np.flatnonzero(strobes) - 1  # probe_strobes tells it a clock later
    if not clocks.size:
        return begin
    return clocks[np.minimum(np.searchsorted(clocks, begin), clocks.size - 1)]


def _commands(ports: dict[str, np.ndarray], way: str) -> np.ndarray:
    """Return when the commands of a direction were given, at the write of their last register."""
    took = ports["s_axil_wvalid"] & ports["s_axil_wready"]
    return np.flatnonzero(took & (ports["s_axil_awaddr"] == BY_NAME[f"{way}_COMMAND"].offset))
