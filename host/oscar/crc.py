"""CRC-32 (IEEE 802.3) as in zlib, by carry-less multiplication if the processor has it.

zlib computes a few GB/s, which would slow down frames of a fast coder. Folding (Gopal et al., "Fast CRC
computation for generic polynomials using PCLMULQDQ", 2009) reduces any length to a few bytes that have the
same CRC. zlib finishes them, and does everything on other processors.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

POLYNOMIAL = 0x04C11DB7
LEAST = 1 << 13  # bytes from which a call of compiled code is faster than zlib

_FEATURES = (get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES).split(",")
FOLDS = "+pclmul" in _FEATURES  # for code that numba compiles; NUMBA_CPU_FEATURES may forbid it
_WIDE = FOLDS and {"+vpclmulqdq", "+avx512f"} <= {*_FEATURES}
_PAIRS = 4 if _WIDE else 1  # 128-bit lanes of a register
_REGISTERS = 4  # registers that fold in turn, so that multiplications overlap
STRIDE = 16 * _PAIRS * _REGISTERS  # bytes that one turn folds

_INT = ir.IntType(64)
_VECTOR = ir.VectorType(_INT, 2 * _PAIRS)


def _factor(exponent: int) -> int:
    """Return x^exponent modulo the polynomial, bit-reversed, in the form that PCLMULQDQ multiplies by."""
    rest = 1
    for _ in range(exponent):
        rest = rest << 1 ^ (rest >> 31) * (POLYNOMIAL | 1 << 32)
    return int(f"{rest:032b}"[::-1], 2) << 1


FACTORS = [_factor(8 * STRIDE + 32), _factor(8 * STRIDE - 32)]  # they move 16 bytes on by a stride


def _move(builder: Any, value: Any) -> Any:
    """Return a register whose CRC is that of `value` moved on by a stride."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, ir.IntType(8)])
    name = "llvm.x86.pclmulqdq" + (".512" if _WIDE else "")
    multiply = cgutils.get_or_insert_function(builder.module, kind, name)
    factors = ir.Constant(_VECTOR, FACTORS * _PAIRS)
    low, high = (builder.call(multiply, [value, factors, ir.IntType(8)(half)]) for half in (0x00, 0x11))
    return builder.xor(low, high)


@intrinsic
def _fold(typing: Any, data: Any, turns: Any, start: Any, out: Any) -> Any:
    """Fold `turns` strides of `data` into one at `out` with the same CRC; start: the CRC so far."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, target = (
            builder.bitcast(context.make_array(kind)(context, builder, array).data, _VECTOR.as_pointer())
            for kind, array in ((sig.args[0], args[0]), (sig.args[3], args[3]))
        )

        def load(at: Any) -> Any:
            found = builder.load(builder.gep(source, [at]))
            found.align = 1
            return found

        held = [cgutils.alloca_once_value(builder, load(_INT(number))) for number in range(_REGISTERS)]
        begun = builder.insert_element(ir.Constant(_VECTOR, [0] * 2 * _PAIRS), args[2], ir.IntType(32)(0))
        builder.store(builder.xor(builder.load(held[0]), begun), held[0])
        with cgutils.for_range(builder, builder.sub(args[1], _INT(1))) as loop:
            at = builder.mul(builder.add(loop.index, _INT(1)), _INT(_REGISTERS))
            for number, value in enumerate(held):
                came = load(builder.add(at, _INT(number)))
                builder.store(builder.xor(_move(builder, builder.load(value)), came), value)
        for number, value in enumerate(held):
            builder.store(builder.load(value), builder.gep(target, [_INT(number)])).align = 1
        return context.get_dummy_value()

    return types.none(data, types.intp, types.uint64, out), codegen


@njit(cache=True, nogil=True)
def _folded(data: Any, turns: int, start: int, out: Any) -> None:
    _fold(data, turns, np.uint64(start), out)


def crc32(data: Any, start: int = 0) -> int:
    """Return zlib.crc32(data, start); data: contiguous bytes of any kind."""
    view = memoryview(data)
    if not FOLDS or view.nbytes < LEAST:
        return zlib.crc32(view, start)
    view = view.cast("B").toreadonly()  # one kind of array, compiled once
    turns = len(view) // STRIDE
    rest = np.empty(STRIDE, np.uint8)
    _folded(np.frombuffer(view, np.uint8), turns, start ^ 0xFFFFFFFF, rest)
    return zlib.crc32(view[turns * STRIDE :], zlib.crc32(rest.data, 0xFFFFFFFF))
