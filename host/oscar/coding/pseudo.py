"""Tensors and sparse tensors as bytes that describe themselves, without a link or a state (pseudo.md).

A message is a head with a CRC-32, then frames of ASC: of a sparse tensor's gaps between positions, and of the
values.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from oscar.array import Array
from oscar.coding.asc import Decoder, Encoder
from oscar.coding.asc.params import DIRECTORY_BYTES, MAX_BLOCK_LOG2
from oscar.coding.index.base import check_size, first_wrong
from oscar.coding.message import (
    DENSE,
    FLOATS,
    MAX_EXPONENT,
    SPARSE,
    MessageHead,
    bits_dtype,
    damaged,
    flat_bits,
    frames_of,
    from_bits,
    read_head,
)
from oscar.coding.plain import Bf16, Fp16
from oscar.errors import GradientError
from oscar.kernels import njit
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.quantiser_kernels import FLOAT32_MAX, all_finite, hold_within
from oscar.numerics.steps import MIN_EXPONENT
from oscar.numerics.sum_kernels import to_means
from oscar.numerics.tensors import narrowed

PIECE = 1 << 26  # values of a frame; larger tensors take several
BITS = 16  # of the integers that floats become
MOST_IN_BYTE = (1 << MAX_BLOCK_LOG2) // DIRECTORY_BYTES + 1  # values: those of a constant block
KEPT = "send it by oscar.floats, which keeps every bit, or "
SUMS = 16  # of squares, side by side: their order is part of what `encode` does, and a vector's width
# What rounds to these, and keeps finite values finite
NARROW: dict[str, Bf16 | Fp16] = {"bfloat16": Bf16(), "float16": Fp16()}


class SparseTensor(NamedTuple):
    """The values of a tensor that are sent, and where they lie.

    positions: int64, ascending, in the flat tensor; values: of any dtype, one for each; shape: of the tensor

    >>> SparseTensor(np.array([1, 3]), np.array([5, -5]), (2, 2)).dense().tolist()
    [[0, 5], [0, -5]]
    """

    positions: Any
    values: Any
    shape: tuple[int, ...]

    def dense(self) -> Any:
        """Return the tensor, with zeros where nothing was sent."""
        if hasattr(self.values, "new_zeros"):
            full = self.values.new_zeros(math.prod(self.shape))
        else:
            full = np.zeros(math.prod(self.shape), self.values.dtype)
        full[self.positions] = self.values
        return full.reshape(self.shape)


def encode(tensor: Any, *, shape: Any = None, coarseness: float = 0.5) -> bytes:
    """Return a tensor as bytes that `decode` needs nothing else for.

    tensor: array of NumPy or tensor of PyTorch, or (positions, values) of a sparse one. Integers come back as
    they are. Floats are rounded to multiples of one step, the power of two nearest to `coarseness` times
    their root mean square, or more where the largest would need more than 16 bits.
    shape: of the whole tensor, needed with a plain pair. positions: integers, distinct, in the flat tensor;
    in any order, but ascending ones take less time, and they come back ascending.
    Raises TypeError for what is no tensor, or of a dtype that is not carried, ValueError for other bad
    arguments, GradientError for floats that are NaN, Inf, beyond float32, or all below its range.

    >>> data = encode((np.array([3, 9]), np.array([1, -2], np.int8)), shape=(4, 4))
    >>> decode(data).positions.tolist(), decode(data).values.tolist()
    ([3, 9], [1, -2])
    """
    index: list[bytes] = []
    if isinstance(tensor, tuple):
        positions, flat, dtype, whole = _sparse(tensor, shape)
        kind = SPARSE
        positions, flat = _ascending(positions, flat, math.prod(whole))
        index = _frames(_gaps(positions))
    elif shape is not None:
        raise ValueError("shape is for (positions, values); a tensor has its own")
    else:
        flat, dtype, whole = flat_bits(tensor)
        kind = DENSE
    integers, exponent, bits = _integers(flat, dtype, coarseness)
    head = MessageHead(kind, dtype, whole, exponent, bits, sum(map(len, index)))
    return b"".join((head.pack(), *index, *_frames(integers)))


def decode(data: bytes, *, as_torch: bool = False) -> Any:
    """Return the tensor that `encode` was given, or a SparseTensor for a sparse one.

    as_torch: tensors of PyTorch, on the CPU; else arrays of NumPy, where bfloat16 becomes float32. The dtype
    is the one that was encoded.
    Raises FrameError for damaged bytes, and for a head or codes that no `encode` writes.

    >>> decode(encode(np.arange(-2, 3, dtype=np.int16)))
    array([-2, -1,  0,  1,  2], dtype=int16)
    """
    head, rest = read_head(data, DENSE, SPARSE)
    if head.kind == DENSE:
        if head.index:
            raise damaged("no positions", f"{head.index} bytes of them")
        flat = _values(_read_frames(rest, head.size), head)
        return from_bits(flat, head.dtype, head.shape, as_torch=as_torch)
    if head.index > len(rest):
        raise damaged(f"{head.index} bytes of positions", f"{len(rest)}")
    positions = _positions(_read_frames(rest[: head.index], head.size, fewer=True), head.size)
    count = (positions.size,)
    flat = _values(_read_frames(rest[head.index :], positions.size), head)
    where = from_bits(positions, "int64", count, as_torch=as_torch)
    return SparseTensor(where, from_bits(flat, head.dtype, count, as_torch=as_torch), head.shape)


def _sparse(pair: tuple[Any, ...], shape: Any) -> tuple[Array, Array, str, tuple[int, ...]]:
    """Return positions, values, their dtype and the whole shape of a sparse tensor, held to each other."""
    if isinstance(pair, SparseTensor) and shape is None:
        shape = pair.shape
    if len(pair) not in (2, 3) or shape is None:
        raise ValueError("a sparse tensor is (positions, values) and the shape of the whole: shape=...")
    positions, kind, lengths = flat_bits(pair[0])
    if kind in FLOATS:
        raise TypeError(f"positions are integers, got {kind}")
    values, dtype, length = flat_bits(pair[1])
    if lengths != length or len(lengths) != 1:
        raise ValueError(
            f"positions and values are 1-D and of one length, got shapes {lengths} and {length}; "
            "add each chunk's first position, then flatten both"
        )
    return positions.astype(np.int64, copy=False), values, dtype, _whole(shape)


def _whole(shape: Any) -> tuple[int, ...]:
    """Return a shape that is given as a number or as several; raises TypeError and ValueError for others."""
    try:
        whole = tuple(map(operator.index, shape if np.iterable(shape) else (shape,)))
    except TypeError:
        raise TypeError(f"a shape is an integer or a sequence of them, got {shape!r}") from None
    if min(whole, default=0) < 0:
        raise ValueError(f"a shape has no negative numbers, got {whole}")
    return whole


def _ascending(positions: Array, values: Array, size: int) -> tuple[Array, Array]:
    """Return both in ascending order of positions; raises ValueError for repeated ones or one outside."""
    check_size(size)
    if first_wrong(positions, size) < 0:
        return positions, values
    order = np.argsort(positions, kind="stable")
    positions, values = positions[order], values[order]
    if (at := first_wrong(positions, size)) >= 0:
        raise ValueError(f"positions differ and lie in 0 to {size - 1}, got {positions[at]}, or it twice")
    return positions, values


def _gaps(positions: Array) -> Array:
    """Return the gaps before positions as the integers that are coded: 0, 1, 2, 3 as 0, -1, 1, -2.

    A sign takes a bit in ASC whatever the tables, so it stands for the lowest bit, which is as random.
    """
    gaps = np.diff(positions, prepend=-1) - 1
    return ((gaps >> 1) ^ -(gaps & 1)).astype(np.int16 if gaps.max(initial=0) < 1 << 16 else np.int32)


def _positions(coded: Array, size: int) -> Array:
    """Return the positions of `_gaps`; raises FrameError where one is not below `size`."""
    wide = coded.astype(np.int64)
    positions = np.cumsum((wide << 1 ^ wide >> 63) + 1) - 1
    if (at := first_wrong(positions, size)) >= 0:
        raise damaged(f"positions of 0 to {size - 1}", f"{positions[at]} as number {at}")
    return positions


def _frames(integers: Array) -> list[bytes]:
    """Return the frames of integers, as one link sends them."""
    encoder, pieces = Encoder(), range(0, integers.size, PIECE)
    return [encoder.encode(integers[at : at + PIECE], step=0) for at in pieces]


def _integers(flat: Array, dtype: str, coarseness: float) -> tuple[Array, int, int]:
    """Return the integers that are coded, log2 of their step, and the bits of unsigned codes (else 0)."""
    if dtype in FLOATS:
        return *_quantised(flat, dtype, coarseness), 0
    if flat.dtype.kind != "u":
        return flat, 0, 0
    bits = int(flat.max(initial=1)).bit_length()
    half = 1 << (bits - 1)  # codes around 0, and no 0, which has no sign: the top bit is the sign
    signed = flat.astype(np.int32) - half
    return signed + (signed >= 0), 0, bits


def _quantised(flat: Array, dtype: str, coarseness: float) -> tuple[Array, int]:
    params = QuantiserParams(coarseness=coarseness, bits=BITS)
    values = narrowed(from_bits(flat, dtype, flat.shape, as_torch=False))
    if not all_finite(values):
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        value = from_bits(flat[bad : bad + 1], dtype, (), as_torch=False)  # of bfloat16, not its bits
        raise GradientError(
            f"expected finite values within float32, got {value} at flat index {bad}",
            advice=f"; {KEPT if dtype in ('float32', 'bfloat16') else ''}skip this step",
        )
    largest = max(-float(values.min(initial=0)), float(values.max(initial=0)))
    if not largest:
        return np.zeros(values.size, np.int16), 0
    finest = math.frexp(largest)[1] - (BITS - 2)  # the largest takes up to 2^14 steps
    energy = math.fsum(_squares(values)) / values.size
    wanted = math.frexp(energy * (params.coarseness * params.coarseness))[1] // 2
    exponent = min(max(wanted, finest, MIN_EXPONENT), MAX_EXPONENT)
    worker = WorkerQuantiser(params, 0)
    return worker.quantise([values], [exponent], np.int16), exponent


@njit(cache=True, nogil=True)
def _squares(values: Any) -> Any:
    """Return the sum of squares of every SUMS-th float32 from the first on, from the second on, and so on.

    A square is exact in float64, and each sum is made in order: one tensor has one step on every machine.
    """
    sums = np.zeros(SUMS, np.float64)
    whole = values.size - values.size % SUMS
    for low in range(0, whole, SUMS):
        for i in range(SUMS):
            value = np.float64(values[low + i])
            sums[i] += value * value
    for i in range(values.size - whole):
        value = np.float64(values[whole + i])
        sums[i] += value * value
    return sums


def _values(integers: Array, head: MessageHead) -> Array:
    """Return the values of a message, in the dtype that holds its bits; raises FrameError."""
    if head.dtype in FLOATS:
        out = np.empty(integers.size, np.float32)
        to_means(integers, 1.0, 2.0**head.exponent, out)
        hold_within(out, FLOAT32_MAX)  # the largest may have been rounded up, beyond its dtype
        if head.dtype in NARROW:
            stored = bits_dtype(head.dtype).newbyteorder("<")
            return np.frombuffer(NARROW[head.dtype].pack(out, 32), stored).astype(bits_dtype(head.dtype))
        return out.astype(head.dtype, copy=False)
    codes = integers
    if head.bits:
        if not codes.all():
            raise damaged("unsigned codes, sent without a 0", f"0 at index {int(np.argmin(codes != 0))}")
        codes = codes.astype(np.int32) - (codes > 0) + (1 << (head.bits - 1))
        if (needed := max(1, int(codes.max(initial=1)).bit_length())) != head.bits:
            raise damaged(f"codes of {head.bits} bits", f"{needed}")
    kind = bits_dtype(head.dtype)
    limits = np.iinfo(kind)
    low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
    if low < limits.min or high > limits.max:
        raise damaged(f"values of {head.dtype}", f"{low} to {high}")
    return codes.astype(kind, copy=False)


def _read_frames(view: memoryview, count: int, *, fewer: bool = False) -> Array:
    """Return `count` integers, int16 where all fit, from the frames that are all of `view`.

    fewer: whether there may be fewer. Raises FrameError.
    """
    frames = frames_of(view, count, MOST_IN_BYTE, fewer=fewer)
    narrow = all(width <= 16 for _, _, width in frames)
    integers = np.empty(
        sum(here.stop - here.start for _, here, _ in frames), np.int16 if narrow else np.int32
    )
    decoder = Decoder()
    for frame, here, _ in frames:
        decoder.decode(frame, step=0, out=integers[here])  # type: ignore[arg-type]
    return integers
