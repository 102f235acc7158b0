"""Numba types and operators for vectors of 32 lanes of 8, 16 or 32 bits, and for masks of 32 lanes.

LLVM splits a vector into the registers of the machine: two for 32-bit lanes with AVX-512, four with AVX2.
Operands are two vectors of one width, or a vector and a scalar, which then stands for all lanes. Arithmetic
wraps; `>>` is arithmetic; comparisons are signed and give masks. Memory is addressed by uint64 integers,
because every call with an array argument costs a reference count.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.ir import instructions
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

N = 32
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
FLOATS = ir.VectorType(ir.FloatType(), N)


class Vector(types.Type):
    """The numba type of 32 integers of `bits` bits each; a mask if `bits` is 1."""

    def __init__(self, bits: int) -> None:
        self.bits, self.llvm = bits, ir.VectorType(ir.IntType(bits), N)
        super().__init__(name=f"Vector{bits}")


V32, V16, V8, MASK = Vector(32), Vector(16), Vector(8), Vector(1)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.llvm)


def call(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    """Call the LLVM intrinsic `name`."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def constant(kind: Any, lanes: list[int] | int) -> Any:
    """Return an LLVM vector constant; an int stands for all lanes."""
    return ir.Constant(kind, [lanes] * N if isinstance(lanes, int) else lanes)


def place(builder: Any, address: Any, kind: Any) -> Any:
    """Return an integer address as a pointer to `kind`."""
    return builder.inttoptr(address, kind.as_pointer())


def _spread(context: Any, builder: Any, kind: Any, value: Any, like: Vector) -> Any:
    """Return `value` as a vector of type `like`; a scalar fills all lanes."""
    if isinstance(kind, Vector):
        return value
    scalar = context.cast(builder, value, kind, getattr(types, f"int{like.bits}"))
    empty = ir.Constant(like.llvm, ir.Undefined)
    one = builder.insert_element(empty, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, empty, constant(ir.VectorType(I32, N), 0))


def _operator(symbol: Any, emit: Callable[[Any, Any, Any], Any], result: Vector | None = None) -> None:
    """Define a Python operator for vectors: its result type, and `emit` to build its code."""

    class Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            vectors = {a for a in args if isinstance(a, Vector)}
            if len(vectors) == 1 and all(isinstance(a, Vector | types.Integer) for a in args):
                return signature(result or vectors.pop(), *args)
            return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        like = next(a for a in sig.args if isinstance(a, Vector))
        x, y = (_spread(context, builder, k, v, like) for k, v in zip(sig.args, args, strict=True))
        return emit(builder, x, y)

    infer_global(symbol)(Template)
    for vector in (V32, V16, V8, MASK):
        for pair in ((vector, vector), (vector, types.Integer), (types.Integer, vector)):
            lower_builtin(symbol, *pair)(lower)


_operator(operator.add, lambda b, x, y: b.add(x, y))
_operator(operator.sub, lambda b, x, y: b.sub(x, y))
_operator(operator.mul, lambda b, x, y: b.mul(x, y))
_operator(operator.and_, lambda b, x, y: b.and_(x, y))
_operator(operator.or_, lambda b, x, y: b.or_(x, y))
_operator(operator.xor, lambda b, x, y: b.xor(x, y))
_operator(operator.lshift, lambda b, x, y: b.shl(x, y))
_operator(operator.rshift, lambda b, x, y: b.ashr(x, y))
_operator(operator.ge, lambda b, x, y: b.icmp_signed(">=", x, y), MASK)
_operator(operator.lt, lambda b, x, y: b.icmp_signed("<", x, y), MASK)
_operator(operator.eq, lambda b, x, y: b.icmp_signed("==", x, y), MASK)


def _pairwise(emit: Callable[[Any, Any, Any], Any]) -> Any:
    """Return a numba function of two vectors, or a vector and a scalar."""

    @intrinsic
    def function(typing: Any, x: Any, y: Any) -> Any:
        like = x if isinstance(x, Vector) else y

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = (_spread(context, builder, k, v, like) for k, v in zip(sig.args, args, strict=True))
            return emit(builder, a, b)

        return like(x, y), codegen

    return function


lesser = _pairwise(lambda b, x, y: b.select(b.icmp_signed("<", x, y), x, y))
greater = _pairwise(lambda b, x, y: b.select(b.icmp_signed(">", x, y), x, y))


@intrinsic
def reaches(typing: Any, x: Any, least: Any) -> Any:
    """Return the mask of lanes that are not below `least`, compared as unsigned."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bound = _spread(context, builder, sig.args[1], args[1], x)
        return builder.icmp_unsigned(">=", args[0], bound)

    return MASK(x, least), codegen


def _unary(result: Vector, emit: Callable[[Any, Any], Any]) -> Any:
    """Return a numba function of one vector."""

    @intrinsic
    def function(typing: Any, x: Any) -> Any:
        return result(x), lambda context, builder, sig, args: emit(builder, args[0])

    return function


# widen: sign-extends; widen_unsigned, extend: zero-extend; to16, to8: cut; upper_byte: bits 24 to 31.
widen = _unary(V32, lambda b, x: b.sext(x, V32.llvm))
widen_unsigned = _unary(V32, lambda b, x: b.zext(x, V32.llvm))
extend = _unary(V16, lambda b, x: b.zext(x, V16.llvm))
to16 = _unary(V16, lambda b, x: b.trunc(x, V16.llvm))
to8 = _unary(V8, lambda b, x: b.trunc(x, V8.llvm))
upper_byte = _unary(V32, lambda b, x: b.lshr(x, constant(V32.llvm, 24)))


@intrinsic
def where(typing: Any, mask: Any, yes: Any, no: Any) -> Any:
    """Return `yes` in the lanes of the mask, `no` in the others."""
    like = yes if isinstance(yes, Vector) else no

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y = (_spread(context, builder, k, v, like) for k, v in zip(sig.args[1:], args[1:], strict=True))
        return builder.select(args[0], x, y)

    return like(mask, yes, no), codegen


@intrinsic
def octets(typing: Any, one: Any, two: Any) -> Any:
    """Return 8 for each of the two masks that has the lane: 0, 8 or 16 bits of a state."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        eight, none = constant(V32.llvm, 8), constant(V32.llvm, 0)
        parts = [builder.select(mask, eight, none) for mask in args]
        return builder.add(*parts)

    return V32(one, two), codegen


@intrinsic
def spread(typing: Any, x: Any) -> Any:
    """Return a scalar in all lanes, 32 bits."""
    return V32(x), lambda context, builder, sig, args: _spread(context, builder, sig.args[0], args[0], V32)


@intrinsic
def lane_numbers(typing: Any) -> Any:
    """Return 0 to 31, one in each lane."""
    return V32(), lambda context, builder, sig, args: constant(V32.llvm, list(range(N)))


@intrinsic
def bits_of(typing: Any, mask: Any) -> Any:
    """Return a mask as a uint64, lane 0 at bit 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], I32), I64)

    return types.uint64(mask), codegen


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """Return the sum of 8-bit lanes, taken as unsigned."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = builder.zext(args[0], V32.llvm)
        return builder.zext(call(builder, "llvm.vector.reduce.add.v32i32", I32, [wide]), I64)

    return types.int64(x), codegen


def _reduction(name: str) -> Any:
    """Return a numba function that reduces 32-bit lanes to one int64."""

    @intrinsic
    def function(typing: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.sext(call(builder, f"llvm.vector.reduce.{name}.v32i32", I32, [args[0]]), I64)

        return types.int64(x), codegen

    return function


lowest, highest = _reduction("smin"), _reduction("smax")


@intrinsic
def quotient(typing: Any, x: Any, f: Any) -> Any:
    """Return x // f for 0 <= x < 2^14·f and 1 <= f <= 1024; exact (docs/reference/asc.md, "Division").

    A float division has an instruction for vectors; an integer division has none.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (builder.sitofp(v, FLOATS) for v in args)
        return builder.fptosi(builder.fdiv(a, b), V32.llvm)

    return V32(x, f), codegen


@intrinsic
def float_bits(typing: Any, x: Any) -> Any:
    """Return the bits of each lane converted to a float32; exact for magnitudes below 2^24."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.sitofp(args[0], FLOATS), V32.llvm)

    return V32(x), codegen


@intrinsic
def gather(typing: Any, address: Any, index: Any) -> Any:
    """Load the uint32 with each lane's index from the table at `address`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        step = instructions.GEPInstr(
            builder.block, place(builder, args[0], I32), [args[1]], False, "", source_etype=I32
        )
        step.type = ir.VectorType(ir.PointerType(), N)
        builder._insert(step)
        every, none = constant(MASK.llvm, 1), constant(V32.llvm, 0)
        return call(builder, "llvm.masked.gather.v32i32.v32p0", V32.llvm, [step, every, none])

    return V32(types.uint64, index), codegen


def _loader(vector: Vector) -> Any:
    @intrinsic
    def function(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(place(builder, args[0], vector.llvm))
            value.align = 1
            return value

        return vector(types.uint64), codegen

    return function


def _storer(vector: Vector) -> Any:
    @intrinsic
    def function(typing: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            builder.store(args[1], place(builder, args[0], vector.llvm)).align = 1
            return context.get_dummy_value()

        return types.none(types.uint64, vector), codegen

    return function


load8, load16, load32 = _loader(V8), _loader(V16), _loader(V32)
store8, store16, store32 = _storer(V8), _storer(V16), _storer(V32)


def _scalar(bits: int, *, signed: bool) -> tuple[Any, Any]:
    """Return numba functions to load and store an integer of `bits` bits as int64."""
    kind = ir.IntType(bits)

    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(place(builder, args[0], kind))
            value.align = 1
            return value if bits == 64 else builder.sext(value, I64) if signed else builder.zext(value, I64)

        return types.int64(types.uint64), codegen

    @intrinsic
    def store(typing: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            cut = args[1] if bits == 64 else builder.trunc(args[1], kind)
            builder.store(cut, place(builder, args[0], kind)).align = 1
            return context.get_dummy_value()

        return types.none(types.uint64, types.int64), codegen

    return load, store


get_byte, put_byte = _scalar(8, signed=False)
get16, put16 = _scalar(16, signed=True)
get32, put32 = _scalar(32, signed=True)
get64, put64 = _scalar(64, signed=True)


@intrinsic
def copy_entries(typing: Any, table: Any, indices: Any, target: Any) -> Any:
    """Copy 32 entries of 32 bits to `target`; their uint16 indices are at `indices`.

    32 scalar loads: on many machines faster than a gather if nothing waits for the result.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        table, indices, target = (place(builder, a, k) for a, k in zip(args, (I32, I16, I32), strict=True))
        for lane in range(N):
            number = ir.Constant(I64, lane)
            index = builder.zext(builder.load(builder.gep(indices, [number], inbounds=True)), I64)
            entry = builder.load(builder.gep(table, [index], inbounds=True))
            builder.store(entry, builder.gep(target, [number], inbounds=True))
        return context.get_dummy_value()

    return types.none(types.uint64, types.uint64, types.uint64), codegen


@intrinsic
def increment(typing: Any, table: Any, index: Any, amount: Any) -> Any:
    """Add `amount` to the int32 number `index` of the table at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cell = builder.gep(place(builder, args[0], I32), [args[1]], inbounds=True)
        builder.store(builder.add(builder.load(cell), builder.trunc(args[2], I32)), cell)
        return context.get_dummy_value()

    return types.none(types.uint64, types.int64, types.int64), codegen


@intrinsic
def bit_length(typing: Any, x: Any) -> Any:
    """Return the bit length of a non-negative int64; 0 for 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.sub(ir.Constant(I64, 64), builder.ctlz(args[0], ir.Constant(I1, 0)))

    return types.int64(types.int64), codegen


@intrinsic
def popcount(typing: Any, x: Any) -> Any:
    """Return how many bits of an int64 are set."""
    return types.int64(types.int64), lambda context, builder, sig, args: builder.ctpop(args[0])


@intrinsic
def clear(typing: Any, address: Any, count: Any) -> Any:
    """Set `count` bytes from `address` on to 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cgutils.memset(builder, place(builder, args[0], I8), args[1], 0)
        return context.get_dummy_value()

    return types.none(types.uint64, types.int64), codegen


@intrinsic
def move(typing: Any, source: Any, target: Any, count: Any) -> Any:
    """Copy `count` bytes between places that do not overlap."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, target = (place(builder, a, I8) for a in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.none(types.uint64, types.uint64, types.int64), codegen
