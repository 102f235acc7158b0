"""Sixteen int32 in a vector register, and the few operations on them that a sketch needs.

The type and its arithmetic are those of oscar.numerics.simd. Offsets are the caller's to keep in bounds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from oscar.numerics.simd import VECTOR, WIDTH, lanes
from oscar.numerics.sketch.hashing import PRIME


def _place(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), VECTOR.as_pointer())


@intrinsic
def load(typing: Any, array: Any, offset: Any) -> Any:
    """Sixteen consecutive values of an array of 32-bit integers, from index `offset`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(_place(context, builder, sig.args[0], *args))
        value.align = 4
        return value

    return lanes(array, types.uint64), codegen


@intrinsic
def store(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Store sixteen values from index `offset` of an array of 32-bit integers."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _place(context, builder, sig.args[0], *args[:2])).align = 4
        return context.get_dummy_value()

    return types.none(array, types.uint64, lanes), codegen


@intrinsic
def add_modulo(typing: Any, x: Any, y: Any) -> Any:
    """x + y modulo 2^31 - 1, of values below that prime.

    Of the sum, and the sum less the prime, the smaller unsigned number.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        total = builder.add(*args)
        less = builder.sub(total, ir.Constant(VECTOR, [PRIME] * WIDTH))
        return builder.select(builder.icmp_unsigned("<", less, total), less, total)

    return lanes(lanes, lanes), codegen


@intrinsic
def signed(typing: Any, x: Any, sign: Any) -> Any:
    """x, negated where the low bit of `sign` is 1."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flip = builder.trunc(args[1], ir.VectorType(ir.IntType(1), WIDTH))
        negated = builder.sub(ir.Constant(VECTOR, [0] * WIDTH), args[0])
        return builder.select(flip, negated, args[0])

    return lanes(lanes, lanes), codegen


@intrinsic
def smaller(typing: Any, x: Any, y: Any) -> Any:
    """The minimum of both, element by element."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.icmp_signed("<", *args), *args)

    return lanes(lanes, lanes), codegen


@intrinsic
def larger(typing: Any, x: Any, y: Any) -> Any:
    """The maximum of both, element by element."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.icmp_signed(">", *args), *args)

    return lanes(lanes, lanes), codegen
