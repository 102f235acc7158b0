"""Move the bytes that 32 lanes emit or take back between vectors and memory.

Each lane gives none, one or two bytes; they are packed without gaps, in lane order, low byte first.
Everything works on a 64-bit mask with two bits a lane, low byte first, so 64 candidate bytes are compressed
(`_pack`) or expanded (`_spread`) at once. Three versions write the same bytes:

- avx512: one compress or expand instruction (AVX-512 VBMI2)
- avx2: eight bytes at a time, shuffled by a table row for each of the 256 masks
- portable: one lane after the other
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from oscar.coding.asc.compiled.vectors import I8, I16, I32, I64, MASK, V16, V32, N, call, constant, place

BYTES = ir.VectorType(I8, 2 * N)  # two bytes of each lane
BITS = ir.VectorType(ir.IntType(1), 2 * N)
HALF = ir.VectorType(I32, N // 2)
EIGHT, SIXTEEN = ir.VectorType(I8, 8), ir.VectorType(I8, 16)
WITH_VBMI2 = ("icelake", "tigerlake", "rocketlake", "sapphire", "emerald", "granite", "znver4", "znver5")
WITH_AVX2 = (
    "haswell", "broadwell", "skylake", "cascadelake", "cooperlake", "alderlake", "znver", "x86-64-v3",
)  # fmt: skip


def _features() -> dict[str, bool]:
    """Return the processor features numba may use: NUMBA_CPU_FEATURES if it is set, else the host's."""
    if config.CPU_FEATURES is not None:
        return {name[1:]: name[0] == "+" for name in config.CPU_FEATURES.split(",") if name}
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot list the features of this kind of machine
        return {}


def _machine() -> str:
    """Return the version for the processor numba compiles for: "avx512", "avx2" or "portable"."""
    name = config.CPU_NAME or "host"
    if name != "host":
        if name.startswith(WITH_VBMI2):
            return "avx512"
        return "avx2" if name.startswith((*WITH_AVX2, "x86-64-v4")) else "portable"
    features = _features()
    if not config.ENABLE_AVX or not all(features.get(f) for f in ("avx2", "bmi2", "popcnt")):
        return "portable"
    return "avx512" if all(features.get(f) for f in ("avx512vbmi2", "avx512bw", "avx512vl")) else "avx2"


MACHINE = _machine()


def _selected(builder: Any, one: Any, two: Any) -> Any:
    """Return the 64-bit mask of emitted bytes: bit 2·lane for the low byte, bit 2·lane + 1 for the high one.

    one, two: masks of 32 lanes. PDEP deposits each mask's bits at every second place.
    """
    if MACHINE == "portable":
        pairs = builder.or_(
            builder.zext(one, V16.llvm),
            builder.shl(builder.zext(two, V16.llvm), constant(V16.llvm, 8)),
        )
        flags = builder.icmp_unsigned("!=", builder.bitcast(pairs, BYTES), ir.Constant(BYTES, [0] * 64))
        return builder.bitcast(flags, I64)
    low, high = (builder.zext(builder.bitcast(m, I32), I64) for m in (one, two))
    low = call(builder, "llvm.x86.bmi.pdep.64", I64, [low, ir.Constant(I64, 0x5555555555555555)])
    high = call(builder, "llvm.x86.bmi.pdep.64", I64, [high, ir.Constant(I64, 0xAAAAAAAAAAAAAAAA)])
    return builder.or_(low, high)


def _table(builder: Any, kind: str) -> Any:
    """Return a table of shuffles, one row of eight bytes for each mask of eight bytes.

    kind: "pack" moves the selected bytes to the front; "spread" moves the front bytes to the selected places.
    128 makes PSHUFB write 0.
    """
    rows = []
    for mask in range(256):
        on = [i for i in range(8) if mask >> i & 1]
        packed = on + [128] * (8 - len(on))
        spread = [on.index(i) if i in on else 128 for i in range(8)]
        rows.append(ir.Constant(EIGHT, packed if kind == "pack" else spread))
    array = ir.ArrayType(EIGHT, 256)
    return cgutils.global_constant(builder.module, f"oscar_{kind}", ir.Constant(array, rows))


def _shuffled(builder: Any, eight: Any, table: Any, mask: Any) -> Any:
    """Return eight bytes, shuffled by the row of `table` that belongs to `mask`."""
    row = builder.load(builder.gep(table, [ir.Constant(I64, 0), mask]))
    row.align = 8
    twice = ir.Constant(ir.VectorType(I32, 16), list(range(8)) * 2)
    wide = [builder.shuffle_vector(v, v, twice) for v in (eight, row)]
    out = call(builder, "llvm.x86.ssse3.pshuf.b.128", SIXTEEN, wide)
    return builder.shuffle_vector(out, out, ir.Constant(ir.VectorType(I32, 8), list(range(8))))


def _eighth(builder: Any, mask: Any, k: int) -> Any:
    return builder.and_(builder.lshr(mask, ir.Constant(I64, 8 * k)), ir.Constant(I64, 255))


def _store(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, place(builder, address, value.type)).align = 1


def _load(builder: Any, address: Any, kind: Any) -> Any:
    value = builder.load(place(builder, address, kind))
    value.align = 1
    return value


def _pack(builder: Any, address: Any, pairs: Any, mask: Any) -> Any:
    """Store the bytes of <32 x i16> that `mask` selects; return the address after them.

    All 64 (avx512), 8 or 2 bytes are stored each time. The next store overwrites those that were not
    selected.
    """
    data = builder.bitcast(pairs, BYTES)
    if MACHINE == "avx512":
        nothing = ir.Constant(BYTES, [0] * 64)
        name = "llvm.x86.avx512.mask.compress.v64i8"
        _store(builder, address, call(builder, name, BYTES, [data, nothing, builder.bitcast(mask, BITS)]))
        return builder.add(address, builder.ctpop(mask))
    if MACHINE == "avx2":
        table = _table(builder, "pack")
        for k in range(8):
            part = ir.Constant(ir.VectorType(I32, 8), list(range(8 * k, 8 * k + 8)))
            bits = _eighth(builder, mask, k)
            eight = builder.shuffle_vector(data, data, part)
            _store(builder, address, _shuffled(builder, eight, table, bits))
            address = builder.add(address, builder.ctpop(bits))
        return address
    for lane in range(N):
        _store(builder, address, builder.extract_element(pairs, ir.Constant(I32, lane)))
        bits = builder.and_(builder.lshr(mask, ir.Constant(I64, 2 * lane)), ir.Constant(I64, 3))
        address = builder.add(address, builder.ctpop(bits))
    return address


def _spread(builder: Any, address: Any, mask: Any) -> Any:
    """Return <32 x i16>: the bytes from `address` on in the places that `mask` selects, 0 in the others."""
    if MACHINE == "avx512":
        data, nothing = _load(builder, address, BYTES), ir.Constant(BYTES, [0] * 64)
        # An empty asm statement keeps the loaded bytes in a register. LLVM would otherwise fold the load into
        # an expand instruction from memory, which is slow.
        data = builder.asm(ir.FunctionType(BYTES, [BYTES]), "", "=v,0", [data], False)
        name = "llvm.x86.avx512.mask.expand.v64i8"
        spread = call(builder, name, BYTES, [data, nothing, builder.bitcast(mask, BITS)])
        return builder.bitcast(spread, V16.llvm)
    if MACHINE == "avx2":
        table, parts = _table(builder, "spread"), []
        for k in range(8):
            bits = _eighth(builder, mask, k)
            parts.append(_shuffled(builder, _load(builder, address, EIGHT), table, bits))
            address = builder.add(address, builder.ctpop(bits))
        while len(parts) > 1:
            size = 2 * parts[0].type.count
            order = ir.Constant(ir.VectorType(I32, size), list(range(size)))
            parts = [
                builder.shuffle_vector(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
        return builder.bitcast(parts[0], V16.llvm)
    out = ir.Constant(V16.llvm, ir.Undefined)
    for lane in range(N):
        bits = builder.and_(builder.lshr(mask, ir.Constant(I64, 2 * lane)), ir.Constant(I64, 3))
        count = builder.ctpop(bits)
        size = builder.trunc(builder.shl(count, ir.Constant(I64, 3)), I32)
        keep = builder.sub(builder.shl(ir.Constant(I32, 1), size), ir.Constant(I32, 1))
        value = builder.and_(_load(builder, address, I16), builder.trunc(keep, I16))
        out = builder.insert_element(out, value, ir.Constant(I32, lane))
        address = builder.add(address, count)
    return out


def _extended(builder: Any, data: Any) -> Any:
    """Return 16-bit lanes, zero-extended to 32 bits.

    With AVX-512 two permutations are faster than two conversions of half vectors.
    """
    if MACHINE != "avx512":
        return builder.zext(data, V32.llvm)
    halves = []
    for first in (0, N // 2):
        order = constant(V16.llvm, [first + i // 2 for i in range(N)])
        wide = call(builder, "llvm.x86.avx512.permvar.hi.512", V16.llvm, [data, order])
        even = constant(MASK.llvm, [1 - i % 2 for i in range(N)])
        halves.append(builder.bitcast(builder.select(even, wide, constant(V16.llvm, 0)), HALF))
    return builder.shuffle_vector(*halves, constant(V32.llvm, list(range(N))))


@intrinsic
def push_bytes(typing: Any, address: Any, x: Any, one: Any, two: Any) -> Any:
    """Store the low byte of `x` in the lanes of `one`, the next byte in those of `two`.

    `two` implies `one`. Returns the address after the stored bytes. Up to 64 bytes from `address` on are
    overwritten.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _pack(builder, args[0], builder.trunc(args[1], V16.llvm), _selected(builder, args[2], args[3]))

    return types.uint64(types.uint64, V32, MASK, MASK), codegen


@intrinsic
def pull_bytes(typing: Any, address: Any, one: Any, two: Any) -> Any:
    """Read back the bytes that `push_bytes` stored before `address`.

    Returns the address of the first of these bytes, and int32 [32] with each lane's bytes, 0 where there are
    none. Up to 64 bytes from that address on are read.
    """
    result = types.Tuple((types.uint64, V32))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        mask = _selected(builder, args[1], args[2])
        address = builder.sub(args[0], builder.ctpop(mask))
        data = _extended(builder, _spread(builder, address, mask))
        return context.make_tuple(builder, result, (address, data))

    return result(types.uint64, MASK, MASK), codegen
