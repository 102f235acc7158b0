"""Table look-ups inside AVX-512 registers: one permutation instead of a gather from memory.

A permutation reads 32 entries of 16 bits at once; a gather takes a load for each lane. The values of a row
have at most eight contexts, those of the row's class by position class relative to the row's mean. So the
tables of one class, 8 contexts wide, fit one to four registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from oscar.coding.asc.compiled.vectors import I32, V16, V32, N, call, constant, place
from oscar.coding.asc.params import PROB_BITS

HALF = ir.VectorType(I32, N // 2)
EVEN = [2 * i for i in range(N)]
WORDS = ir.VectorType(ir.IntType(16), N)


def _two(builder: Any, low: Any, index: Any, high: Any) -> Any:
    return call(builder, "llvm.x86.avx512.vpermi2var.hi.512", WORDS, [low, index, high])


def _halves(builder: Any, x: Any) -> list[Any]:
    """Return lanes 0 to 15 and lanes 16 to 31 of 32 lanes of 32 bits."""
    orders = (ir.Constant(HALF, list(range(first, first + 16))) for first in (0, 16))
    return [builder.shuffle_vector(x, x, order) for order in orders]


def _load(builder: Any, address: Any, row: int) -> Any:
    at = builder.add(address, ir.Constant(ir.IntType(64), 64 * row))
    value = builder.load(place(builder, at, WORDS))
    value.align = 1
    return value


@intrinsic
def permute(typing: Any, table: Any, index: Any) -> Any:
    """Look up each lane's entry in 32 16-bit integers at `table`; only the low 5 bits of `index` count."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return call(builder, "llvm.x86.avx512.permvar.hi.512", WORDS, [_load(builder, args[0], 0), args[1]])

    return V16(types.uint64, index), codegen


@intrinsic
def permute_two(typing: Any, table: Any, index: Any) -> Any:
    """Look up each lane's entry in 64 16-bit integers at `table`; only the low 6 bits of `index` count."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _two(builder, _load(builder, args[0], 0), args[1], _load(builder, args[0], 1))

    return V16(types.uint64, index), codegen


@intrinsic
def narrow(typing: Any, x: Any) -> Any:
    """Return the low 16 bits of 32-bit lanes: one permutation of the two halves."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        low, high = (builder.bitcast(half, WORDS) for half in _halves(builder, args[0]))
        return _two(builder, low, constant(WORDS, EVEN), high)

    return V16(x), codegen


@intrinsic
def weigh(typing: Any, x: Any, f: Any, place: Any) -> Any:
    """Return (x >> 10) * f + place for x < 2^24, f <= 1024, all products in one multiply-add.

    The instruction multiplies pairs of 16-bit integers and adds the two products: (x >> 10) * f + 1 * place.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        shifted = builder.lshr(args[0], constant(V32.llvm, PROB_BITS))
        with_one = builder.or_(shifted, constant(V32.llvm, 1 << 16))
        parts = []
        for half, first in zip(_halves(builder, with_one), (0, 16), strict=True):
            order = constant(WORDS, [lane + N * odd for lane in range(first, first + 16) for odd in (0, 1)])
            pairs = _two(builder, args[1], order, args[2])
            both = [builder.bitcast(half, WORDS), pairs]
            parts.append(call(builder, "llvm.x86.avx512.pmaddw.d.512", HALF, both))
        return builder.shuffle_vector(*parts, constant(V32.llvm, list(range(N))))

    return V32(x, f, place), codegen
