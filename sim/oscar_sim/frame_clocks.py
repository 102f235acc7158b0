"""Clocks that a whole NIC takes for frames: converted RTL under Verilator, looked at on its ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.coding.asc.params import (
    CODED,
    CONSTANT,
    DIRECTORY_BYTES,
    GROUP_ROWS,
    LANES,
    NARROW_CLASS,
    PREFIX_BYTES,
)
from oscar.coding.asc.reference import ReferenceCoder
from oscar.coding.asc.turns import cells_of, raw_rows
from oscar.coding.frame import HEADER_BYTES
from oscar.errors import OscarError
from oscar.timeline.turns import DONE
from oscar.timeline.units import UnitFrame
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.nic.control.registers import BY_NAME
from oscar_sim.whole import Arrival, NicMemory, Order, WholeNic

TRACED = 1 << 21  # clocks
LATE = 1  # clocks by which the probe shows what has happened


@dataclass(frozen=True)
class Given:
    """A frame to code: values of up to 16 bits, their position classes, and its link."""

    values: np.ndarray
    positions: np.ndarray | None
    link: int


@dataclass(frozen=True)
class Times:
    """When each frame of a run began and ended: int64 [frames], in clocks that count with the NIC's phase.

    command: when it was given. begin: that, or of a received frame its last word in if that is later.
    first_row: the first row read from then on. It is the frame's own where frames are alone, and for the
    first one. last_row: the last row read before the first word went out. first_word: when that was. Both are
    `end` of a received frame. end: the last word out, or the last sum. frames: as the time model has them.
    """

    command: np.ndarray
    begin: np.ndarray
    first_row: np.ndarray
    last_row: np.ndarray
    first_word: np.ndarray
    end: np.ndarray
    frames: Sequence[UnitFrame]


def measure(nic: WholeNic, frames: Sequence[Given], *, send: bool, apart: bool) -> Times:
    """Send or receive frames after a reset, one right after the other or (apart) each alone.

    Every frame and sum is checked. Raises OscarError where one is wrong.
    """
    block_log2, block_rows = nic.block_log2, 1 << nic.block_log2 - 5
    params, coded = AscParams(sent_rows=False, block_log2=block_log2), []
    coder, reference = CompiledCoder(params, 1), ReferenceCoder(params)
    encoders = [Encoder(params, coder=coder) for _ in range(16)]
    decoders = [Decoder(params, coder=reference) for _ in range(16)]
    memory, orders, arrivals, made = NicMemory(nic.rows), [], [], []
    rng, at, numbers, sums = np.random.default_rng(1), 0, [0] * 16, []
    for i, frame in enumerate(frames):
        link, count = frame.link, frame.values.size
        rows = frame_rows(frame.values, frame.positions)
        data = encoders[link].encode(
            frame.values, step=link, context=frame.positions, width=16, chunk=3, sub=1
        )
        coded.append(unit_frame(data, rows, block_log2, at))
        if not send:  # the reference tells what each step takes
            decoders[link].decode(data, step=link, context=frame.positions)
            coded[-1] = replace(coded[-1], takes=reference.taken)
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
    phase = int(ports["probe_phase"][0]) + LATE
    return Times(*(part + phase for part in (_sent(ports) if send else _received(ports))), coded)


def unit_frame(data: bytes, rows: FrameRows, log2: int, row: int) -> UnitFrame:
    """Return a frame as the time model has it, with what its directory says of its blocks.

    data: the frame, without sent rows. log2: of a block's values. row: its first row in memory.
    """
    payload = np.frombuffer(data, np.uint8, offset=HEADER_BYTES)
    blocks, each = -(-rows.count >> log2), (1 << log2) // LANES
    entries = payload[PREFIX_BYTES : PREFIX_BYTES + DIRECTORY_BYTES * blocks].reshape(blocks, DIRECTORY_BYTES)
    kinds = entries[:, 0] & 3
    seeds = np.where(kinds == CODED, entries[:, 0] >> 2 & 7, 0)
    sizes = np.where(kinds == CONSTANT, 0, entries[:, 3:].astype(np.int64) @ (1 << 8 * np.arange(3)))
    classes = rows.classes.copy()
    for block, count in enumerate(seeds):
        # Raw steps of seed rows are no turns: they are shifted into the states.
        live = np.flatnonzero(classes[block * each : (block + 1) * each])
        own = block * each + live[live // GROUP_ROWS == live[:1] // GROUP_ROWS][:count]
        classes[own] = np.minimum(classes[own], NARROW_CLASS)
    cells = cells_of(classes, rows.count, raw_rows(payload, PREFIX_BYTES, rows.count))
    last = int(payload[1]) >> 3 & 15
    return UnitFrame(cells, rows.count, len(data), sizes, row, seeds, last)


def _sent(ports: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    words = ports["m_axis_tx_tvalid"] & ports["m_axis_tx_tready"]
    last, word = np.flatnonzero(words & ports["m_axis_tx_tlast"]), np.flatnonzero(words)
    first, begin = word[np.searchsorted(word, np.append(0, last[:-1] + 1))], _commands(ports, "SEND")
    rows = ports["probe_encode_row"]
    return begin, begin, _rows(rows, begin), _rows(rows, first, before=True), first, last


def _received(ports: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    words = ports["s_axis_rx_tvalid"] & ports["s_axis_rx_tready"]
    command = _commands(ports, "RECEIVE")
    begin = np.maximum(np.flatnonzero(words & ports["s_axis_rx_tlast"]), command)
    end = np.flatnonzero(ports["probe_received"]) - LATE - DONE
    return command, begin, _rows(ports["probe_decode_row"], begin), end, end, end


def _rows(strobes: np.ndarray, begin: np.ndarray, *, before: bool = False) -> np.ndarray:
    """Return when a unit reads a row: first from each begin on, or last before it. Raw units do not count."""
    clocks = np.flatnonzero(strobes) - LATE
    if not clocks.size:
        return begin
    return clocks[np.clip(np.searchsorted(clocks, begin) - before, 0, clocks.size - 1)]


def _commands(ports: dict[str, np.ndarray], way: str) -> np.ndarray:
    """Return when the commands of a direction were given, at the write of their last register."""
    took = ports["s_axil_wvalid"] & ports["s_axil_wready"]
    return np.flatnonzero(took & (ports["s_axil_awaddr"] == BY_NAME[f"{way}_COMMAND"].offset))
