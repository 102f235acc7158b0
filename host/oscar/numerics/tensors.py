"""Tensors as flat arrays: checked, cut from one array, packed in bits, and in memory that is used again.

Also the sizes of the tensors of a flat gradient with bounds of a residual that follow from them, and the
dtypes of gradients: which ones are coded, and why the others are not. All integrations share these rules.
Gradients are coded as float32. A dtype is coded where float32 has all its values. Others are sent
uncompressed by integrations that can do so, and refused by the rest.
"""

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
from oscar.kernels import njit
from oscar.numerics.quantiser_kernels import all_finite

CODED = ("float32", "float16", "bfloat16")
RANGE = "float32, in which gradients are coded, has neither its range nor its precision"
NO_CODEC = "complex numbers have no codec"


def name_of(dtype: Any) -> str:
    """Return the name of a dtype of NumPy or torch, such as "float32"."""
    return str(dtype).rpartition(".")[2]


def why_uncoded(dtype: Any) -> str | None:
    """Return why gradients of `dtype` are not coded; None: they are. dtype: of NumPy or torch.

    Raises TypeError for a dtype that gradients cannot have: integers, bool and anything else that is neither
    floating-point nor complex.
    """
    name = name_of(dtype)
    if name in CODED:
        return None
    if name.startswith("complex"):
        return f"{name}: {NO_CODEC}"
    if name.startswith(("float", "bfloat", "longdouble")):
        return f"{name}: {RANGE}" if name == "float64" else f"{name} has no codec"
    raise TypeError(f"expected floating-point gradients, got {name}; convert them, or leave this tensor out")


MATTERS = 1e-3  # share of the gradient's energy from which a tensor's sudden change is acted on

# The kernels loop over slices. LLVM then knows that indices count from 0, and vectorises only such loops.


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _energies(values: Any, offsets: Any, out: Any) -> None:
    for t in range(len(out)):
        here, total = values[offsets[t] : offsets[t + 1]], 0.0
        for j in range(len(here)):
            total += np.float64(here[j]) * np.float64(here[j])
        out[t] = total


@njit(cache=True, nogil=True)
def _shrink(values: Any, bounds: Any) -> float:
    lost = 0.0
    for j in range(len(values)):
        low, high = min(bounds[j], np.float32(0)), max(bounds[j], np.float32(0))
        x = values[j]
        values[j] = min(max(x, low), high) if x == x else np.float32(0)
        lost += (np.float64(x) - np.float64(values[j])) ** 2 if abs(x) <= np.float32(3e38) else 0.0
    return lost


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _growth(values: Any, before: Any) -> float:
    total = 0.0
    for j in range(len(values)):
        moved = np.float64(values[j]) - np.float64(before[j])
        total += moved * moved
    return total


def energies(values: Array, offsets: Array) -> Array:
    """Return every tensor's sum of squares, float64, of flat float32 `values`."""
    out = np.empty(len(offsets) - 1)
    _energies(values, offsets, out)
    return out


def root_mean_squares(values: Array, offsets: Array) -> Array:
    """Return every tensor's root mean square, float64; 0 for an empty tensor."""
    root: Array = np.sqrt(energies(values, offsets) / np.maximum(np.diff(offsets), 1))
    return root


def shrink(values: Array, bounds: Array | None) -> float:
    """Bring each value, in place, into the interval from 0 to its bound; return the energy that this took.

    values, bounds: flat float32 of one size. None: all bounds are 0.
    """
    return float(_shrink(values, np.zeros_like(values) if bounds is None else bounds))


def growth(values: Array, before: Array | None) -> float:
    """Return the root mean square by which flat float32 `values` differ from those before; None: from 0."""
    if before is None:
        return float(root_mean_squares(values, np.array([0, values.size]))[0])
    return float(np.sqrt(_growth(values, before) / max(1, values.size)))


LEAST_NORMAL = float(np.finfo(np.float32).tiny)  # floats below it have fewer digits, and then none
SKIP = "skip this iteration or lower the loss scale"


def check_tensors(tensors: Sequence[Any], node: int, *, remedy: str = SKIP) -> list[np.ndarray]:
    """Return what `as_floats` does. Raises as it and `check_finite` do."""
    flat = as_floats(tensors, node)
    check_finite(flat, node, remedy=remedy)
    return flat


def as_floats(tensors: Sequence[Any], node: int) -> list[np.ndarray]:
    """Return `tensors` as contiguous flat float32 arrays (copied only where needed).

    tensors: floating-point arrays of NumPy, or dense tensors of PyTorch, on any device. What is too large for
    float32 becomes Inf. Raises TypeError on anything else, GradientError where a tensor is too small.
    """
    flat = []
    for index, tensor in enumerate(tensors):
        if type(tensor) is np.ndarray and tensor.dtype == np.float32 and tensor.flags.c_contiguous:
            flat.append(tensor.reshape(-1))  # a model has hundreds
            continue
        try:
            flat.append(_as_float(tensor))
        except (TypeError, GradientError) as error:
            raise type(error)(f"node {node}, tensor {index}: {error}") from None
    return flat


def _as_float(tensor: Any) -> np.ndarray:
    """Return one tensor as contiguous flat float32; errors do not name it."""
    if hasattr(tensor, "detach"):
        if not tensor.is_floating_point():
            raise _no_float(tensor.dtype)
        plain = on_host(tensor)
        array = (plain if plain.dtype.itemsize == 8 else plain.float()).numpy()
    else:
        array = np.asarray(tensor)
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":  # ml_dtypes' kind is V
            raise _no_float(array.dtype)
    return narrowed(array).reshape(-1)


def _no_float(dtype: Any) -> TypeError:
    how = "give the real view, view_as_real" if "complex" in str(dtype) else "convert it first"
    return TypeError(f"expected float32, got {dtype}; {how}")


def on_host(tensor: Any) -> Any:
    """Return a tensor of PyTorch on the CPU, contiguous and without a graph; copied only where needed.

    Raises TypeError where `check_plain` does.
    """
    check_plain(tensor)
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def check_plain(tensor: Any) -> None:
    """Raise TypeError where a tensor of PyTorch has no plain values.

    So has one that is sparse, distributed (DTensor), quantised, or on `meta`.
    """
    if hasattr(tensor, "to_local"):
        raise TypeError("expected a plain tensor, got a DTensor; give to_local() or full_tensor()")
    if str(tensor.layout) != "torch.strided":
        raise TypeError(
            f"expected a dense tensor, got the layout {tensor.layout}; give to_dense(), or its values and "
            "positions apart"
        )
    if tensor.device.type == "meta" or tensor.is_quantized:
        kind = "a quantised tensor" if tensor.is_quantized else "a tensor on meta, which has no values"
        raise TypeError(f"expected a tensor with plain values, got {kind}")


def narrowed(array: Array) -> Array:
    """Return floats as contiguous float32; what is too large becomes Inf, and NaN stays.

    Raises GradientError where all values are below float32's range: they would become 0, or lose digits.
    """
    with np.errstate(over="ignore", under="ignore"):
        values = np.ascontiguousarray(array, dtype=np.float32)
    if array.dtype.itemsize > 4 and array.size:
        largest = max(float(array.max()), -float(array.min()))
        if 0 < largest < LEAST_NORMAL:
            raise GradientError(
                f"expected values within float32's range, {LEAST_NORMAL:.3g} to 3.4e+38, got {array.dtype} "
                f"of at most {largest:.3g}, which would become 0",
                advice="; multiply them by a factor first",
            )
    return values


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
