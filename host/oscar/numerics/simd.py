"""Twelve int32 in vector registers, one for each lane of the coder: a numba type and its operators.

LLVM splits a vector of twelve into what the machine has (AVX2: 8 + 4, NEON: 4 + 4 + 4). Operands are two
`Lanes`, or one and a scalar, which then stands for all twelve. Arithmetic wraps; `>>` is arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

INT = ir.IntType(32)
WIDTH = 16  # a legal vector on every machine; four lanes idle
VECTOR = ir.VectorType(INT, WIDTH)
FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
WIDEN = ir.Constant(VECTOR, [*range(12), 12, 12, 12, 12])
NARROW = ir.Constant(ir.VectorType(INT, 12), [*range(12)])


class LanesType(types.Type):
    """The numba type of twelve int32."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def _spread(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return `value` as a vector: itself, or a scalar twelve times."""
    if isinstance(kind, LanesType):
        return value
    scalar = context.cast(builder, value, kind, types.int32)
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), scalar, ir.Constant(INT, 0))
    return builder.shuffle_vector(one, ir.Constant(VECTOR, ir.Undefined), ir.Constant(VECTOR, [0] * WIDTH))


def _operator(symbol: Any, emit: Callable[[Any, Any, Any], Any]) -> None:
    class Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if lanes in args and all(a == lanes or isinstance(a, types.Integer) for a in args):
                return signature(lanes, *args)
            return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (_spread(context, builder, k, v) for k, v in zip(sig.args, args, strict=True))
        return emit(builder, a, b)

    infer_global(symbol)(Template)
    for pair in ((lanes, lanes), (lanes, types.Integer), (types.Integer, lanes)):
        lower_builtin(symbol, *pair)(lower)


_operator(operator.add, lambda b, x, y: b.add(x, y))
_operator(operator.sub, lambda b, x, y: b.sub(x, y))
_operator(operator.mul, lambda b, x, y: b.mul(x, y))
_operator(operator.and_, lambda b, x, y: b.and_(x, y))
_operator(operator.or_, lambda b, x, y: b.or_(x, y))
_operator(operator.lshift, lambda b, x, y: b.shl(x, y))
_operator(operator.rshift, lambda b, x, y: b.ashr(x, y))
_operator(operator.ge, lambda b, x, y: b.sext(b.icmp_signed(">=", x, y), VECTOR))  # -1 or 0


def _pointer(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [offset])


def _vector_of(kind: Any) -> Any:
    return ir.VectorType(ir.IntType(kind.dtype.bitwidth), 12)


@intrinsic
def load(typing: Any, array: Any, offset: Any) -> Any:
    """Twelve consecutive integers of an array from index `offset`; unsigned ones are zero-extended."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.args[0]
        place = builder.bitcast(_pointer(context, builder, kind, *args), _vector_of(kind).as_pointer())
        value = builder.load(place)
        value.align = kind.dtype.bitwidth // 8
        wide = builder.shuffle_vector(value, ir.Constant(value.type, [0] * 12), WIDEN)
        return wide if kind.dtype.bitwidth == 32 else builder.zext(wide, VECTOR)

    return lanes(array, types.uint64), codegen


@intrinsic
def store(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Store twelve lanes at index `offset` of an array, cut to its integers."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, wide = sig.args[0], _vector_of(sig.args[0])
        place = builder.bitcast(_pointer(context, builder, kind, *args[:2]), wide.as_pointer())
        value = builder.shuffle_vector(args[2], args[2], NARROW)
        value = value if kind.dtype.bitwidth == 32 else builder.trunc(value, wide)
        builder.store(value, place).align = kind.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.none(array, types.uint64, lanes), codegen


@intrinsic
def where(typing: Any, mask: Any, yes: Any, no: Any) -> Any:
    """`yes` where the mask is not 0, else `no`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(VECTOR, [0] * WIDTH)
        return builder.select(builder.icmp_signed("!=", args[0], zero), args[1], args[2])

    return lanes(lanes, lanes, lanes), codegen


@intrinsic
def quotient(typing: Any, x: Any, f: Any) -> Any:
    """x // f for 0 <= x < 4096 f, 1 <= f <= 4096, by division in single precision, which is exact here.

    x and f are below 2^24 + 1, so floats hold them. A quotient q + r/f stays at least 1/f >= 2^-12 below
    q + 1 <= 4096, whose lower neighbour is at most 2^-12 away: rounding to nearest cannot reach q + 1.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (builder.sitofp(v, FLOATS) for v in args)
        return builder.fptosi(builder.fdiv(a, b), VECTOR)

    return lanes(lanes, lanes), codegen


@intrinsic
def bit_lengths(typing: Any, x: Any) -> Any:
    """Bit length of each lane, 0 <= x < 2^24: the exponent of the float it converts to exactly."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(builder.sitofp(args[0], FLOATS), VECTOR)
        exponent = builder.ashr(bits, ir.Constant(VECTOR, [23] * WIDTH))
        length = builder.sub(exponent, ir.Constant(VECTOR, [126] * WIDTH))
        zero = ir.Constant(VECTOR, [0] * WIDTH)
        return builder.select(builder.icmp_signed(">", length, zero), length, zero)

    return lanes(lanes), codegen
