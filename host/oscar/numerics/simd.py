"""Sixteen int32 in vector registers: a numba type and its operators.

LLVM splits a vector into what the machine has (AVX2: 8 + 8, NEON: 4 x 4). Operands are two `Lanes`, or one
and a scalar, which then stands for all sixteen. Arithmetic wraps; `>>` is arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

INT = ir.IntType(32)
WIDTH = 16
VECTOR = ir.VectorType(INT, WIDTH)


class LanesType(types.Type):
    """The numba type of sixteen int32."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def _spread(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return `value` as a vector: itself, or a scalar in all lanes."""
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
