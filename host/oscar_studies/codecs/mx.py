"""Baselines of few bits a float: the MX formats, and float8 with a scale for each row.

MX (OCP Microscaling Formats 1.0, 2023): 32 values share a scale, a power of two in one byte (E8M0):
floor(log2 of the largest) less the largest exponent of an element. Elements are E4M3 (mxfp8), E2M3 (mxfp6) or
E2M1 (mxfp4), rounded to nearest even; larger values become the largest element. `fp8-rows` is the format
of torchft: E4M3, with a float32 scale for each row, by which the row's largest value becomes 448. torchft's
rows are those of a matrix; here a row is 512 values of a flat chunk (inferred).

Payload: the scales of all blocks, then the elements, each with its sign on top, the lowest bit first.
A block with NaN or Inf is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec, Domain, framed
from oscar.coding.plain import damaged
from oscar.numerics.tensors import pack_bits, packed_size, unpack_bits

BIAS, NAN_SCALE = 127, 255  # of an E8M0 scale
SCALE_LIMIT = 127


@dataclass(frozen=True)
class Element:
    """A small float: bits of exponent and mantissa, and the code of its largest finite magnitude."""

    exponent_bits: int
    mantissa_bits: int
    largest: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal magnitude, and of those below it."""
        return 2 - (1 << (self.exponent_bits - 1))

    @property
    def magnitudes(self) -> Array:
        """The magnitude of each code, float32; NaN beyond the largest."""
        codes = np.arange(1 << (self.bits - 1))
        field, mantissa = codes >> self.mantissa_bits, codes & ((1 << self.mantissa_bits) - 1)
        whole = mantissa + ((field > 0) << self.mantissa_bits)
        exponent = self.least_exponent + np.maximum(field, 1) - 1 - self.mantissa_bits
        return np.where(codes <= self.largest, np.ldexp(whole.astype(np.float32), exponent), np.nan).astype(
            "f4"
        )

    def encode(self, values: Array) -> Array:
        """Return the code of each finite float32, uint8: sign on top, magnitude to nearest even."""
        size = np.abs(values)
        exponent = np.where(size > 0, np.frexp(size)[1] - 1, self.least_exponent)
        exponent = np.maximum(exponent, self.least_exponent)
        steps = np.rint(np.ldexp(size, self.mantissa_bits - exponent)).astype(np.int32)
        code = np.minimum(((exponent - self.least_exponent) << self.mantissa_bits) + steps, self.largest)
        return (code | np.signbit(values).astype(np.int32) << (self.bits - 1)).astype(np.uint8)

    def decode(self, codes: Array) -> Array:
        """Return the float32 of each code."""
        table = self.magnitudes
        return np.concatenate((table, -table))[codes]


E4M3, E2M3, E2M1 = Element(4, 3, 0x7E), Element(2, 3, 0x1F), Element(2, 1, 0x07)


class _Scaled:
    """Blocks of values that share a scale."""

    domain: Domain = "float"
    block: int
    scale: str  # dtype of a block's scale

    def __init__(self, element: Element, code: int) -> None:
        self.element, self.code = element, code

    def max_payload(self, count: int, width: int) -> int:
        return -(-count // self.block) * np.dtype(self.scale).itemsize + packed_size(count, self.element.bits)

    def pack(self, values: Array, width: int) -> bytes:
        blocks = np.zeros((-(-values.size // self.block), self.block), np.float32)
        blocks.ravel()[: values.size] = values
        good = np.isfinite(blocks).all(axis=1)
        blocks[~good] = 0
        scales, scaled = self._scale(blocks)
        codes = self.element.encode(scaled).ravel()[: values.size]
        stored = np.where(good, scales, self._nan).astype(self.scale)
        return stored.tobytes() + pack_bits(codes, self.element.bits).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        size, blocks = self.max_payload(count, width), -(-count // self.block)
        if len(payload) != size:
            raise damaged(f"{count} values take {size} bytes, payload has {len(payload)}")
        scales = np.frombuffer(payload, self.scale, blocks)
        codes = unpack_bits(np.frombuffer(payload[scales.nbytes :], np.uint8), count, self.element.bits)
        elements = np.zeros(blocks * self.block, np.float32)
        elements[:count] = self.element.decode(codes)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # a forged scale
            return self._apply(scales, elements.reshape(blocks, self.block)).ravel()[:count]

    _nan: float

    def _scale(self, blocks: Array) -> tuple[Array, Array]:
        """Return the scale of each block, as it is stored, and the blocks divided by it."""
        raise NotImplementedError

    def _apply(self, scales: Array, elements: Array) -> Array:
        """Return elements times their block's scale, float32."""
        raise NotImplementedError


class Mx(_Scaled):
    """An MX format: 32 values share a scale, which is a power of two."""

    block, scale, _nan = 32, "u1", NAN_SCALE

    def _scale(self, blocks: Array) -> tuple[Array, Array]:
        largest = np.abs(blocks).max(axis=1, initial=0)
        top = (self.element.largest >> self.element.mantissa_bits) + self.element.least_exponent - 1
        exponent = np.where(largest > 0, np.frexp(largest)[1] - 1 - top, -SCALE_LIMIT)
        exponent = np.clip(exponent, -SCALE_LIMIT, SCALE_LIMIT)
        return exponent + BIAS, np.ldexp(blocks, -exponent[:, None])

    def _apply(self, scales: Array, elements: Array) -> Array:
        values = np.ldexp(elements, scales.astype(np.int32)[:, None] - BIAS)
        values[scales == NAN_SCALE] = np.nan
        return values


class Fp8Rows(_Scaled):
    """Rows of 512 with a float32 as scale, which takes the largest value to the largest element."""

    block, scale, _nan = 512, "<f4", np.nan

    def _scale(self, blocks: Array) -> tuple[Array, Array]:
        top = float(self.element.magnitudes[self.element.largest])
        scales = (np.abs(blocks).max(axis=1, initial=0).astype(np.float64) / top).astype(np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = blocks / scales[:, None].astype(np.float64)
        return scales, np.where(scales[:, None] > 0, scaled, 0).astype(np.float32)

    def _apply(self, scales: Array, elements: Array) -> Array:
        return elements * scales.astype(np.float32)[:, None]


def mxfp8() -> Codec:
    """Return MX blocks of E4M3."""
    return framed("mxfp8", Mx(E4M3, 17), lossless=False, coded=False)


def mxfp6() -> Codec:
    """Return MX blocks of E2M3."""
    return framed("mxfp6", Mx(E2M3, 18), lossless=False, coded=False)


def mxfp4() -> Codec:
    """Return MX blocks of E2M1."""
    return framed("mxfp4", Mx(E2M1, 19), lossless=False, coded=False)


def fp8_rows() -> Codec:
    """Return E4M3 with a float32 scale for each row."""
    return framed("fp8-rows", Fp8Rows(E4M3, 20), lossless=False, coded=False)
