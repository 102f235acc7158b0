"""The loops of the count sketch: whole runs in vectors, single indices in small blocks.

A vector register holds sixteen int32; the few operations on it that a sketch needs come first. The type and
its arithmetic are those of oscar.numerics.simd. Offsets are the caller's to keep in bounds.

`cells` is one flat int32 array of all rows. The class has checked that indices and sizes fit; additions wrap
modulo 2^32, which is harmless, since the class bounds magnitudes. Runs go through all rows in blocks: a block
of values stays in the second-level cache, and each row sees many runs at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from oscar.kernels import njit, part
from oscar.numerics.simd import VECTOR, WIDTH, lanes
from oscar.numerics.sketch.hashing import PRIME, differences, polynomial


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


u64 = np.uint64
ENCODED = 2048  # runs added to a row before the next row is turned to
ESTIMATED = 128  # runs estimated in all rows before they are combined
ROW = ESTIMATED * 16
SINGLE = 512  # indices hashed before their cells are touched
MOST_ROWS = 5


@njit(cache=True, nogil=True)
def _start(signs: Any, places: Any, first_run: int) -> Any:
    """Return the hashes' differences at `first_run`: signs, uint32 [rows, 64], places, uint64 [rows, 4]."""
    state, place = np.empty((len(signs), 64), np.uint32), np.empty((len(signs), 4), np.uint64)
    column = np.empty(4, np.uint32)
    for row in range(len(signs)):
        for lane in range(16):
            differences(signs[row], first_run * 16 + lane, 16, column)
            for k in range(4):
                state[row, k * 16 + lane] = column[k]
        differences(places[row], first_run, 1, column)
        place[row] = column
    return state, place


@njit(cache=True, nogil=True)
def _next(x: Any, step: Any) -> Any:
    total = x + step
    return min(total, total - u64(PRIME))  # unsigned: a difference below 0 wraps to a large number


@part
def _walk(cells: Any, row: int, columns: int, state: Any, place: Any, v: Any, first: int, runs: int) -> None:
    """Add the runs of `v` from run `first` on to a row."""
    s0, s1, s2, s3 = load(state, u64(0)), load(state, u64(16)), load(state, u64(32)), load(state, u64(48))
    p0, p1, p2, p3 = place[0], place[1], place[2], place[3]
    base, starts, offset = u64(row * columns), u64(columns - 15), u64(first * 16)
    for run in range(u64(runs)):
        at = base + (p0 * starts >> u64(31))
        store(cells, at, load(cells, at) + signed(load(v, offset + run * u64(16)), s0))
        s0, s1, s2 = add_modulo(s0, s1), add_modulo(s1, s2), add_modulo(s2, s3)
        p0, p1, p2 = _next(p0, p1), _next(p1, p2), _next(p2, p3)
    store(state, u64(0), s0)
    store(state, u64(16), s1)
    store(state, u64(32), s2)
    place[0], place[1], place[2] = p0, p1, p2


@njit(cache=True, nogil=True)
def _look(cells: Any, row: int, columns: int, state: Any, place: Any, out: Any, runs: int) -> None:
    """Set out[row] to a row's estimates of as many runs."""
    s0, s1, s2, s3 = load(state, u64(0)), load(state, u64(16)), load(state, u64(32)), load(state, u64(48))
    p0, p1, p2, p3 = place[0], place[1], place[2], place[3]
    base, starts, offset = u64(row * columns), u64(columns - 15), u64(row * ROW)
    for run in range(u64(runs)):
        at = base + (p0 * starts >> u64(31))
        store(out, offset + run * u64(16), signed(load(cells, at), s0))
        s0, s1, s2 = add_modulo(s0, s1), add_modulo(s1, s2), add_modulo(s2, s3)
        p0, p1, p2 = _next(p0, p1), _next(p1, p2), _next(p2, p3)
    store(state, u64(0), s0)
    store(state, u64(16), s1)
    store(state, u64(32), s2)
    place[0], place[1], place[2] = p0, p1, p2


@part
def magnitude_bits(values: Any) -> int:
    """Return the bit-wise or of all magnitudes, those of negative values less one."""
    bits, shift = np.int32(0), np.int32(31)
    for j in range(len(values)):
        bits |= values[j] ^ (values[j] >> shift)
    return bits


@njit(cache=True, nogil=True)
def encode_runs(values: Any, first_run: int, signs: Any, places: Any, columns: int, cells: Any) -> int:
    """Add whole runs of values, int32 [16 runs], to the cells; return their `magnitude_bits`."""
    runs, bits = len(values) // 16, np.int32(0)
    state, place = _start(signs, places, first_run)
    for first in range(0, runs, ENCODED):
        count = min(ENCODED, runs - first)
        bits |= magnitude_bits(values[first * 16 : (first + count) * 16])
        for row in range(len(signs)):
            _walk(cells, row, columns, state[row], place[row], values, first, count)
    return bits


@part
def _median3(a: Any, b: Any, c: Any) -> Any:
    return larger(smaller(a, b), smaller(larger(a, b), c))


@njit(cache=True, nogil=True)
def _middle(a: Any, b: Any) -> Any:
    """(a + b) / 2, rounded down, without a carry: common bits, and half of those that differ."""
    common = a & b
    return common + ((a | b) - common >> 1)


@part
def _medians(rows: int, e: Any, runs: int, out: Any, first: int) -> None:
    """Set out from run `first` on to the medians of e[row], by compare networks."""
    one, two, three, four = u64(ROW), u64(2 * ROW), u64(3 * ROW), u64(4 * ROW)
    for run in range(u64(runs)):
        j = run * u64(16)
        x = load(e, j)
        if rows == 2:
            x = _middle(x, load(e, j + one))
        elif rows == 3:
            x = _median3(x, load(e, j + one), load(e, j + two))
        elif rows >= 4:
            a, b, c = load(e, j + one), load(e, j + two), load(e, j + three)
            low = larger(smaller(x, a), smaller(b, c))
            high = smaller(larger(x, a), larger(b, c))
            x = _middle(low, high) if rows == 4 else _median3(low, high, load(e, j + four))
        store(out, u64(first * 16) + j, x)


@njit(cache=True, nogil=True)
def _sums(rows: int, e: Any, runs: int, out: Any, first: int) -> None:
    for run in range(u64(runs)):
        j = run * u64(16)
        x = load(e, j)
        for row in range(1, rows):
            x = x + load(e, j + u64(row * ROW))
        store(out, u64(first * 16) + j, x)


@njit(cache=True, nogil=True)
def _combine(rows: int, summed: bool, e: Any, runs: int, out: Any, first: int) -> None:
    if summed:
        _sums(rows, e, runs, out, first)
    else:
        _medians(rows, e, runs, out, first)


@njit(cache=True, nogil=True)
def estimate_runs(
    cells: Any, first_run: int, signs: Any, places: Any, columns: int, summed: bool, out: Any
) -> None:
    """Set `out`, int32 [16 runs], to the medians of the rows' estimates, or to their sums."""
    rows, runs = len(signs), len(out) // 16
    state, place = _start(signs, places, first_run)
    e = np.empty(rows * ROW, np.int32)
    for first in range(0, runs, ESTIMATED):
        count = min(ESTIMATED, runs - first)
        for row in range(rows):
            _look(cells, row, columns, state[row], place[row], e, count)
        _combine(rows, summed, e, count, out, first)


@part
def _hash(indices: Any, signs: Any, places: Any, columns: int, row: int, at: Any, sign: Any) -> None:
    """Set where the indices lie in the flat cells, and their signs, 1 or -1."""
    base, starts = u64(row * columns), u64(columns - 15)
    for j in range(len(indices)):
        i = u64(indices[j])
        at[j] = base + (polynomial(places[row], i >> u64(4)) * starts >> u64(31)) + (i & u64(15))
        sign[j] = 1 - 2 * np.int32(polynomial(signs[row], i) & u64(1))


@njit(cache=True, nogil=True)
def encode_at(values: Any, indices: Any, signs: Any, places: Any, columns: int, cells: Any) -> int:
    """Add values at `indices`, int64 in any order, to the cells; return their `magnitude_bits`."""
    at, sign = np.empty(SINGLE, np.uint64), np.empty(SINGLE, np.int32)
    for first in range(0, len(indices), SINGLE):
        here, v = indices[first : first + SINGLE], values[first : first + SINGLE]
        for row in range(len(signs)):
            _hash(here, signs, places, columns, row, at, sign)
            for j in range(len(here)):
                cells[at[j]] += sign[j] * v[j]
    return magnitude_bits(values)


@njit(cache=True, nogil=True)
def estimate_at(
    cells: Any, indices: Any, signs: Any, places: Any, columns: int, summed: bool, out: Any
) -> None:
    """Set `out` to the medians, or sums, of the rows' estimates at `indices`, int64 in any order."""
    at, sign, rows = np.empty(SINGLE, np.uint64), np.empty(SINGLE, np.int32), len(signs)
    e, medians = np.zeros(rows * ROW, np.int32), np.empty(SINGLE, np.int32)
    for first in range(0, len(indices), SINGLE):
        here = indices[first : first + SINGLE]
        for row in range(rows):
            _hash(here, signs, places, columns, row, at, sign)
            for j in range(len(here)):
                e[row * ROW + j] = sign[j] * cells[at[j]]
        _combine(rows, summed, e, SINGLE // 16, medians, 0)
        out[first : first + SINGLE] = medians[: len(here)]
