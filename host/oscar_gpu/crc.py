"""CRC-32 of bytes on a GPU, as `oscar.state.crc` has it of an array on the host."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar_gpu import quantiser_kernels as kernels
from oscar_gpu.quantiser_kernels import OPTIONS, STRIP, STRIPS

POLYNOMIAL = np.uint32(0xEDB88320)
ONE, ALL = 1 << 31, 0xFFFFFFFF  # the polynomial 1, its bits reflected
TILE = STRIP * STRIPS


def product(a: Array, b: Array) -> Array:
    """Return the products of remainders, uint32, that broadcast."""
    a, b = np.broadcast_arrays(a, b)
    result, b = np.zeros(a.shape, np.uint32), b.copy()
    for i in range(32):
        result ^= np.where(a >> np.uint32(31 - i) & np.uint32(1), b, np.uint32(0))
        b = b >> np.uint32(1) ^ np.where(b & np.uint32(1), POLYNOMIAL, np.uint32(0))
    return result


def product_of_two(a: int, b: int) -> int:
    """Return the product of two remainders, as integers."""
    result = 0
    while a:
        if a & ONE:
            result ^= b
        a = a << 1 & ALL
        b = b >> 1 ^ (int(POLYNOMIAL) if b & 1 else 0)
    return result


@lru_cache(maxsize=64)
def shift(size: int) -> int:
    """Return the remainder of the polynomial x^(8 * size): by how much `size` bytes shift what is before."""
    result, square, bits = ONE, ONE >> 1, 8 * size
    while bits:
        if bits & 1:
            result = product_of_two(result, square)
        square, bits = product_of_two(square, square), bits >> 1
    return result


def shifts(size: int, count: int) -> Array:
    """Return by how much 0, 1, .. `count` - 1 times `size` bytes shift: uint32 [count]."""
    result = np.array([ONE], np.uint32)
    while result.size < count:
        result = np.concatenate([result, product(result, np.array(shift(size * result.size), np.uint32))])
    return result[:count]


@lru_cache(maxsize=64)
def _tables(count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the arguments of the kernel for `count` bytes."""
    bytes_ = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        bytes_ = bytes_ >> np.uint32(1) ^ np.where(bytes_ & np.uint32(1), POLYNOMIAL, np.uint32(0))
    arrays = bytes_, shifts(STRIP, STRIPS)[::-1], shifts(TILE, -(-count // TILE))[::-1]
    one, two, three = (torch.from_numpy(array.copy().view(np.int32)).to(device) for array in arrays)
    return one, two, three


def start(data: torch.Tensor) -> torch.Tensor:
    """Start to compute the remainder of `data`, uint8, flat, on the device, for `finish`."""
    out, tables = torch.zeros(1, dtype=torch.int32, device=data.device), _tables(data.numel(), data.device)
    if data.numel():
        kernels.checksum[len(tables[2]),](data, data.numel(), *tables, out, **OPTIONS)
    return out


def finish(started: torch.Tensor, size: int) -> int:
    """Return state.crc of `size` bytes on the device, an array uint8 [size] on the host; waits for them."""
    head = crc32(f"|u1{(size,)}".encode()) ^ ALL
    return product_of_two(head, shift(size)) ^ (int(started.item()) & ALL) ^ ALL
