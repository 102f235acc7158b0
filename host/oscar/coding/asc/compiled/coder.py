"""The compiled coder: whole payloads through the kernels, without the GIL, in threads.

Encoding: survey all groups, choose tables and block size from its counts, code the blocks, move them
together.
Decoding: read prefix and directory, build the tables, decode the blocks, learn from the counts. Threads take
groups (survey) or blocks, and count in banks of their own, so they share nothing that is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.coding.asc.compiled import decode_kernels as dk
from oscar.coding.asc.compiled import encode_kernels as ek
from oscar.coding.asc.compiled import survey_kernels as sk
from oscar.coding.asc.compiled import table_kernels as tk
from oscar.coding.asc.compiled.directory_kernels import REASONS, read_directory
from oscar.coding.asc.compiled.pop_kernels import SIDES
from oscar.coding.asc.compiled.row_kernels import (
    BANKS,
    BLOCK_BYTES,
    COUNTS,
    DECODER_ENTRIES,
    ENCODER_ENTRIES,
    SEARCHED,
    Frame,
)
from oscar.coding.asc.params import (
    DIRECTORY_BYTES,
    GROUP,
    LANES,
    MASK_BYTES,
    MAX_BLOCK_LOG2,
    MIN_BLOCK_LOG2,
    PAD,
    PREFIX_BYTES,
    SENT_ROW_BYTES,
    SYMBOLS,
    TABLE_ROWS,
    AscParams,
    group_cycle,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.coding.asc.turns import cells_of, raw_rows
from oscar.coding.codec import check_range
from oscar.cores import share, threads_for
from oscar.errors import FrameError

SCRATCH = max(dk.SCRATCH, ek.SCRATCH)  # bytes of memory for a thread


def address(array: np.ndarray) -> np.uint64:
    """Return the address of an array's items as uint64, the type that kernels are compiled for."""
    return np.uint64(array.__array_interface__["data"][0])


def _refuse(status: int) -> None:
    """Raise FrameError if a kernel's `status` is not 0."""
    if status:
        raise FrameError(f"{REASONS[status]}: frame damaged")


class CompiledCoder:
    """Codes payloads with compiled kernels; same interface and bytes as ReferenceCoder.

    The coder keeps its memory from call to call, so only one thread may use it at a time.
    params: coding parameters
    threads: most threads for one frame, None for those of the call (oscar.cores).
    """

    def __init__(self, params: AscParams, threads: int | None = None) -> None:
        self.params = params
        self.threads = threads
        self._room: dict[str, tuple[np.ndarray, np.uint64]] = {}
        self._rows = self._values = self._head = 0  # of the frame encoded last; _head: directory's offset
        self._payload = np.zeros(0, np.uint8)
        self.freq, self.levels, self.counts = np.zeros((3, TABLE_ROWS, SYMBOLS), np.int64)
        self.table, self.lookup = np.zeros(ENCODER_ENTRIES, np.uint32), np.zeros(DECODER_ENTRIES, np.uint32)
        self.banks = self._every = np.zeros(0, np.uint32)  # counters of the threads at work, and of all
        self._table_at, self._lookup_at = address(self.table), address(self.lookup)
        self._steps, self._thresholds = self.table.view(np.uint16), self.lookup.view(np.uint16)
        self._zeros = self._memory("zeros", LANES)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle parameters only: a copy needs memory and addresses of its own."""
        return type(self), (self.params, self.threads)

    def _bank(self, thread: int) -> np.uint64:
        """Return the address of a thread's counters."""
        return self._banks_at + 4 * BANKS * COUNTS * thread

    def _scratch(self, thread: int) -> np.uint64:
        """Return the address of a thread's scratch memory."""
        return self._scratch_at + SCRATCH * thread

    def _frame(
        self, values: np.ndarray, classes: np.ndarray | None, width: int, log2: int, shift: int = 0,
        plus: np.ndarray | None = None,
    ) -> Frame:  # fmt: skip
        """Return the kernels' description of a frame with `values`, to read or to fill.

        log2: of the values of a block, 0 if the sender chooses; plus: what decoded values are added to, or
        None.
        """
        positions, stride = self._zeros, 0
        if classes is not None and self.params.uses_position:
            positions, stride = address(classes), LANES
        least = self.params.least_class
        at, add = address(values), plus is not None
        far = np.uint64(0 if plus is None else (int(address(plus)) - int(at)) & (1 << 64) - 1)
        size, cycle = values.itemsize, group_cycle(log2)
        return Frame(at, size, values.size, positions, stride, shift, cycle, least, width, add, far)

    def _memory(self, name: str, size: int) -> np.uint64:
        """Return the address of at least `size` + PAD bytes under `name`, kept from call to call."""
        array_and_address = self._room.get(name)
        if array_and_address is None or array_and_address[0].size < size + PAD:
            array = np.zeros((size + size // 8 + PAD) // 8 * 8 + 8, np.uint8)
            array_and_address = self._room[name] = array, address(array)
        return array_and_address[1]

    def _begin(self, count: int) -> int:
        """Return how many threads a frame of `count` values gets; give each memory and counters at 0."""
        threads, counts_size = threads_for(count, self.threads), BANKS * COUNTS
        if self._every.size < threads * counts_size:
            self._every = np.zeros(threads * counts_size, np.uint32)
            self._banks_at = address(self._every)
            self._scratch_at = self._memory("scratch", SCRATCH * threads)
        self.banks = self._every[: threads * counts_size]
        self.banks[:] = 0
        return threads

    def encode(
        self, values: np.ndarray, classes: np.ndarray | None, width: int, state: TableState,
        into: np.ndarray | None = None,
    ) -> bytes | memoryview:  # fmt: skip
        """See Coder.encode; the returned memory is overwritten by the next call, if it is not that of `into`.

        into: uint8, of AscParams.max_payload and PAD bytes.
        """
        count = values.size
        self._rows, self._values = -(-count // LANES), count
        if not count:
            return b""
        frame = self._frame(values, classes, width, self.params.block_log2)
        if width > 16:
            frame = frame._replace(shift=max(0, sk.widest(frame.values, frame.size, count) - 15))
        groups, rows, threads = -(-count // GROUP), -(-count // LANES), self._begin(count)
        sizes = {"classes": rows, "means": rows, "live": groups, "low": 4 * groups, "high": 4 * groups}
        found = sk.Found(*(self._memory(name, size) for name, size in sizes.items()))

        def survey(thread: int, first: int, last: int) -> None:
            sk.survey(frame, first, last, found, self._bank(thread), self._scratch(thread))

        share(survey, groups, threads)
        lows, highs = (self._room[name][0].view(np.int32)[:groups] for name in ("low", "high"))
        low, high, last, sent, log2 = tk.tables_of_encoder(
            self.banks, lows, highs, width, count, self.params.block_log2, self.params.sent_rows, SEARCHED,
            state.hist, self.counts, self.freq, self.levels, self.table, self._steps,
        )  # fmt: skip
        check_range(low, high, width)
        number, region = -(-count >> log2), ((1 << log2) * width >> 3) + ek.SLACK
        blocks = self._memory("blocks", BLOCK_BYTES * number)
        regions = self._memory("regions", region * number)

        def code(thread: int, first: int, last: int) -> None:
            table, scratch = self._table_at, self._scratch(thread)
            ek.encode_blocks(frame, log2, first, last, found, table, regions, region, blocks, scratch)

        share(code, number, threads, SIDES)
        head = self._prefix(log2 | frame.shift << 5 | last << 11, sent)
        if into is None:
            self._memory("payload", self.params.max_payload(count, width) + len(head))
        payload = self._room["payload"][0] if into is None else into
        payload[: len(head)] = np.frombuffer(head, np.uint8)
        self._payload, self._head = payload, len(head)
        used = ek.write_blocks(blocks, log2, number, regions, region, address(payload) + len(head))
        return payload[: len(head) + used].data

    def work(self, _: object = None) -> np.ndarray | None:
        """See Coder.work."""
        if not self._rows:
            return None
        raw = raw_rows(self._payload, self._head, self._values)
        return cells_of(self._room["classes"][0][: self._rows], self._values, raw)

    def _prefix(self, prefix: int, sent: int) -> bytes:
        """Return the bytes before a payload's directory: prefix, mask and sent rows."""
        head = (prefix | bool(sent) << 10).to_bytes(PREFIX_BYTES, "little")
        if not sent:
            return head
        rows = self.levels[[q for q in range(TABLE_ROWS) if sent >> q & 1]]
        packed = (rows[:, ::2] | rows[:, 1::2] << 4).astype(np.uint8)
        return head + int(sent).to_bytes(MASK_BYTES, "little") + packed.tobytes()

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
        data = np.frombuffer(payload, np.uint8)
        log2, shift, head = self._read_prefix(data, width, state)
        tk.tables_of_decoder(self.freq, SEARCHED, self.lookup, self._thresholds)
        number, begin, threads = -(-count >> log2), address(data), self._begin(count)
        if head + DIRECTORY_BYTES * number > len(data):
            raise FrameError(f"{len(data)} bytes cannot hold the {count} values announced")
        blocks, end = self._memory("blocks", BLOCK_BYTES * number), begin + len(data)
        _refuse(read_directory(begin + head, end, count, log2, width, shift, blocks))
        copy = dk.BEFORE + (4 << log2) + dk.BEHIND
        copies = self._memory("copies", SIDES * threads * copy)
        frame = self._frame(out, classes, width, log2, shift, plus)

        def code(thread: int, first: int, last: int) -> int:
            bank, own, scratch = self._bank(thread), copies + SIDES * copy * thread, self._scratch(thread)
            at = self._lookup_at
            return dk.decode_blocks(
                begin, end, frame, log2, first, last, blocks, at, bank, own, copy, scratch
            )

        for status in share(code, number, threads, SIDES):
            _refuse(status)
        tk.learn_from(self.banks, self.counts, state.hist)

    def _read_prefix(self, data: np.ndarray, width: int, state: TableState) -> tuple[int, int, int]:
        """Build a payload's tables; return log2 of its block size, its shift, its directory's offset."""
        prefix = int.from_bytes(data[:PREFIX_BYTES].tobytes(), "little")
        log2, shift, last, head = prefix & 31, prefix >> 5 & 31, prefix >> 11 & 15, PREFIX_BYTES
        if prefix >> 15 or not MIN_BLOCK_LOG2 <= log2 <= MAX_BLOCK_LOG2 or shift > max(0, width - 16):
            raise FrameError(f"payload starts with 0x{prefix:04x}, which no sender writes")
        tk.choose_tables(state.hist, last, self.counts, False, self.freq, self.levels)
        if prefix >> 10 & 1:
            mask = int.from_bytes(data[head : head + MASK_BYTES].tobytes(), "little")
            head += MASK_BYTES
            for q in range(TABLE_ROWS):
                if mask >> q & 1:
                    row = data[head : head + SENT_ROW_BYTES]
                    head += SENT_ROW_BYTES
                    if len(row) == SENT_ROW_BYTES:
                        self.levels[q, ::2], self.levels[q, 1::2] = row & 15, row >> 4
                        tk.from_octaves(self.levels[q], q, last, self.freq[q])
        return log2, shift, head
