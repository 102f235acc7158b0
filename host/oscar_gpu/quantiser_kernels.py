"""Triton kernels of the exact scheme's passes over all values: the bits of the host's kernels.

Values of all tensors lie one after the other. A program takes a piece: the values of one tensor within a tile
of SIZE. `pieces`, int32 [pieces][3], has the tensor, the first value, and the end of each. Steps are powers
of two, so products are exact and only rounding rounds; exponents come as integers.
Plan order: blocks of `granule` values begin at `places`, int32; natural order where not ORDERED.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

SIZE = 1024  # values of a tile
UNSET = -1024  # the exponent of a tensor without a step
STRIP, STRIPS = 64, 128  # bytes of a strip, and strips of a tile, of a checksum
FLOAT32_MAX = tl.constexpr(torch.finfo(torch.float32).max)
TO_INTEGER = tl.constexpr(1.5 * 2**23)  # float32 this large have no fraction: adding it rounds, ties to even
NO_STEP = tl.constexpr(UNSET)
POLYNOMIAL = tl.constexpr(0xEDB88320 - (1 << 32))  # of CRC-32, its bits reflected, as int32
STRIP_BYTES, TILE_STRIPS = tl.constexpr(STRIP), tl.constexpr(STRIPS)
OPTIONS = {"enable_fp_fusion": False}  # a * b + c rounds as on the host


@triton.jit
def _place(at, inside, places, granule, ORDERED: tl.constexpr):
    """Return where values of the natural order, those `inside` all, lie in plan order."""
    if ORDERED:
        block = at // granule
        at = tl.load(places + block, mask=inside, other=0) + at - block * granule
    return at


@triton.jit
def quantise(
    values, residual, pieces, exponents, places, granule, limit, out, keep, tallies,
    ADDS: tl.constexpr, KEEPS: tl.constexpr, ORDERED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Write the integers of all tensors to `out`, in plan order; see quantiser_kernels.to_grid.

    exponents: int32 by tensor, -126 to 126 or NO_STEP: such a tensor's integers are 0. tallies: int64
    [tensors][4], zeros, gets how many values saturated, how many are NaN or Inf, the sum of the squares of
    the integers, and how many values are not 0.
    """
    piece = pieces + tl.program_id(0) * 3
    t, low, high = tl.load(piece), tl.load(piece + 1), tl.load(piece + 2)
    at = low // SIZE * SIZE + tl.arange(0, SIZE)
    inside = (at >= low) & (at < high)
    value = tl.load(values + at, mask=inside, other=0.0)
    finite = tl.abs(value) <= FLOAT32_MAX
    bad = tl.sum((~finite).to(tl.int64), 0)
    value = tl.where(finite, value, 0.0)  # the call fails; until then nothing overflows
    nonzero = tl.sum((value != 0.0).to(tl.int64), 0)
    tl.atomic_add(tallies + 4 * t + 3, nonzero, mask=nonzero > 0, sem="relaxed")
    tl.atomic_add(tallies + 4 * t + 1, bad, mask=bad > 0, sem="relaxed")
    if ADDS:
        value += tl.load(residual + at, mask=inside, other=0.0)
        value = tl.minimum(tl.maximum(value, -FLOAT32_MAX), FLOAT32_MAX)
    exponent = tl.load(exponents + t)
    unset = exponent == NO_STEP
    exponent = tl.where(unset, 0, exponent)
    factor = ((127 - exponent) << 23).to(tl.float32, bitcast=True)
    beyond = (limit + 1).to(tl.float32)  # what is clipped here is so by rounding, too
    scaled = tl.where(unset, 0.0, tl.minimum(tl.maximum(value * factor, -beyond), beyond))
    rounded = ((scaled + TO_INTEGER) - TO_INTEGER).to(tl.int32)
    bounded = tl.minimum(tl.maximum(rounded, -limit), limit)
    clipped = tl.sum((rounded != bounded).to(tl.int64), 0)
    tl.atomic_add(tallies + 4 * t, clipped, mask=clipped > 0, sem="relaxed")
    wide = tl.where(inside, bounded, 0).to(tl.int64)
    tl.atomic_add(tallies + 4 * t + 2, tl.sum(wide * wide, 0), sem="relaxed")
    to = _place(at, inside, places, granule, ORDERED)
    tl.store(out + to, bounded.to(out.dtype.element_ty), mask=inside)
    if KEEPS:
        step = ((127 + exponent) << 23).to(tl.float32, bitcast=True)
        tl.store(keep + at, value - bounded.to(tl.float32) * step, mask=inside)


@triton.jit
def spread(values, count, places, granule, out, SIZE: tl.constexpr):
    """Copy `values` of the natural order to plan order."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    to = _place(at, inside, places, granule, True)
    tl.store(out + to, tl.load(values + at, mask=inside, other=0), mask=inside)


@triton.jit
def settle(
    reduced, pieces, tensors, places, granule, nodes, before, old, sums, mean, moved, classes, facts, behind,
    ORDERED: tl.constexpr, POSITIONS: tl.constexpr, COSTS: tl.constexpr, BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Do all that follows from int16 sums; see sum_kernels.settle_range.

    tensors: int32 [tensors][4]: exponent of the step, shifts of the sums and of those before to the finer of
    their steps, and whether they are compared. before: int16 sums. sums: receives them in natural order,
    where they came in another. old, moved: int16, the bits of uint16 position means before and after.
    facts: int64, zeros, gets for each tensor the sum of squares of its sums, and of their change; then,
    `behind` these, for each BLOCK of values what plans.block_costs says (COSTS).
    """
    piece = pieces + tl.program_id(0) * 3
    t, low, high = tl.load(piece), tl.load(piece + 1), tl.load(piece + 2)
    first = low // SIZE * SIZE
    row = tl.arange(0, SIZE // BLOCK)
    at = first + row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (at >= low) & (at < high)
    s = tl.load(reduced + _place(at, inside, places, granule, ORDERED), mask=inside, other=0).to(tl.int32)
    if ORDERED:
        tl.store(sums + at, s.to(tl.int16), mask=inside)
    exponent = tl.load(tensors + 4 * t)
    step = ((1023 + exponent).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    tl.store(mean + at, (s.to(tl.float64) / nodes * step).to(tl.float32), mask=inside)
    wide = s.to(tl.int64)
    tl.atomic_add(facts + 2 * t, tl.sum(tl.sum(wide * wide, 1), 0), sem="relaxed")
    compared = tl.load(tensors + 4 * t + 3) > 0
    last = tl.load(before + at, mask=inside & compared, other=0).to(tl.int64)
    change = (wide << tl.load(tensors + 4 * t + 1)) - (last << tl.load(tensors + 4 * t + 2))
    tl.atomic_add(facts + 2 * t + 1, tl.sum(tl.sum(change * change, 1), 0), mask=compared, sem="relaxed")
    size = tl.abs(s)
    if POSITIONS:
        was = tl.load(old + at, mask=inside, other=0).to(tl.int32) & 0xFFFF
        now = tl.minimum(size, 4095) << 4
        up, down = (now - was) >> 3, (was - now + 7) >> 3
        now = tl.where(now >= was, was + up, was - down)
        tl.store(moved + at, now.to(tl.int16), mask=inside)
        tl.store(classes + at, _class(now).to(tl.uint8), mask=inside)
    if COSTS:
        cost = tl.where(size > 0, 2 * _length(size) + 1, 0)
        to = facts + behind + first // BLOCK + row
        total = tl.sum(cost, 1)
        tl.atomic_add(to, total.to(tl.int64), mask=total > 0, sem="relaxed")


@triton.jit
def rescale(means, pieces, rises, classes, SIZE: tl.constexpr):
    """Shift position means, the bits of uint16, down by `rises`, int32 by tensor; find their classes."""
    piece = pieces + tl.program_id(0) * 3
    t, low, high = tl.load(piece), tl.load(piece + 1), tl.load(piece + 2)
    at = low // SIZE * SIZE + tl.arange(0, SIZE)
    inside = (at >= low) & (at < high)
    rise = tl.load(rises + t)
    mean = (tl.load(means + at, mask=inside, other=0).to(tl.int32) & 0xFFFF).to(tl.int64)
    fallen, risen = mean >> tl.maximum(0, tl.minimum(rise, 16)), mean << tl.maximum(0, tl.minimum(-rise, 16))
    mean = tl.where(rise > 0, fallen, tl.minimum(risen, 65535)).to(tl.int32)
    tl.store(means + at, mean.to(tl.int16), mask=inside)
    tl.store(classes + at, _class(mean).to(tl.uint8), mask=inside)


@triton.jit
def _length(x):
    """Return the bit length of 0 <= x < 2^24, read from the exponent of an exact float32."""
    return tl.maximum((x.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 126, 0)


@triton.jit
def _class(mean):
    return tl.minimum(_length(mean), 15)


@triton.jit
def checksum(data, count, table, lanes, tiles, out):
    """Add (exclusive or) what a tile of bytes adds to their CRC to `out`, int32, zero.

    The remainder of zeros before a message is zero, so the last byte ends the last tile. table: int32 [256],
    remainders of a byte; lanes: int32 [STRIPS], by how much the strips behind shift a strip's; tiles: int32,
    by how much the tiles behind shift a tile's.
    """
    strip = tl.arange(0, TILE_STRIPS)
    end = (tl.num_programs(0) - 1 - tl.program_id(0)) * (TILE_STRIPS * STRIP_BYTES)
    at = count - end - (TILE_STRIPS - strip) * STRIP_BYTES
    crc = tl.zeros((TILE_STRIPS,), tl.int32)
    for i in range(STRIP_BYTES):
        byte = tl.load(data + at + i, mask=at + i >= 0, other=0).to(tl.int32)
        crc = tl.load(table + ((crc ^ byte) & 255)) ^ ((crc >> 8) & 0xFFFFFF)
    whole = tl.xor_sum(_product(crc, tl.load(lanes + strip)), 0)
    tl.atomic_xor(out, _product(whole, tl.load(tiles + tl.program_id(0))), sem="relaxed")


@triton.jit
def _product(a, b):
    """Return the product of two remainders, polynomials over GF(2) with their bits reflected, int32."""
    result = a ^ a
    for i in range(32):
        result ^= tl.where(((a >> (31 - i)) & 1) > 0, b, 0)
        b = ((b >> 1) & 0x7FFFFFFF) ^ tl.where((b & 1) > 0, POLYNOMIAL, 0)
    return result
