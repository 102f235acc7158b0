"""Lossless floats as a codec of links (floats.md): payloads by the reference or the compiled twin."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams, make_coder
from oscar.coding.asc.link import Coder, Implementation
from oscar.coding.asc.params import LANES
from oscar.coding.asc.state import TableState
from oscar.coding.codec import Domain
from oscar.coding.floats.layout import (
    CODED,
    FIELD,
    HEAD,
    RAW,
    WIDTH,
    damaged,
    max_bytes,
    packed_bytes,
    rows_of,
    sections,
)
from oscar.coding.plain import Bf16

PAD = 64  # bytes behind arrays that kernels write to


class FloatCoder:
    """Codes payloads of floats, given as the integers of their bits, uint16 or uint32.

    It keeps its memory from call to call, so only one thread may use it at a time.
    """

    def __init__(self, implementation: Implementation = "compiled") -> None:
        self.implementation: Implementation = implementation
        self._room: dict[str, Array] = {}

    def __reduce__(self) -> tuple[type[FloatCoder], tuple[Implementation]]:
        """Copy and pickle the kind only: a copy needs memory of its own."""
        return type(self), (self.implementation,)

    @cached_property
    def asc(self) -> Coder:
        """The coder of exponents and references."""
        return make_coder(AscParams(), self.implementation)

    def encode(self, bits: Array) -> memoryview:
        """Return the payload; the memory is overwritten by the next call."""
        count, size = bits.size, bits.dtype.itemsize
        if not count:
            return memoryview(b"")
        limit = max_bytes(count, size)
        split = self._split_reference if self.implementation == "reference" else self._split
        exponents, references, kept, end = split(bits)
        out = self._memory("payload", np.uint8, 2 * HEAD.size + limit + PAD)
        coded = self._coded(exponents)
        if end + len(coded) < limit:
            HEAD.pack_into(out.data, 0, CODED, int(references[0]), kept, len(coded))
            out[end : end + len(coded)] = np.frombuffer(coded, np.uint8)
            end += len(coded)
            changes = np.diff(references, prepend=references[:1])
            coded = self._coded(changes)
        if end + len(coded) >= limit:
            out[0] = RAW
            out[1:limit] = bits.astype(bits.dtype.newbyteorder("<"), copy=False).view(np.uint8)
            return out[:limit].data
        out[end : end + len(coded)] = np.frombuffer(coded, np.uint8)
        return out[: end + len(coded)].data

    def decode(
        self, payload: memoryview, count: int, dtype: type[np.unsignedinteger], out: Array | None = None
    ) -> Array:
        """Return the bits of `count` floats; raises FrameError for anything `encode` did not return.

        out: array of that many and that dtype for them, which may hold some when it raises.
        """
        bits = np.empty(count, dtype) if out is None else out
        size = np.dtype(dtype).itemsize
        if not count or not len(payload):
            if count or len(payload):
                raise damaged(f"the payload of {count} values", f"{len(payload)} bytes")
            return bits
        if payload[0] == RAW:
            if len(payload) != max_bytes(count, size):
                raise damaged(f"{max_bytes(count, size)} bytes of {count} raw values", f"{len(payload)}")
            bits[:] = np.frombuffer(payload[1:], np.dtype(dtype).newbyteorder("<"))
            return bits
        first, kept, at = sections(payload, count, size)
        rows = rows_of(count)
        references = np.empty(rows, np.int16)
        self._open(payload[at.references :], references)
        if references[0]:
            raise damaged("no change of the first reference", f"{references[0]}")
        total = np.cumsum(references, dtype=np.int32) + first
        if int(total.min()) < 0 or int(total.max()) > FIELD:
            raise damaged(f"references of 0 to {FIELD}", f"{total.min()} to {total.max()}")
        exponents = self._memory("exponents", np.int16, LANES * rows)
        exponents[count:] = 0
        self._open(payload[at.exponents : at.references], exponents[:count])
        if np.count_nonzero(exponents) != kept:
            raise damaged(f"{kept} values that are not zero", f"{np.count_nonzero(exponents)}")
        packed, low = payload[at.packed : at.low], payload[at.low : at.exponents]
        join = self._join_reference if self.implementation == "reference" else self._join
        join(exponents, total.astype(np.int16), packed, low, kept, bits)
        return bits

    def _coded(self, integers: Array) -> bytes | memoryview:
        return self.asc.encode(integers, None, WIDTH, TableState.initial())

    def _open(self, payload: memoryview, out: Array) -> None:
        self.asc.decode(payload, out.size, None, WIDTH, TableState.initial(), out, None)

    def _memory(self, name: str, dtype: type, size: int) -> Array:
        """Return an array of `size` items, kept from call to call."""
        array = self._room.get(name)
        if array is None or array.size < size:
            array = self._room[name] = np.empty(size, dtype)
        return array[:size]

    def _split(self, bits: Array) -> tuple[Array, Array, int, int]:
        """Return exponents, references, non-zero values, and the end of the mantissas in the payload."""
        from oscar.coding.asc.compiled.coder import address
        from oscar.coding.floats import kernels

        count, size, rows = bits.size, bits.dtype.itemsize, rows_of(bits.size)
        exponents = self._memory("exponents", np.int16, LANES * rows)
        references = self._memory("references", np.int16, rows)
        out = self._memory("payload", np.uint8, 2 * HEAD.size + max_bytes(count, size) + PAD)
        low = self._memory("low", np.uint8, (2 * count if size == 4 else 0) + PAD)
        scratch = self._memory("scratch", np.uint8, kernels.SCRATCH)
        kept = int(
            kernels.split(
                address(bits), size, count, address(exponents), address(references),
                address(out) + np.uint64(HEAD.size), address(low), address(scratch),
            )
        )  # fmt: skip
        end = HEAD.size + packed_bytes(kept)
        if size == 4:
            out[end : end + 2 * kept] = low[: 2 * kept]
            end += 2 * kept
        return exponents[:count], references, kept, end

    def _join(
        self,
        exponents: Array,
        references: Array,
        packed: memoryview,
        low: memoryview,
        kept: int,
        bits: Array,
    ) -> None:
        from oscar.coding.asc.compiled.coder import address
        from oscar.coding.floats import kernels

        scratch = self._memory("scratch", np.uint8, kernels.SCRATCH)
        sources = [np.frombuffer(part, np.uint8) for part in (packed, low)]
        wrong = kernels.join(
            address(exponents), address(references), *map(address, sources), kept,
            address(bits), bits.itemsize, bits.size, address(scratch),
        )  # fmt: skip
        if wrong == kernels.BAD_FIELD:
            raise damaged(f"exponent fields of 0 to {FIELD}", "others")
        if wrong:
            raise damaged("zeros behind the last mantissa", "others")

    def _split_reference(self, bits: Array) -> tuple[Array, Array, int, int]:
        from oscar.coding.floats import reference

        size = bits.dtype.itemsize
        exponents, references, mantissas = reference.split(bits.tolist(), size)
        below = 8 * size - 16
        packed = reference.pack([m >> below for m in mantissas])
        low = np.array(mantissas, np.uint32).astype("<u2").tobytes() if below else b""
        end = HEAD.size + len(packed) + len(low)
        out = self._memory("payload", np.uint8, 2 * HEAD.size + max_bytes(bits.size, size) + PAD)
        out[HEAD.size : end] = np.frombuffer(packed + low, np.uint8)
        return np.array(exponents, np.int16), np.array(references, np.int16), len(mantissas), end

    def _join_reference(
        self,
        exponents: Array,
        references: Array,
        packed: memoryview,
        low: memoryview,
        kept: int,
        bits: Array,
    ) -> None:
        from oscar.coding.floats import reference

        size = bits.itemsize
        mantissas = reference.unpack(bytes(packed), kept)
        if size == 4:
            lower = np.frombuffer(low, "<u2").tolist()
            mantissas = [high << 16 | rest for high, rest in zip(mantissas, lower, strict=True)]
        depths = exponents[: bits.size].tolist()
        bits[:] = reference.join(depths, references.tolist(), mantissas, size)


class Fp32Lossless:
    """Sends float32 values bit for bit, exponents coded."""

    code = 13
    domain: Domain = "float"

    def __init__(self, implementation: Implementation = "compiled") -> None:
        self.coder = FloatCoder(implementation)

    def pack(self, values: Array, width: int) -> memoryview:
        return self.coder.encode(values.view(np.uint32))

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        return self.coder.decode(payload, count, np.uint32).view(np.float32)

    def max_payload(self, count: int, width: int) -> int:
        return max_bytes(count, 4)


class Bf16Lossless(Bf16):
    """Sends bfloat16 as `Bf16` rounds it, exponents coded: the same values in fewer bytes."""

    code = 12

    def __init__(self, implementation: Implementation = "compiled") -> None:
        super().__init__()
        self.coder = FloatCoder(implementation)

    def pack(self, values: Array, width: int) -> bytes:
        halves = np.frombuffer(super().pack(values, width), self.dtype).astype(np.uint16, copy=False)
        return self.coder.encode(halves)  # type: ignore[return-value]  # pack_frame takes both

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        halves = self.coder.decode(payload, count, np.uint16).astype(np.uint32)
        return (halves << np.uint32(16)).view(np.float32)

    def max_payload(self, count: int, width: int) -> int:
        return max_bytes(count, 2)
