"""The compiled coder: whole payloads through the kernels, without the GIL, in threads.

A frame that one thread codes is one call of `frame_kernels`. Threads share the groups of a longer frame's
survey, or its blocks, and count in banks of their own, so they share nothing that is written.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from oscar.coding.asc.compiled import decode_kernels as dk
from oscar.coding.asc.compiled import encode_kernels as ek
from oscar.coding.asc.compiled import frame_kernels as fk
from oscar.coding.asc.compiled.directory_kernels import BAD_PREFIX, REASONS, TOO_SHORT
from oscar.coding.asc.compiled.row_kernels import (
    BANKS,
    BLOCK_BYTES,
    COUNTS,
    DECODER_ENTRIES,
    ENCODER_ENTRIES,
)
from oscar.coding.asc.compiled.survey_kernels import widest
from oscar.coding.asc.params import (
    AUTO_BLOCK_LOG2,
    GROUP,
    LANES,
    MAX_BLOCK_LOG2,
    MIN_BLOCK_LOG2,
    PAD,
    PREFIX_BYTES,
    SYMBOLS,
    TABLE_ROWS,
    AscParams,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.coding.asc.turns import cells_of, raw_rows
from oscar.coding.codec import check_range
from oscar.cores import share, threads_for
from oscar.errors import FrameError

NO_OCTETS = np.zeros(0, np.uint8)
NO_OCTETS.flags.writeable = False
ONE_ROW = np.zeros(LANES + PAD, np.uint8)  # position classes of every row of a frame without positions
ONE_ROW.flags.writeable = False


def address(array: np.ndarray) -> np.uint64:
    """Return the address of an array's items as uint64, the type that kernels are compiled for."""
    return np.uint64(array.__array_interface__["data"][0])


def octets(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array, read-only: kernels are compiled for one type of array."""
    view = array.view(np.uint8)
    view.flags.writeable = False
    return view


def refuse(status: int, data: np.ndarray, count: int) -> None:
    """Raise FrameError if a kernel's `status` for the payload `data` of `count` values is not 0."""
    if status == BAD_PREFIX:
        prefix = int.from_bytes(data[:PREFIX_BYTES].tobytes(), "little")
        raise FrameError(f"payload starts with 0x{prefix:04x}, which no sender writes")
    if status == TOO_SHORT:
        raise FrameError(f"{len(data)} bytes cannot hold the {count} values announced")
    if status:
        raise FrameError(f"{REASONS[status]}: frame damaged")


class CoderMemory(threading.local):
    """Buffers, tables and counters that a coder keeps between calls, one set for each thread."""

    def __init__(self, params: AscParams) -> None:
        self.params = params
        self.buffers: dict[str, np.ndarray] = {}
        self.job = np.zeros(1, fk.JOB)
        self.encoder_limits = 0, 0  # most values, and most bits of one, that buffers are for
        self.decoder_limits = 0, 0  # most values, and largest log2 of a block
        self.values = 0  # of the frame encoded last
        self.payload = NO_OCTETS
        self.freq, self.levels, self.counts = np.zeros((3, TABLE_ROWS, SYMBOLS), np.int64)
        self.table, self.lookup = np.zeros(ENCODER_ENTRIES, np.uint32), np.zeros(DECODER_ENTRIES, np.uint32)
        self.banks = np.zeros(0, np.uint32)
        self.threads = 0  # that counters and scratch memory are for

    def reserve(self, **sizes: int) -> None:
        """Reserve at least the given bytes, plus PAD, under each name; put their addresses into the job."""
        for name, size in sizes.items():
            if name not in self.buffers or self.buffers[name].size < size + PAD:
                self.buffers[name] = np.zeros((size + size // 8 + PAD) // 8 * 8 + 8, np.uint8)
                if name in fk.MEMORY:
                    self.job[name] = address(self.buffers[name])

    def counters(self, threads: int) -> np.ndarray:
        """Return the counters of `threads` threads, zeroed if there are several."""
        if threads > self.threads:
            self.banks, self.threads = np.zeros(threads * BANKS * COUNTS, np.uint32), threads
            self.reserve(scratch=fk.SCRATCH * threads)
            self.decoder_limits = (0, 0)  # each thread has copies of its own
        banks = self.banks[: threads * BANKS * COUNTS]
        if threads > 1:
            banks[:] = 0
        return banks

    def reserve_for_encoding(self, count: int, width: int) -> None:
        """Reserve buffers for encoding `count` values of `width` bits, whatever size the blocks get."""
        if count <= self.encoder_limits[0] and width <= self.encoder_limits[1]:
            return
        rows, groups, chosen = -(-count // LANES), -(-count // GROUP), self.params.block_log2
        log2 = chosen or AUTO_BLOCK_LOG2
        number = -(-count >> log2)
        # The last block is not full. One that the sender chooses has less than twice the frame's values.
        longest = 1 << log2 if chosen else min(1 << MAX_BLOCK_LOG2, 2 * count + (1 << log2))
        self.reserve(
            classes=rows, means=rows, live=groups, lows=4 * groups, highs=4 * groups,
            blocks=BLOCK_BYTES * number, regions=((count + longest) * width >> 3) + number * ek.SLACK,
            payload=self.params.max_payload(count, width),
        )  # fmt: skip
        self.encoder_limits = count, width

    def reserve_for_decoding(self, count: int, log2: int) -> None:
        """Reserve buffers for decoding `count` values in blocks of up to 2^`log2`."""
        if count <= self.decoder_limits[0] and log2 <= self.decoder_limits[1]:
            return
        copy = dk.BEFORE + (4 << log2) + dk.BEHIND
        self.reserve(blocks=BLOCK_BYTES * -(-count >> MIN_BLOCK_LOG2), copies=dk.SIDES * self.threads * copy)
        self.job["copy"], self.decoder_limits = copy, (count, log2)


class CompiledCoder:
    """Codes payloads with compiled kernels; same interface and bytes as ReferenceCoder.

    Any thread may use the coder: it keeps memory for each.

    Args:
        params: Coding parameters.
        threads: Most threads for one frame, None for those of the call (oscar.cores).
    """

    def __init__(self, params: AscParams, threads: int | None = None) -> None:
        self.params = params
        self.threads = threads
        self.memory = CoderMemory(params)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle parameters only: a copy needs memory and addresses of its own."""
        return type(self), (self.params, self.threads)

    def _positions(self, classes: np.ndarray | None) -> tuple[np.ndarray, int]:
        """Return the octets of position classes, and their stride from row to row."""
        if classes is None or not self.params.uses_position:
            return ONE_ROW, 0
        return octets(classes), LANES

    def encode(
        self, values: np.ndarray, classes: np.ndarray | None, width: int, state: TableState,
        into: np.ndarray | None = None,
    ) -> bytes | memoryview:  # fmt: skip
        """See Coder.encode; the returned memory is overwritten by the next call, if it is not that of `into`.

        into: uint8, of AscParams.max_payload and PAD bytes.
        """
        count, params, my = values.size, self.params, self.memory
        my.values = count
        if not count:
            return b""
        threads = threads_for(count, self.threads)
        banks = my.counters(threads)
        my.reserve_for_encoding(count, width)
        payload = my.payload = my.buffers["payload"] if into is None else into
        shift = max(0, widest(address(values), values.itemsize, count) - 15) if width > 16 else 0
        frame = (
            my.job, octets(values), values.itemsize, count, *self._positions(classes),
            params.least_class, width, shift, params.block_log2, params.sent_rows,
            state.hist, my.counts, my.freq, my.levels, my.table, banks, payload,
        )  # fmt: skip

        used = (
            fk.encode(fk.WHOLE, 0, 0, 0, *frame) if threads == 1 else self._encode_in(threads, count, frame)
        )
        if used < 0:
            check_range(int(my.job["low"][0]), int(my.job["high"][0]), width)
        return payload[:used].data

    def _encode_in(self, threads: int, count: int, frame: tuple[Any, ...]) -> int:
        """Encode a frame in several threads; return what `fk.encode` returns. frame: its arguments."""

        def part(stage: int) -> Any:
            return lambda thread, first, last: fk.encode(stage, thread, first, last, *frame)

        share(part(fk.OPEN), -(-count // GROUP), threads)
        if fk.encode(fk.TABLES, 0, 0, 0, *frame) < 0:
            return -1
        share(part(fk.BLOCKS), -(-count >> int(self.memory.job["log2"][0])), threads, dk.SIDES)
        return int(fk.encode(fk.CLOSE, 0, 0, 0, *frame))

    def coded_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the classes of the rows of the frame encoded last, and whether each is in a raw block."""
        my = self.memory
        classes = my.buffers["classes"][: -(-my.values // LANES)]
        return classes, raw_rows(my.payload, int(my.job["head"][0]), my.values)

    def work(self, _: object = None) -> np.ndarray | None:
        """See Coder.work."""
        if not self.memory.values:
            return None
        classes, raw = self.coded_rows()
        return cells_of(classes, self.memory.values, raw)

    def decode(
        self,
        payload: memoryview,
        count: int,
        classes: np.ndarray | None,
        width: int,
        state: TableState,
        out: np.ndarray,
        plus: np.ndarray | None,
    ) -> None:
        """See Coder.decode; if it raises, `out` may hold some of the values."""
        if not count:
            if len(payload):
                raise FrameError(f"{len(payload)} bytes follow the last block: frame damaged")
            return
        data = np.frombuffer(payload.toreadonly(), np.uint8)
        threads, my = threads_for(count, self.threads), self.memory
        banks = my.counters(threads)
        my.reserve_for_decoding(count, min(MAX_BLOCK_LOG2, int(data[0]) & 31) if len(data) else 0)
        frame = (
            my.job, data, out.view(np.uint8), NO_OCTETS if plus is None else octets(plus),
            plus is not None, out.itemsize, count, *self._positions(classes),
            self.params.least_class, width,
            state.hist, my.counts, my.freq, my.levels, my.lookup, banks,
        )  # fmt: skip

        one = threads == 1
        refuse(fk.decode(fk.WHOLE if one else fk.TABLES, 0, 0, 0, *frame), data, count)
        if one:
            return

        def part(thread: int, first: int, last: int) -> int:
            return fk.decode(fk.BLOCKS, thread, first, last, *frame)

        for status in share(part, -(-count >> int(my.job["log2"][0])), threads, dk.SIDES):
            refuse(status, data, count)
        fk.decode(fk.CLOSE, 0, 0, 0, *frame)
