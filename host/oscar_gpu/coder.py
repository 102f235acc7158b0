"""The coder on a GPU, with Triton kernels: payloads of tensors (the extra `gpu`).

Frames leave and arrive in pinned host memory. Each block takes one warp, and a GPU runs some thousand warps
at once, so `block_log2` decides how much of it works. Choose 13 for frames of 16 million values and more, 12
below, 14 from 100 million on. With 0 the sender chooses blocks that are too large to fill a GPU.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import torch
import triton

from oscar.coding.asc.params import (
    AUTO_BLOCK_LOG2,
    COST,
    POSSIBLE,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    AscParams,
    group_cycle,
)
from oscar.coding.asc.state import TableState
from oscar.coding.codec import check_range
from oscar.errors import FrameError, OscarError
from oscar_gpu import decode as decode_kernels
from oscar_gpu import encode as encode_kernels
from oscar_gpu import survey as survey_kernels
from oscar_gpu.payload import Blocks, learned, parse
from oscar_gpu.survey import GROUPS
from oscar_gpu.values import COPIES, META, OPTIONS

MOST_VALUES = 1 << 30  # in a frame: value indices are int32
BINS = TABLE_ROWS * SYMBOLS
# Places of an encoder's report, int32: META entries as in `meta`, the payload's size in two, then the counts.
LOW, HIGH, SIZE, COUNTS = 1, 2, META, META + 4
FOUND = 4  # place of the counts in a decoder's report, after the number of damaged blocks
ALIGNED = 16  # bytes, to which kernels like their arguments aligned
VALUES = (torch.int8, torch.int16, torch.int32)
SUMS = (torch.int16, torch.int32)


def find_device() -> torch.device:
    """Return the device for kernels: the current CUDA device, or the CPU if TRITON_INTERPRET is 1.

    Raises OscarError if there is neither.
    """
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise OscarError(
            "expected a CUDA device, found none; code on the CPU (nic: compiled), "
            "or set TRITON_INTERPRET=1 to try the kernels slowly"
        )
    return torch.device("cuda", torch.cuda.current_device())


class TritonCoder:
    """Codes payloads on a GPU, byte for byte as ReferenceCoder does.

    params: coding parameters
    device: a CUDA device, by default the current one. Only one thread may use a coder at a time; kernels run
    on the current stream. Raises OscarError without a device.
    """

    def __init__(self, params: AscParams, device: torch.device | None = None) -> None:
        self.params = params
        self.device = find_device() if device is None else device
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())  # as tensors name it
        self._cuda = self.device.type == "cuda"
        self._possible = self._put(np.array(POSSIBLE, np.int32))
        self._costs = self._put(np.array(COST, np.int32))
        blank = np.zeros(COUNTS + BINS * (1 + COPIES.value), np.int32)  # a report, and counters after it
        blank[[LOW, HIGH]] = 2**31 - 1, -(2**31)
        self._blank = self._put(blank)

    # --- whole frames

    def encode(
        self,
        values: torch.Tensor,
        classes: torch.Tensor | None,
        width: int,
        state: TableState,
        *,
        ahead: int = 0,
    ) -> memoryview:
        """Return the payload of `values`, in pinned memory that the caller owns; `state` learns.

        values: int8, int16 or int32, 1-D, on the device; classes: uint8 position classes 0..15, or None;
        width: bits of a raw value; ahead: bytes that are left free in front of the payload. Raises TypeError
        or ValueError on other tensors, and where values do not fit `width` bits. `state` is unchanged then.

        The host waits twice: for the report of 4 KiB, and for the payload, because its copy can start only
        when its size is known. A round trip costs about 10 us.
        """
        if not values.numel():
            return memoryview(bytearray(ahead))
        payload, report = self.start_encode(values, classes, width, state)
        known = report.cpu().numpy()
        check_range(int(known[LOW]), int(known[HIGH]), width)
        learned(state, known[COUNTS:].astype(np.int64))
        size = int(known[SIZE:].view(np.int64)[0])
        host = self._pinned(ahead + size)
        host[ahead:].copy_(payload[:size], non_blocking=self._cuda)
        if self._cuda:
            torch.cuda.current_stream(self.device).synchronize()
        return host.numpy().data

    def decode(
        self,
        payload: bytes | memoryview,
        count: int,
        classes: torch.Tensor | None,
        width: int,
        state: TableState,
        out: torch.Tensor,
        plus: torch.Tensor | None,
    ) -> None:
        """Write the values of `payload` to `out`, added to those of `plus` if that is given; `state` learns.

        out, plus: int16 or int32, `count` values, 1-D, on the device; they may be the same. Raises FrameError
        unless the payload holds `count` values of `width` bits. `state` is unchanged then, and `out` may hold
        some of the values. The host waits once, for 4 KiB with the blocks' status and their counts.
        """
        if not count and len(payload):
            raise FrameError(f"{len(payload)} bytes follow the last block: frame damaged")
        self._check(out, SUMS, "room for values")
        if out.numel() != count:
            raise FrameError(f"frame carries {count} values, {out.numel()} were expected here")
        if not count:
            return
        if plus is not None and plus is not out:
            out.copy_(plus)
        host = self._pinned(len(payload))
        host.numpy()[:] = np.frombuffer(payload, np.uint8)
        data = host.to(self.device, non_blocking=self._cuda)
        blocks = parse(payload, count, width, state.hist)
        known = self.start_decode(data, blocks, classes, width, out, plus is not None).cpu().numpy()
        if known[0]:
            raise FrameError(f"{known[0]} coded blocks do not end where their values do: frame damaged")
        learned(state, known[FOUND:].astype(np.int64))

    # --- kernels

    def start_encode(
        self, values: torch.Tensor, classes: torch.Tensor | None, width: int, state: TableState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Start to encode without waiting; return the payload's memory and a report, both on the device.

        The report, int32, has the lowest and the highest value at LOW and HIGH, the payload's bytes at SIZE
        (int64), and the symbol counts from COUNTS on.
        """
        self._check(values, VALUES, "values")
        positions = self._positions(classes, values.numel())
        with self._there():
            return self._encode(values, positions, width, state)

    def _encode(
        self, values: torch.Tensor, positions: torch.Tensor | None, width: int, state: TableState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch the encoder's kernels; see `start_encode`."""
        n, has = values.numel(), positions is not None
        p = values if positions is None else positions  # without positions it is not read
        groups = triton.cdiv(n, 1024)
        some = (triton.cdiv(groups, GROUPS),)
        meta, info, held = self._blank.clone(), self._room(groups * 32), self._room(groups * 3)
        if values.dtype == torch.int32:
            survey_kernels.find_magnitude[triton.cdiv(n, 4096),](values, n, meta, SIZE=4096, **OPTIONS)
        kinds = {"POSITIONS": has, "GROUPS": GROUPS, **OPTIONS}
        least = self.params.least_class
        survey_kernels.classify[some](values, p, n, meta, info, held, LEAST=least, **kinds)
        counts, copies = meta[COUNTS:][:BINS], meta[COUNTS + BINS :].view(-1, BINS)
        cycle = group_cycle(self.params.block_log2)
        survey_kernels.count[some](values, p, n, meta, info, copies, CYCLE=cycle, **kinds)
        torch.sum(copies, 0, dtype=torch.int32, out=counts)
        levels, coding = self._tables(n, counts, meta, state)
        # Where the device chooses the block size, programs are started for the smallest one.
        blocks = (triton.cdiv(n, 1 << (self.params.block_log2 or AUTO_BLOCK_LOG2)),)
        entries, sizes = self._room(*blocks, torch.int64), self._room(*blocks, torch.int64)
        scratch = self._room((n * width + 7) // 8, torch.uint8)
        encode_kernels.encode[blocks](
            values, p, n, width, meta, info, held, coding, scratch, entries, sizes,
            POSITIONS=has, num_warps=1, **OPTIONS,
        )  # fmt: skip
        encode_kernels.pack[some](values, n, width, meta, entries, scratch, GROUPS=GROUPS, **OPTIONS)
        payload = self._room(self.params.max_payload(n, width), torch.uint8)
        ends, size = torch.cumsum(sizes, 0), meta[SIZE:][:2].view(torch.int64)
        encode_kernels.gather[blocks](
            n, width, meta, levels, entries, ends, scratch, payload, size, SIZE=1024, **OPTIONS
        )
        return payload, meta[: COUNTS + BINS]

    def _tables(
        self, n: int, counts: torch.Tensor, meta: torch.Tensor, state: TableState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return levels of sent rows and the coding table, made on the device: the host does not wait."""
        levels, coding = self._room(BINS), self._room(2 * BINS)
        hist = self._put(state.hist.astype(np.int32))
        survey_kernels.tables[1,](
            n, hist, counts, self._possible, self._costs, meta, levels, coding,
            BLOCK_LOG2=self.params.block_log2, SENDS=self.params.sent_rows, **OPTIONS,
        )  # fmt: skip
        return levels, coding

    def start_decode(
        self,
        data: torch.Tensor,
        blocks: Blocks,
        classes: torch.Tensor | None,
        width: int,
        out: torch.Tensor,
        add: bool,
    ) -> torch.Tensor:
        """Start to decode `data`, a payload on the device; `blocks` is what `parse` returned for it.

        Returns int32 on the device: the number of damaged blocks, and from FOUND on the symbol counts, which
        are valid if it is 0.
        """
        positions = self._positions(classes, out.numel())
        kinds = {"NARROW": width <= 16, "ADD": add, **OPTIONS}
        b, sizes = blocks, (FOUND + BINS, COPIES.value * BINS)
        told = torch.zeros(sum(sizes), dtype=torch.int32, device=self.device)
        report, counts = told.split(sizes)
        arrays = b.hist, b.coded, b.coded_at, b.plain, b.plain_at
        hist, coded, coded_at, plain, plain_at = self._put_all(*arrays)
        with self._there():
            if len(b.plain):
                decode_kernels.fill[len(b.plain), 1 << (b.log2 - 10)](
                    out, out if positions is None else positions, out.numel(), b.log2, b.shift,
                    plain, plain_at, data, counts,
                    LEAST=self.params.least_class, POSITIONS=positions is not None, **kinds,
                )  # fmt: skip
            if len(b.coded):
                n, p, means = out.numel(), out, out
                table = self._room(TABLE_ROWS * TOTAL)
                decode_kernels.expand[TABLE_ROWS,](hist, self._possible, b.last, table, **OPTIONS)
                if positions is not None:
                    p, means = positions, self._room(triton.cdiv(n, 1024) * 32)
                    decode_kernels.average[triton.cdiv(n, 1024),](p, n, means, **OPTIONS)
                decode_kernels.decode[len(b.coded),](
                    out, p, means, n, b.log2, b.shift, coded, coded_at, data, table, counts, report,
                    POSITIONS=positions is not None, num_warps=1, **kinds,
                )  # fmt: skip
            torch.sum(counts.view(-1, BINS), 0, dtype=torch.int32, out=report[FOUND:])
        return report

    # --- memory

    def _there(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which kernels start on the device of this coder."""
        return torch.cuda.device(self.device) if self._cuda else contextlib.nullcontext()

    def _put(self, array: np.ndarray) -> torch.Tensor:
        (there,) = self._put_all(array)
        return there

    def _put_all(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        """Return arrays on the device, flat, after one copy for which nobody waits."""
        ends = np.cumsum([-(-array.nbytes // ALIGNED) * ALIGNED for array in arrays])
        begins, host = [0, *ends.tolist()], self._pinned(int(ends[-1]))
        for array, begin in zip(arrays, begins, strict=False):
            host.numpy()[begin : begin + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        there, kinds = host.to(self.device, non_blocking=self._cuda), {4: torch.int32, 8: torch.int64}
        return [
            there[begin : begin + array.nbytes].view(kinds[array.itemsize])
            for array, begin in zip(arrays, begins, strict=False)
        ]

    def _room(self, size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=self.device)

    def _pinned(self, size: int) -> torch.Tensor:
        """Return pinned host memory, which the device reads and writes directly."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=self._cuda)

    def _check(self, tensor: torch.Tensor, kinds: tuple[torch.dtype, ...], what: str) -> None:
        """Raise TypeError or ValueError unless a tensor is 1-D, contiguous, on the device, of `kinds`."""
        if tensor.dtype not in kinds or tensor.device != self.device or not tensor.is_contiguous():
            raise TypeError(
                f"expected {what} as contiguous {', '.join(map(str, kinds))} on {self.device}, "
                f"got {tensor.dtype} on {tensor.device}"
            )
        if tensor.dim() != 1 or tensor.numel() > MOST_VALUES:
            raise ValueError(f"expected {what} of one axis and at most 2^30, got shape {tuple(tensor.shape)}")

    def _positions(self, classes: torch.Tensor | None, count: int) -> torch.Tensor | None:
        if classes is None or not self.params.uses_position:
            return None
        self._check(classes, (torch.uint8,), "position classes")
        if classes.numel() != count:
            raise ValueError(f"expected {count} position classes, got {classes.numel()}")
        return classes
