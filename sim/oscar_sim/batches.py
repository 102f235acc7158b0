"""Lists of blocks for simulated units, made of coded frames, and what has to come out of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oscar.coding.asc.params import CODED, CONSTANT, FLUSH_BYTES, GROUP, LANES
from oscar_hdl.coder.rows import FrameRows, descriptors, in_rows
from oscar_sim.blocks import CodedFrame, Coder, table_writes
from oscar_sim.units import BLOCK, FRAME, Batch, Unit, faults

SHARES = (0, 0, 0.1, 0.5)
UNTOLD = 0xFFFF  # of `described`: nothing was said of the row
MOST_BYTES = 4  # a value: 24 bits if its symbol is rare and its row wide, and its part of its group's classes


@dataclass
class Places:
    """Which block of which frame each of a batch is."""

    frames: Sequence[CodedFrame]
    at: list[tuple[int, int]]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return ((n, self.frames[i], b) for n, (i, b) in enumerate(self.at))


def _rows(batch: Batch, block: np.ndarray, rows: FrameRows, span: slice, count: int, arrays: dict) -> None:
    """Fill in what all units are told of a block's rows."""
    for name, (array, each) in arrays.items():
        block[name] = array.ctypes.data + span.start * each
    block["rows"], block["count"] = span.stop - span.start, count


def _frame_arrays(batch: Batch, rows: FrameRows) -> dict[str, tuple[np.ndarray, int]]:
    values = np.ascontiguousarray(rows.values, np.int16)
    arrays = {
        "distances": (np.ascontiguousarray(rows.distances, np.uint8), LANES),
        "means": (np.ascontiguousarray(rows.means, np.uint8), 1),
        "headers": (np.ascontiguousarray(rows.headers, np.uint16), 2),
        "values": (values, 2 * LANES),
    }
    for array, _ in arrays.values():
        batch.hold(array)
    return arrays


def _stress(blocks: np.ndarray, rng: np.random.Generator, resets: float, clocks: np.ndarray) -> None:
    """Give each block its stalls, and some a clock of reset."""
    for name in ("idle", "busy", "refuse"):
        blocks[name] = 65536 * rng.choice(SHARES, len(blocks))
    hit = rng.random(len(blocks)) < resets
    when = rng.integers(0, np.where(rng.random(len(blocks)) < 0.3, 40, clocks))
    blocks["reset_at"] = np.where(hit, when, -1)


def _frames(batch: Batch, frames: Sequence[CodedFrame]) -> None:
    for i, frame in enumerate(frames):
        array = table_writes(frame.freq, i & 1)
        batch.frames[i] = (batch.hold(array), array.size, i & 1)


class _Blocks:
    """Blocks in order, each of which runs to its end."""

    places: Places
    batch: Batch

    def faults(self, done: int) -> list[str]:
        """Return what is wrong with the blocks that ended, and with the one that did not."""
        result = []
        for n, frame, b in self.places:
            block = self.batch.blocks[n]
            if n > done or (n == done and not block["faults"]):
                break
            problems = faults(int(block["faults"])) or self._problems(n, frame, b)
            if problems:
                result.append(f"block {n} of {int(block['count'])} values: {problems}")
        return result

    def _problems(self, n: int, frame: CodedFrame, b: int) -> str:
        """Return what block n gave that it should not have; nothing if all is well."""
        raise NotImplementedError


class DecoderBatch(_Blocks):
    """Blocks of frames for a barrel decoder, but for those of zeros; a share of coded ones damaged."""

    def __init__(
        self, frames: Sequence[CodedFrame], coder: Coder, rng: np.random.Generator, *, damage: float = 0.0,
        resets: float = 0.0, stress: bool = True,
    ) -> None:  # fmt: skip
        at = [
            (i, b)
            for i, f in enumerate(frames)
            for b in np.flatnonzero((f.entries["kind"] != CONSTANT) | (f.entries["value"] != 0)).tolist()
        ]
        self.places = Places(frames, at)
        self.batch = Batch(np.zeros(len(at), BLOCK), np.zeros(len(frames), FRAME))
        _frames(self.batch, frames)
        blocks = self.batch.blocks
        self.expected: list[np.ndarray | None] = []
        self.damaged: set[int] = set()
        self.local, self.totals, self.described = [], [], []
        self.counts = self._zeros((len(at), 512), np.uint32)
        for frame in frames:
            flat = rng.integers(-900, 900, frame.rows.count).astype(np.int16)
            local = in_rows(flat, np.int16) * (rng.random((frame.rows.means.size, 1)) < 0.8).astype(np.int16)
            self.local.append(local)
            self.batch.hold(local)
            self.totals.append(self._zeros(local.shape, np.int16))
            self.described.append(self._zeros(local.shape[:1], np.uint16))
        arrays = [_frame_arrays(self.batch, frame.rows) for frame in frames]
        self.adopts = rng.random(len(at)) < 0.3
        for (n, frame, b), (i, _) in zip(self.places, at, strict=True):
            self._block(blocks[n], n, i, frame, b, arrays[i], coder, damage, rng)
        clocks = LANES * (blocks["rows"].astype(np.int64) + 12)
        if stress:
            _stress(blocks, rng, resets, clocks)
        else:
            blocks["reset_at"] = -1

    def _zeros(self, shape: tuple[int, ...], kind: type) -> np.ndarray:
        array = np.zeros(shape, kind)
        self.batch.hold(array)
        return array

    def _block(
        self, block: np.ndarray, n: int, i: int, frame: CodedFrame, b: int, arrays: dict, coder: Coder,
        damage: float, rng: np.random.Generator,
    ) -> None:  # fmt: skip
        entry, span = frame.entries[b], frame.span(b)
        _rows(self.batch, block, frame.rows, span, int(entry["count"]), arrays)
        data, groups = frame.bytes_of(b), {k: int(entry[k]) for k in ("seeds", "first", "last")}
        expected: np.ndarray | None = frame.rows.values[span].astype(np.int16)
        block["raw"] = entry["kind"] != CODED
        if block["raw"]:  # taken from its end on: the first row lies last
            data = np.ascontiguousarray(expected[::-1], "<i2").view(np.uint8).reshape(-1)
        elif rng.random() < damage and not int(frame.payload[1]) >> 2 & 1:
            data, groups, decoded = _damaged(frame, b, data, groups, coder, rng)
            expected = None if decoded is None else in_rows(decoded, np.int16)
            self.damaged.add(n)
        self.expected.append(expected)
        for name, value in groups.items():
            block[name] = value
        data = np.ascontiguousarray(data)
        block["bytes"], block["size"] = self.batch.hold(data), data.size
        local, totals = self.local[i][span], self.totals[i][span]
        if not self.adopts[n]:
            totals[:] = local
            block["local"] = local.ctypes.data
        block["totals"], block["described"] = totals.ctypes.data, self.described[i][span].ctypes.data
        block["counts"] = self.counts[n].ctypes.data
        block["frame"], block["bank"] = i, i & 1

    def _problems(self, n: int, frame: CodedFrame, b: int) -> str:
        block, expected, span = self.batch.blocks[n], self.expected[n], frame.span(b)
        i = self.places.at[n][0]
        if expected is None:
            return "" if block["bad"] else "takes a block that is damaged"
        if block["bad"]:
            return "refuses a good block"
        local = 0 if self.adopts[n] else self.local[i][span]
        wanted = (expected + local).astype(np.int16)
        problems = []
        told = self.described[i][span] != UNTOLD
        if n not in self.damaged:  # another class of a seed row, whose values are raw, changes counts alone
            if not np.array_equal(told, frame.rows.classes[span] > 0):
                problems.append("other rows than those of a class above 0")
            if not np.array_equal(self.counts[n], frame.counts[b]):
                problems.append("counts differ")
        if not np.array_equal(self.totals[i][span], wanted):
            wrong = np.flatnonzero((self.totals[i][span] != wanted).any(axis=1))
            problems.append(f"values of {wrong.size} rows differ, first row {wrong[0]}")
        if not np.array_equal(self.described[i][span][told], descriptors(wanted)[told]):
            problems.append("descriptors differ")
        return ", ".join(problems)


def _damaged(
    frame: CodedFrame,
    b: int,
    data: np.ndarray,
    groups: dict[str, int],
    coder: Coder,
    rng: np.random.Generator,
) -> tuple[np.ndarray, dict[str, int], np.ndarray | None]:
    """Return other bytes or groups of a block, which a decoder could be given, and what they stand for."""
    count = int(frame.entries[b]["count"])
    while True:
        bad, changed, kind = bytearray(data.tobytes()), dict(groups), int(rng.integers(0, 6))
        if kind == 0:
            bad[int(rng.integers(0, len(bad)))] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            bad[int(rng.integers(max(0, len(bad) - FLUSH_BYTES), len(bad)))] = int(rng.integers(0, 256))
        elif kind == 2:
            at = int(rng.integers(0, len(bad)))
            del bad[at : at + int(rng.integers(1, 5))]
        elif kind == 3:
            bad[:0] = rng.bytes(int(rng.integers(1, 6)))
        elif kind == 4:
            changed["seeds"] = int(rng.integers(0, 6))
        else:
            changed[str(rng.choice(["first", "last"]))] = int(rng.integers(0, -(-count // GROUP)))
        try:
            decoded = coder.decode_block(frame, b, bytes(bad), **changed)
        except ValueError:
            continue
        return np.frombuffer(bytes(bad), np.uint8), changed, decoded


class EncoderBatch(_Blocks):
    """All blocks of frames for a barrel encoder."""

    def __init__(
        self, frames: Sequence[CodedFrame], rng: np.random.Generator, *, resets: float = 0.0,
        stress: bool = True,
    ) -> None:  # fmt: skip
        at = [(i, b) for i, f in enumerate(frames) for b in range(len(f.entries))]
        self.places = Places(frames, at)
        self.batch = Batch(np.zeros(len(at), BLOCK), np.zeros(len(frames), FRAME))
        _frames(self.batch, frames)
        blocks = self.batch.blocks
        arrays = [_frame_arrays(self.batch, frame.rows) for frame in frames]
        self.counts = np.zeros((len(at), 512), np.uint32)
        self.batch.hold(self.counts)
        self.bytes = []
        for (n, frame, b), (i, _) in zip(self.places, at, strict=True):
            block, span = blocks[n], frame.span(b)
            _rows(self.batch, block, frame.rows, span, int(frame.entries[b]["count"]), arrays[i])
            self.bytes.append(np.zeros(MOST_BYTES * LANES * (span.stop - span.start) + 400, np.uint8))
            block["bytes"], block["room"] = self.batch.hold(self.bytes[n]), self.bytes[n].size
            block["counts"] = self.counts[n].ctypes.data
            block["frame"], block["bank"] = i, i & 1
        if stress:
            _stress(blocks, rng, resets, LANES * (blocks["rows"].astype(np.int64) + 12))
        else:
            blocks["reset_at"] = -1

    def _problems(self, n: int, frame: CodedFrame, b: int) -> str:
        block, entry, problems = self.batch.blocks[n], frame.entries[b], []
        if block["bad"]:
            return "refuses its rows"
        if not np.array_equal(self.counts[n], frame.counts[b]):
            problems.append("counts differ")
        if bool(block["constant"]) != (entry["kind"] == CONSTANT):
            return f"says constant {block['constant']} of a block of kind {entry['kind']}"
        if block["constant"]:
            same = block["value"] == int(entry["value"]) & 0xFFFF
            return ", ".join(problems if same else [*problems, "another value"])
        values = frame.rows.values[frame.span(b)]
        bits = int((values ^ values >> 31).max()).bit_length()
        if block["bits"] != bits:
            problems.append(f"says {block['bits']} bits, not {bits}")
        if entry["kind"] != CODED:
            if 8 * int(block["size"]) < int(entry["count"]) * (bits + 1) - 7:
                problems.append("is shorter than raw where the reference is not")
            return ", ".join(problems)
        problems += [
            f"{name} is {block[name]}, not {entry[name]}"
            for name in ("seeds", "first", "last", "size")
            if block[name] != entry[name]
        ]
        if not np.array_equal(self.bytes[n][: block["given"]], frame.bytes_of(b)):
            problems.append("bytes differ")
        return ", ".join(problems)


def run(unit: Unit, batch: DecoderBatch | EncoderBatch, seed: int) -> tuple[int, int, list[str]]:
    """Run a batch; return clocks, blocks that ended, and what was wrong."""
    clocks, done = unit.run(batch.batch, seed)
    result = batch.faults(done)
    if done < len(batch.batch.blocks) and not result:
        result = [f"block {done} did not end"]
    return clocks, done, result
