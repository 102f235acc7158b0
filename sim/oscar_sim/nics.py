"""RTL-backed NICs for the host: `nic: verilator` of a configuration (entry points of the group oscar.nic).

A simulated NIC codes format 4 as hardware does: values of up to 16 bits, blocks of 4,096 values, no rows
sent. Blocks are coded, decoded, added and counted by converted barrel units, block b by unit b mod UNITS, as
in a NIC; tables and frames are of the host.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from oscar.coding.asc import AscParams, Decoder, Encoder, max_frame
from oscar.coding.asc.compiled import table_kernels as tables
from oscar.coding.asc.compiled.coder import CompiledCoder, refuse
from oscar.coding.asc.compiled.directory_kernels import TOO_SHORT, read_directory
from oscar.coding.asc.compiled.frame_kernels import read_prefix
from oscar.coding.asc.compiled.row_kernels import BLOCK_BYTES
from oscar.coding.asc.params import (
    CODED,
    CONSTANT,
    DIRECTORY_BYTES,
    LANES,
    PREFIX_BYTES,
    RAW,
    SYMBOLS,
    TABLE_ROWS,
    raw_limit,
)
from oscar.coding.asc.state import TableState
from oscar.coding.asc.turns import cells_of, raw_rows
from oscar.coding.codec import Codec, check_range
from oscar.config import Config
from oscar.errors import ConfigError, FrameError
from oscar_hdl.coder.rows import FrameRows, descriptors, frame_rows, in_rows
from oscar_sim.blocks import COUNTS, directory, table_writes
from oscar_sim.errors import RtlError
from oscar_sim.units import BLOCK, FRAME, Batch, Unit, faults

PARAMS = AscParams(sent_rows=False, block_log2=12)
MAX_WIDTH = 16
MAX_COUNT = (1 << 18) - 1  # values of a frame
UNTOLD = 0xFFFF  # of a row that no decoder described
UNITS = 2  # of the NIC; each is simulated by a thread


class UnitCoder(CompiledCoder):
    """Codes payloads on simulated units; the same interface as the compiled coder.

    clocks: of the frame coded or decoded last, from the first block's start to the last one's end.
    """

    def __init__(self, params: AscParams = PARAMS) -> None:
        super().__init__(params, 1)
        self.clocks = 0
        self._units: dict[str, list[Unit]] = {}
        self._work: np.ndarray | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.params,)

    def units(self, kind: str) -> list[Unit]:
        """Return the NIC's barrel_decoders or barrel_encoders."""
        if kind not in self._units:
            self._units[kind] = [Unit(kind) for _ in range(UNITS)]
        return self._units[kind]

    def encode(
        self, values: np.ndarray, classes: np.ndarray | None, width: int, state: TableState
    ) -> bytes | memoryview:
        """See Coder.encode."""
        self.clocks, self._work = 0, None
        if not values.size:
            return b""
        _check(values.size, width)
        check_range(int(values.min()), int(values.max()), width)
        rows = frame_rows(values, classes if self.params.uses_position else None)
        log2, last = self.params.block_log2, int(rows.tops.max(initial=0))
        tables.choose_tables(
            state.hist, last, self.memory.counts, False, self.memory.freq, self.memory.levels
        )
        batch, counts = self._batch(rows, log2)
        room = (1 << log2) * 4
        data = np.zeros((len(batch.blocks), room), np.uint8)
        batch.blocks["bytes"], batch.blocks["room"] = _places(batch.hold(data), room, len(data)), room
        self._run("barrel_encoder", batch)
        if batch.blocks["bad"].any():
            raise RtlError("the encoder refuses its rows")
        payload = (log2 | last << 11).to_bytes(2, "little") + _payload(batch.blocks, data, rows, log2, width)
        self._learn(state, counts.sum(axis=0, dtype=np.int64))
        raw = raw_rows(np.frombuffer(payload, np.uint8), PREFIX_BYTES, rows.count)
        self._work = cells_of(rows.classes, rows.count, raw)
        return payload

    def work(self, _: object = None) -> np.ndarray | None:
        """See Coder.work."""
        return self._work

    def decode(
        self, payload: memoryview, count: int, classes: np.ndarray | None, width: int, state: TableState,
        out: np.ndarray, plus: np.ndarray | None,
    ) -> None:  # fmt: skip
        """See Coder.decode; `out` is left alone where it raises."""
        self.clocks = 0
        if not count:
            super().decode(payload, count, classes, width, state, out, plus)
            return
        _check(count, width)
        data = np.frombuffer(payload.toreadonly(), np.uint8)
        job = self.memory.job
        refuse(
            read_prefix(
                data, width, state.hist, job, self.memory.counts, self.memory.freq, self.memory.levels
            ),
            data,
            count,
        )
        log2, head = int(job["log2"][0]), int(job["head"][0])
        number = -(-count >> log2)
        if head + DIRECTORY_BYTES * number > len(data):
            refuse(TOO_SHORT, data, count)
        self.memory.reserve(blocks=BLOCK_BYTES * number)
        begin, blocks = data.ctypes.data, np.uint64(job["blocks"][0])
        end = np.uint64(begin + len(data))
        status = read_directory(np.uint64(begin + head), end, count, log2, width, 0, blocks)
        refuse(status, data, count)
        entries = directory(data, head, count, log2)
        rows = frame_rows(np.zeros(count, np.int16), classes if self.params.uses_position else None)
        if plus is None:
            local = np.zeros(rows.distances.shape, np.int16)
        else:
            local = in_rows(plus.astype(np.int16), np.int16)
        totals, counts = self._decoded(data, entries, rows, log2, local)
        self._learn(state, counts)
        change = (totals - local).reshape(-1)[:count]
        out[:] = change if plus is None else plus + change.astype(out.dtype)

    def _decoded(
        self, data: np.ndarray, entries: np.ndarray, rows: FrameRows, log2: int, local: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return local values plus those of blocks, and what was counted; raises FrameError."""
        totals = local.copy()
        batch, counts = self._batch(rows, log2)
        blocks, number = batch.blocks, len(entries)
        described = np.full(len(totals), UNTOLD, np.uint16)
        each = 1 << (log2 - 5)  # rows of a block
        for name, array, size in (
            ("local", local, 2 * LANES), ("totals", totals, 2 * LANES), ("described", described, 2)
        ):  # fmt: skip
            blocks[name] = _places(batch.hold(array), each * size, number)
        blocks["bytes"] = batch.hold(data) + entries["at"].astype(np.uint64)
        for name in ("size", "seeds", "first", "last"):
            blocks[name] = entries[name]
        plain = in_rows(_plain(data, entries, rows.count, log2), np.int16)
        blocks["raw"] = entries["kind"] != CODED
        for n in np.flatnonzero(blocks["raw"]):
            part = np.ascontiguousarray(plain[n * each : (n + 1) * each][::-1])  # taken from its end on
            blocks["bytes"][n], blocks["size"][n] = batch.hold(part), part.nbytes
        batch.blocks = blocks[(entries["kind"] != CONSTANT) | (entries["value"] != 0)]
        self._run("barrel_decoder", batch)
        if batch.blocks["bad"].any():
            raise FrameError("a block does not end where it should: frame damaged")
        told = described != UNTOLD
        if not np.array_equal(described[told], descriptors(totals[told])):
            raise RtlError("the decoder describes other rows than it gives")
        return totals, counts.sum(axis=0, dtype=np.int64)

    def _batch(self, rows: FrameRows, log2: int) -> tuple[Batch, np.ndarray]:
        """Return a frame's blocks, and where they are counted."""
        number, each, total = -(-rows.count >> log2), 1 << (log2 - 5), rows.means.size
        batch = Batch(np.zeros(number, BLOCK), np.zeros(1, FRAME))
        blocks = batch.blocks
        for name, array, size in (
            ("distances", np.ascontiguousarray(rows.distances, np.uint8), LANES),
            ("means", np.ascontiguousarray(rows.means, np.uint8), 1),
            ("headers", np.ascontiguousarray(rows.headers, np.uint16), 2),
            ("values", np.ascontiguousarray(rows.values, np.int16), 2 * LANES),
        ):
            blocks[name] = _places(batch.hold(array), each * size, number)
        blocks["rows"] = np.minimum(each, total - each * np.arange(number))
        blocks["count"] = np.minimum(1 << log2, rows.count - (np.arange(number) << log2))
        blocks["reset_at"] = -1
        counts = np.zeros((number, COUNTS), np.uint32)
        blocks["counts"] = _places(batch.hold(counts), 4 * COUNTS, number)
        table = table_writes(self.memory.freq, 0)
        batch.frames[0] = (batch.hold(table), table.size, 0)
        return batch, counts

    def _run(self, kind: str, batch: Batch) -> None:
        """Run the blocks on all units; raises RtlError where one misbehaves."""
        self.clocks, units = 0, self.units(kind)
        shares = [slice(n, None, UNITS) for n in range(min(UNITS, len(batch.blocks)))]
        parts = [Batch(batch.blocks[share].copy(), batch.frames, batch.keep) for share in shares]
        list(_pool(os.getpid()).map(lambda unit, part: unit.run(part, 1), units, parts))
        for share, part in zip(shares, parts, strict=True):
            batch.blocks[share] = part.blocks
            self.clocks = max(self.clocks, int(part.blocks["ended"].max() - part.blocks["began"].min()))
        if wrong := int(np.bitwise_or.reduce(batch.blocks["faults"], initial=0)):
            raise RtlError(f"the {kind} {faults(wrong)}")

    def _learn(self, state: TableState, counts: np.ndarray) -> None:
        self.memory.counts[:] = counts.reshape(TABLE_ROWS, SYMBOLS)
        tables.learn(state.hist, self.memory.counts)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(UNITS, thread_name_prefix=f"oscar-units-{process}")


def _check(count: int, width: int) -> None:
    if width > MAX_WIDTH:
        raise ConfigError(
            f"a NIC has values of up to {MAX_WIDTH} bits, this frame has {width}: lower quantiser.bits"
        )
    if count > MAX_COUNT:
        raise ConfigError(
            f"a NIC's frame has at most {MAX_COUNT:,} values, this one {count:,}: raise schedule.subframes, "
            f"{-(-count // MAX_COUNT)} times as many are enough"
        )


def _places(at: int, step: int, number: int) -> np.ndarray:
    return np.uint64(at) + np.uint64(step) * np.arange(number, dtype=np.uint64)


def _payload(blocks: np.ndarray, data: np.ndarray, rows: FrameRows, log2: int, width: int) -> bytes:
    """Return directory and blocks: coded ones as they came, raw where they are too long, or constant."""
    entries, body = [], []
    flat = rows.values.reshape(-1)[: rows.count]
    for n, block in enumerate(blocks):
        bits, size = int(block["bits"]) + 1, int(block["size"])
        raw = -(-int(block["count"]) * bits // 8)
        if block["constant"]:
            value = int(block["value"])
            entries.append(CONSTANT | (value - (value >> 15 << 16) & 0xFFFFFFFF) << 16)
        elif size >= raw_limit(int(block["count"]), bits, width, len(blocks) == 1):
            entries.append(RAW | bits << 2 | raw << 24)
            part = flat[n << log2 : (n + 1) << log2].astype(np.int64)
            spread = part[:, None] >> np.arange(bits) & 1
            body.append(np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little").tobytes())
        else:
            first, last = int(block["first"]) << 5, int(block["last"]) << 12
            entries.append(CODED | int(block["seeds"]) << 2 | first | last | size << 24)
            body.append(data[n, :size].tobytes())
    return b"".join(e.to_bytes(DIRECTORY_BYTES, "little") for e in entries) + b"".join(body)


def _plain(data: np.ndarray, entries: np.ndarray, count: int, log2: int) -> np.ndarray:
    """Return the values of raw and constant blocks, 0 elsewhere; int16."""
    out = np.zeros(count, np.int16)
    for n, entry in enumerate(entries):
        part, size = out[n << log2 : (n + 1) << log2], int(entry["count"])
        if entry["kind"] == CONSTANT:
            part[:] = entry["value"]
        elif entry["kind"] == RAW:
            bits, at = int(entry["bits"]), int(entry["at"])
            each = np.unpackbits(data[at : at + int(entry["size"])], bitorder="little")[: size * bits]
            weights = 1 << np.arange(bits)
            weights[-1] = -weights[-1]
            part[:] = each.reshape(size, bits) @ weights
    return out


def software_codec(params: AscParams = PARAMS) -> Codec:
    """Return what a NIC codes, in software: its frames are to be these."""
    from oscar.coding.registry import asc_codec

    return replace(asc_codec(params), max_bits=MAX_WIDTH)


def rtl_codec(coder: UnitCoder) -> Codec:
    """Return ASC whose blocks come from simulated units; its links share them, so they serve one thread."""
    params = coder.params
    return Codec(
        name="asc",
        domain="int",
        lossless=True,
        make_encoder=lambda: Encoder(params, coder=coder),
        make_decoder=lambda: Decoder(params, coder=coder),
        max_frame=lambda count, width: max_frame(params, count, width),
        uses_context=params.uses_position,
        max_bits=MAX_WIDTH,
        decodes_into=True,
        clocks=lambda link: coder.clocks,
        work=coder.work,
        options=f"{type(coder).__name__} {params}",
    )


def verilator(config: Config) -> Codec:
    """Return ASC on converted RTL under Verilator (entry point of `nic: verilator`).

    A NIC has parameters of its own: nothing of the configuration matters to it.
    """
    return rtl_codec(UnitCoder())
