"""The Triton twin of the coder: payloads of tensors on a GPU (the extra `gpu`).

Frames leave and come through pinned memory of the host. A card codes a block in a warp and wants some
thousand of them at once: block_log2 13 serves frames of 16 million values and more, 12 smaller ones, 14 and
15 those of 100 million. 0, which chooses by what a frame holds, makes blocks too large to fill a card.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
import triton

from oscar.coding.asc import triton_decode, triton_encode, triton_survey
from oscar.coding.asc.params import (
    AUTO_BLOCK_LOG2,
    COST,
    POSSIBLE,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    AscParams,
)
from oscar.coding.asc.state import TableState
from oscar.coding.asc.triton_payload import Blocks, learned, parse
from oscar.coding.asc.triton_values import META
from oscar.coding.codec import check_range
from oscar.errors import FrameError, OscarError

MOST_VALUES = 1 << 30  # of a frame: indices are int32
BINS = TABLE_ROWS * SYMBOLS
LOW, HIGH = 1, 2  # of the report, which begins as `meta` does
VALUES = (torch.int8, torch.int16, torch.int32)
SUMS = (torch.int16, torch.int32)


def find_device() -> torch.device:
    """Return where kernels run: a CUDA device, or the CPU under TRITON_INTERPRET=1; else raises OscarError."""
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise OscarError(
            "expected a CUDA device, found none; code on the CPU with make_coder(params), "
            "or set TRITON_INTERPRET=1 to try the kernels slowly"
        )
    return torch.device("cuda", torch.cuda.current_device())


class TritonCoder:
    """Codes payloads on a GPU; byte for byte those of ReferenceCoder.

    params: of the frame; device: by default the current one. One thread at a time; calls wait for the device.
    Raises OscarError without a device.
    """

    def __init__(self, params: AscParams, device: torch.device | None = None) -> None:
        self.params = params
        self.device = find_device() if device is None else device
        self.pinned = self.device.type == "cuda"
        self._possible = self._put(np.array(POSSIBLE, np.int32))
        self._costs = self._put(np.array(COST, np.int32))
        self._meta = self._put(np.array([0, 2**31 - 1, -(2**31), *[0] * (META - 3)], np.int32))

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _room(self, size: int) -> torch.Tensor:
        """Return bytes of the host that the device reads and writes by itself."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=self.pinned)

    def _check(self, tensor: torch.Tensor, kinds: tuple[torch.dtype, ...], what: str) -> None:
        if tensor.dtype not in kinds or tensor.device.type != self.device.type or not tensor.is_contiguous():
            raise TypeError(
                f"expected {what} as one of {', '.join(map(str, kinds))}, contiguous on {self.device}, "
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

    # --- encoding

    def encode(
        self, values: torch.Tensor, classes: torch.Tensor | None, width: int, state: TableState
    ) -> memoryview:
        """Return the payload of `values`, in pinned memory that the caller owns; `state` learns.

        values: int8, int16 or int32 on the device; classes: uint8 0..15, or None. Raises TypeError or
        ValueError on others, and where values do not fit `width` bits; `state` is as it was then.

        The host waits twice: for the size and what tables learn, 2 KiB (some 10 us after the kernels), and for
        the payload, whose copy cannot begin before its size is known.
        """
        self._check(values, VALUES, "values")
        if not values.numel():
            return memoryview(b"")
        positions = self._positions(classes, values.numel())
        payload, report = self._encode(values, positions, width, state)
        known = report.cpu().numpy()
        check_range(int(known[LOW]), int(known[HIGH]), width)
        learned(state, known[META + 1 :])
        host = self._room(int(known[META]))
        host.copy_(payload[: host.numel()], non_blocking=self.pinned)
        if self.pinned:
            torch.cuda.current_stream(self.device).synchronize()
        return memoryview(host.numpy())

    def _encode(
        self, values: torch.Tensor, positions: torch.Tensor | None, width: int, state: TableState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return room that holds the payload, and meta, size and counts as int64; waits for nothing."""
        n, has = values.numel(), positions is not None
        groups = triton.cdiv(n, 1024)
        meta = self._meta.clone()
        info = self._empty(groups * 32, torch.int32)
        held = self._empty(groups * 3, torch.int32)
        counts = torch.zeros(2 * BINS, dtype=torch.int32, device=self.device)
        p = values if positions is None else positions
        many = (triton.cdiv(groups, triton_survey.GROUPS),)
        if values.dtype == torch.int32:
            triton_survey.find_magnitude[(triton.cdiv(n, 4096),)](values, n, meta, SIZE=4096)
        triton_survey.classify[many](
            values, p, n, meta, info, held,
            LEAST=self.params.least_class, POSITIONS=has, GROUPS=triton_survey.GROUPS,
        )  # fmt: skip
        survey = {"POSITIONS": has, "GROUPS": triton_survey.GROUPS}
        triton_survey.count[many](values, p, n, meta, info, meta, counts, UNCODED=False, **survey)
        levels, coding = self._empty(BINS, torch.int32), self._empty(2 * BINS, torch.int32)
        hist = self._put(state.hist.astype(np.int32).reshape(-1))
        triton_survey.tables[(1,)](
            n, hist, counts, self._possible, self._costs, meta, levels, coding,
            BLOCK_LOG2=self.params.block_log2, SENDS=self.params.sent_rows,
        )  # fmt: skip
        # Where the device chooses the block size, programs are launched for the smallest one.
        blocks = triton.cdiv(n, 1 << (self.params.block_log2 or AUTO_BLOCK_LOG2))
        entries, sizes = self._empty(blocks, torch.int64), self._empty(blocks, torch.int64)
        scratch = self._empty((n * width + 7) // 8, torch.uint8)
        triton_encode.encode[(blocks,)](
            values, p, n, width, meta, info, held, coding, scratch, entries, sizes, POSITIONS=has, num_warps=1
        )
        ends = torch.cumsum(sizes, 0)
        payload = self._empty(self.params.max_payload(n, width), torch.uint8)
        triton_encode.pack[many](values, n, width, meta, entries, scratch, GROUPS=triton_survey.GROUPS)
        total = self._empty(1, torch.int64)
        triton_encode.gather[(blocks,)](
            n, width, meta, levels, entries, ends, scratch, payload, total, SIZE=1024
        )
        triton_survey.count[many](values, p, n, meta, info, entries, counts[BINS:], UNCODED=True, **survey)
        return payload, torch.cat((meta.long(), total, (counts[:BINS] - counts[BINS:]).long()))

    def _empty(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=self.device)

    # --- decoding

    def decode(
        self,
        payload: bytes | memoryview,
        count: int,
        classes: torch.Tensor | None,
        width: int,
        state: TableState,
        out: torch.Tensor,
        add: bool,
    ) -> None:
        """Put the values of `payload` into `out`, or add them; `state` learns.

        out: `count` int16 or int32 on the device. Raises FrameError where the payload is none of these values;
        `state` is as it was then, `out` may hold some of them. The host waits once, for the blocks' status and
        what tables learn.
        """
        self._check(out, SUMS, "room for values")
        positions = self._positions(classes, count)
        if not count and len(payload):
            raise FrameError(f"{len(payload)} bytes follow the last block: frame damaged")
        if out.numel() != count:
            raise FrameError(f"frame carries {count} values, {out.numel()} were expected here")
        if not count:
            return
        blocks = parse(payload, count, width, state.hist)
        report = self._decode(payload, positions, width, blocks, out, add)
        known = report.cpu().numpy()
        if known[0]:
            raise FrameError(f"{known[0]} coded blocks do not end where their values do: frame damaged")
        learned(state, known[1:])

    def _decode(
        self,
        payload: bytes | memoryview,
        positions: torch.Tensor | None,
        width: int,
        blocks: Blocks,
        out: torch.Tensor,
        add: bool,
    ) -> torch.Tensor:
        """Return how many coded blocks are damaged, and counts, as int64; waits for nothing."""
        n, has = out.numel(), positions is not None
        host = self._room(len(payload))
        host.numpy()[:] = np.frombuffer(payload, np.uint8)
        data = host.to(self.device, non_blocking=self.pinned)
        kinds: dict[str, bool] = {"NARROW": width <= 16, "ADD": add}
        if len(blocks.plain):
            parts = 1 << (blocks.log2 - 10)
            fields, at = self._put(blocks.plain), self._put(blocks.plain_at)
            triton_decode.fill[(len(fields), parts)](out, n, blocks.log2, fields, at, data, **kinds)
        counts = torch.zeros(triton_decode.COPIES.value, BINS, dtype=torch.int32, device=self.device)
        status = torch.zeros(max(1, len(blocks.coded)), dtype=torch.int32, device=self.device)
        if len(blocks.coded):
            table = self._empty(TABLE_ROWS * TOTAL, torch.int32)
            triton_decode.expand[(TABLE_ROWS,)](self._put(blocks.hist), self._possible, table)
            fields, at = self._put(blocks.coded), self._put(blocks.coded_at)
            means = self._empty(triton.cdiv(n, 1024) * 32 if has else 1, torch.int32)
            if positions is not None:
                triton_decode.average[(triton.cdiv(n, 1024),)](positions, n, means)
            triton_decode.decode[(len(fields),)](
                out, out if positions is None else positions, means, n, blocks.log2, blocks.shift, fields, at, data,
                table, counts, status, POSITIONS=has, **kinds, num_warps=1,
            )  # fmt: skip
        return torch.cat((status.sum().reshape(1), counts.sum(0)))
