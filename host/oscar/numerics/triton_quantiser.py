"""The quantiser's passes on a GPU (the extra `gpu`): the bits of quantiser_kernels, in Triton.

Steps are powers of two, so products are exact and only rounding rounds. Exponents come as integers, because a
launch would make float32 of a number.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

EXPONENTS = range(-126, 127)  # of which 2^e and 2^-e are normal float32
MOST_VALUES = 1 << 30  # of a tensor: indices are int32
SIZE = 1024  # values of a program
FLOAT32_MAX = tl.constexpr(torch.finfo(torch.float32).max)
TO_INTEGER = tl.constexpr(1.5 * 2**23)  # float32 this large have no fraction: adding it rounds, ties to even
OPTIONS = {"enable_fp_fusion": False}  # a * b + c rounds as on the host


def quantise(
    tensor: torch.Tensor,
    exponent: int,
    limit: int,
    out: torch.Tensor,
    *,
    residual: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write the nearest integers of `tensor` (and `residual`) / 2^exponent to `out`, at most `limit` in size.

    tensor, residual, keep: flat float32, finite, on one device; out: int8, int16 or int32; keep: takes what
    rounding and clipping lost. limit: below 2^15, and limit 2^exponent a float32. Returns, on the device, how
    many values saturated (int32 of one element), so that the host need not wait. Raises ValueError on an
    exponent that is not -126..126 and on sizes that differ.
    """
    _check(exponent, tensor, out, *(t for t in (residual, keep) if t is not None))
    if not 0 < limit < 1 << 15:
        raise ValueError(f"limit is 1 to 32767, got {limit}")
    clipped = torch.zeros(1, dtype=torch.int32, device=tensor.device)
    n = tensor.numel()
    if n:
        _quantise[(triton.cdiv(n, SIZE),)](
            tensor,
            tensor if residual is None else residual,
            n,
            exponent,
            limit,
            out,
            tensor if keep is None else keep,
            clipped,
            ADDS=residual is not None,
            KEEPS=keep is not None,
            SIZE=SIZE,
            **OPTIONS,
        )
    return clipped


def dequantise(sums: torch.Tensor, nodes: int, exponent: int, out: torch.Tensor) -> None:
    """Write float32(sums / nodes * 2^exponent) to `out`, rounded once; raises ValueError as `quantise`.

    sums: int16 or int32, flat; out: float32 of that size on its device.
    """
    _check(exponent, sums, out)
    n = sums.numel()
    if n:
        _dequantise[(triton.cdiv(n, SIZE),)](sums, n, nodes, exponent, out, SIZE=SIZE, **OPTIONS)


def _check(exponent: int, *tensors: torch.Tensor) -> None:
    if exponent not in EXPONENTS:
        raise ValueError(f"exponents of steps are -126 to 126, got {exponent}")
    first = tensors[0]
    if first.numel() > MOST_VALUES:
        raise ValueError(f"expected at most 2^30 values, got {first.numel()}")
    for tensor in tensors:
        if tensor.numel() != first.numel() or tensor.device != first.device or not tensor.is_contiguous():
            raise ValueError(
                f"expected {first.numel()} contiguous values on {first.device}, "
                f"got {tensor.numel()} on {tensor.device}"
            )


@triton.jit
def _quantise(
    tensor,
    residual,
    count,
    exponent,
    limit,
    out,
    keep,
    clipped,
    ADDS: tl.constexpr,
    KEEPS: tl.constexpr,
    SIZE: tl.constexpr,
):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    value = tl.load(tensor + at, mask=inside, other=0.0)
    if ADDS:
        value += tl.load(residual + at, mask=inside, other=0.0)
        value = tl.minimum(tl.maximum(value, -FLOAT32_MAX), FLOAT32_MAX)
    factor = ((127 - exponent) << 23).to(tl.float32, bitcast=True)
    beyond = (limit + 1).to(tl.float32)  # what is clipped here is so by rounding, too
    scaled = tl.minimum(tl.maximum(value * factor, -beyond), beyond)
    rounded = ((scaled + TO_INTEGER) - TO_INTEGER).to(tl.int32)
    bounded = tl.minimum(tl.maximum(rounded, -limit), limit)
    tl.atomic_add(clipped, tl.sum((rounded != bounded).to(tl.int32), 0), sem="relaxed")
    tl.store(out + at, bounded.to(out.dtype.element_ty), mask=inside)
    if KEEPS:
        step = ((127 + exponent) << 23).to(tl.float32, bitcast=True)
        tl.store(keep + at, value - bounded.to(tl.float32) * step, mask=inside)


@triton.jit
def _dequantise(sums, count, nodes, exponent, out, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    total = tl.load(sums + at, mask=at < count, other=0).to(tl.float64)
    step = ((1023 + exponent).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    tl.store(out + at, (total / nodes.to(tl.float64) * step).to(tl.float32), mask=at < count)
