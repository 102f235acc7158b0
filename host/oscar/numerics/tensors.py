"""Tensors as flat arrays: checked, cut from one array, packed in bits, and in memory that is used again."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from oscar.array import Array, sizes_of
from oscar.errors import GradientError
from oscar.numerics.quantiser_kernels import all_finite

SKIP = "skip this iteration or lower the loss scale"


def check_tensors(tensors: Sequence[np.ndarray], node: int, *, remedy: str = SKIP) -> list[np.ndarray]:
    """Return what `as_floats` does. Raises as it and `check_finite` do."""
    flat = as_floats(tensors, node)
    check_finite(flat, node, remedy=remedy)
    return flat


def as_floats(tensors: Sequence[np.ndarray], node: int) -> list[np.ndarray]:
    """Return `tensors` as contiguous flat float32 arrays (copied only where needed).

    What is too large for float32 becomes Inf. Raises TypeError on anything but floating-point arrays.
    """
    flat = []
    with np.errstate(over="ignore"):
        for index, tensor in enumerate(tensors):
            if type(tensor) is np.ndarray and tensor.dtype == np.float32 and tensor.flags.c_contiguous:
                flat.append(tensor.reshape(-1))  # a model has hundreds
                continue
            array = np.asarray(tensor)
            if array.dtype.kind != "f":
                raise TypeError(
                    f"node {node}, tensor {index}: expected float32, got {array.dtype}; convert it first"
                )
            flat.append(np.ascontiguousarray(array, dtype=np.float32).reshape(-1))
    return flat


def check_finite(
    tensors: Sequence[np.ndarray], node: int, only: Iterable[int] | None = None, *, remedy: str = SKIP
) -> None:
    """Raise GradientError on NaN or Inf in flat float32 `tensors`; only: numbers of those to look at."""
    for index in range(len(tensors)) if only is None else only:
        array = tensors[index]
        if not all_finite(array):
            wrong = np.flatnonzero(~np.isfinite(array))
            raise GradientError(
                f"node {node}, tensor {index}: {wrong.size} of {array.size} values are NaN, Inf or too "
                f"large, the first at flat index {wrong[0]} ({array[wrong[0]]})",
                advice=f"; {remedy}",
            )


def offsets_of(sizes: Sequence[int]) -> Array:
    """Return where each of `sizes` begins in a flat array, and the end: int64 [sizes + 1]."""
    return np.cumsum([0, *sizes], dtype=np.int64)


def parts_of(offsets: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tensor, low, high) of each tensor between two places of the flat array, in which all count."""
    for t in range(bisect_right(offsets, first) - 1, len(offsets) - 1):
        low, high = max(first, int(offsets[t])), min(last, int(offsets[t + 1]))
        if low < high:
            yield t, low, high
        elif low >= last:
            return


def cut(flat: Array, offsets: Array) -> list[Array]:
    """Return views of `flat` from each offset to the next."""
    return [flat[low:high] for low, high in pairwise(offsets.tolist())]


def split(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return views [tensor] of `flat` in `shapes`; raises ValueError unless they fill it."""
    sizes = sizes_of(shapes)
    if sum(sizes) != flat.size:
        raise ValueError(f"expected tensors of {flat.size} values in all, got {sum(sizes)} in {len(sizes)}")
    parts = cut(flat, offsets_of(sizes))
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def pack_bits(codes: Array, bits: int) -> Array:
    """Return unsigned integers in `bits` each, uint8: lowest bit first, the last byte filled with zeros."""
    planes = np.ascontiguousarray(codes, "<u4").view(np.uint8).reshape(-1, 4)
    return np.packbits(np.unpackbits(planes, axis=1, count=bits, bitorder="little"), bitorder="little")


def unpack_bits(packed: Array, count: int, bits: int) -> Array:
    """Return the `count` integers, uint32, that `pack_bits` wrote."""
    each = np.unpackbits(packed, count=count * bits, bitorder="little").reshape(count, bits)
    planes = np.zeros((count, 4), np.uint8)
    filled = np.packbits(each, axis=1, bitorder="little")
    planes[:, : filled.shape[1]] = filled
    return planes.view("<u4").ravel()


def packed_size(count: int, bits: int) -> int:
    """Return the bytes of `count` integers of `bits` in `pack_bits`."""
    return (count * bits + 7) // 8


class Room:
    """Makes arrays for what is handed out, and takes them again once nobody holds them.

    So pages stay mapped: the kernel need not clear new ones in every call. Two arrays take turns where the
    last one is still in use. make: returns a new array of a size and dtype. most: arrays that are kept.
    """

    def __init__(self, make: Callable[[int, npt.DTypeLike], Array] = np.empty, most: int = 2) -> None:
        self._make, self._most = make, most
        self._arrays: list[Any] = []

    def take(self, size: int, dtype: npt.DTypeLike) -> Array:
        """Return an array of `size` values that nobody else holds, not even a view of it."""
        for at in range(len(self._arrays)):
            if self._arrays[at].size == size and self._arrays[at].dtype == dtype and self._lone(at):
                return self._arrays[at]
        fresh = self._make(size, dtype)
        self._arrays = [*self._arrays, fresh][-self._most :]
        return fresh

    def _lone(self, at: int) -> bool:
        """Whether this holds an array alone: as few references count as for one that was never handed out."""
        self._arrays.append(np.empty(0))
        try:
            return sys.getrefcount(self._arrays[at]) <= sys.getrefcount(self._arrays[-1])
        finally:
            self._arrays.pop()
