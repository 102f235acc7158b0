"""The coder on a GPU against the reference: payloads byte for byte, values, what is learnt, what is refused.

Kernels run in Triton's interpreter on the CPU, some thousand values a second. They are compiled for a real
card as well, and run on one where there is one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.coding.asc.params import CODED, CONSTANT, RAW, AscParams
from oscar.coding.asc.reference import ReferenceCoder
from oscar.coding.asc.state import TableState
from oscar.errors import FrameError, OscarError

needs("torch", "gpu")
import torch  # noqa: E402

INTERPRET = "TRITON_INTERPRET"
SMALL = AscParams(block_log2=10)
DTYPES: dict[int, Any] = {8: np.int8, 12: np.int16, 16: np.int16, 20: np.int32, 32: np.int32}


@pytest.fixture(autouse=True, scope="module")
def interpreted() -> Iterator[None]:
    """Let kernels of this process be interpreted; Triton asks when their modules are imported, and later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(INTERPRET, "1")
        yield


def coder(params: AscParams) -> Any:
    from oscar_gpu.coder import TritonCoder

    return TritonCoder(params)


there = torch.device("cpu")  # where kernels run


def tensor(array: np.ndarray | None) -> Any:
    return None if array is None else torch.from_numpy(array.copy()).to(there)


def classes_of(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return position classes that follow the values, noisily."""
    size = np.log2(np.abs(values.astype(np.float64)) + 1) + random.normal(0, 1, values.size)
    return np.clip(np.rint(size), 0, 15).astype(np.uint8)


def check(
    values: np.ndarray, classes: np.ndarray | None, width: int, params: AscParams, frames: int = 1
) -> bytes:
    """Code frames of these values with both coders and decode them, also adding; return the last payload."""
    plain, device = ReferenceCoder(params), coder(params)
    encoders, decoders = [TableState.initial() for _ in range(2)], [TableState.initial() for _ in range(2)]
    payload = b""
    for frame in range(frames):
        payload = plain.encode(values, classes, width, encoders[0])
        own = device.encode(tensor(values), tensor(classes), width, encoders[1])
        assert bytes(own) == payload
        before = np.arange(values.size).astype(np.int16 if width <= 16 else np.int32)
        out, add = tensor(before), frame % 2 == 0
        plus, others = (before, out) if add else (None, None)
        plain.decode(memoryview(payload), values.size, classes, width, decoders[0], before, plus)
        device.decode(own, values.size, tensor(classes), width, decoders[1], out, others)
        np.testing.assert_array_equal(out.cpu().numpy(), before)
        for state in (encoders[1], *decoders):
            np.testing.assert_array_equal(state.hist, encoders[0].hist)
    return payload


@pytest.mark.parametrize("count", [1, 31, 33, 1024, 1025])
@pytest.mark.parametrize("context", ["class", "none"])
def test_frames_of_some_values(count: int, context: Any) -> None:
    random = np.random.default_rng(count)
    values = np.rint(random.laplace(0, 3, count)).astype(np.int16)
    check(values, classes_of(values, random), 12, AscParams(context=context, block_log2=10))


@pytest.mark.parametrize("width", [8, 12, 16, 20, 32])
@pytest.mark.parametrize("share", [0.02, 0.4])
def test_widths_and_wide_rows(width: int, share: float) -> None:
    random = np.random.default_rng(width)
    limit = (1 << (width - 1)) - 1
    values = np.clip(np.rint(random.laplace(0, share * limit, 1300)), -limit - 1, limit).astype(DTYPES[width])
    check(values, classes_of(values, random), width, SMALL)


def test_int32_that_need_no_frame_shift() -> None:
    values = np.array([1 << 14, -(1 << 15), *range(-100, 100)], np.int32)
    check(values, None, 17, SMALL)


def test_sparse_values_leave_groups_out() -> None:
    values = np.zeros(6000, np.int16)
    values[2100:2105] = (1, -300, 7, 0, 2)
    values[5999] = 5
    check(values, np.repeat(np.arange(6, dtype=np.uint8), 1000), 12, AscParams(block_log2=11))


def test_blocks_that_are_zero_constant_or_raw() -> None:
    random = np.random.default_rng(3)
    parts = [np.zeros(1024), np.full(1024, -9), random.integers(-2048, 2048, 1024), random.laplace(0, 2, 700)]
    values = np.rint(np.concatenate(parts)).astype(np.int16)
    payload = check(values, None, 12, AscParams(block_log2=10, sent_rows=False))
    assert [payload[at] & 3 for at in (2, 8, 14, 20)] == [CONSTANT, CONSTANT, RAW, CODED]


def test_a_short_last_block_is_coded_though_it_is_longer() -> None:
    random = np.random.default_rng(5)
    for count, kind in ((150, CODED), (60, RAW)):
        values = np.rint(random.laplace(0, 6, 1024 + count)).clip(-31, 31).astype(np.int16)
        payload = check(values, None, 8, AscParams(block_log2=10, sent_rows=False))
        assert payload[8] & 3 == kind


def test_seed_rows_of_all_kinds() -> None:
    """Rows of 3, 4, 5, 8 and 16 bits ride in the start states, a partial row among them."""
    for largest in (2, 6, 14, 100, 30000, 40000):
        values = np.zeros(75, np.int32)
        values[::3] = largest
        values[70:] = -largest
        check(values, None, 20, SMALL)


def test_rows_are_sent_and_learnt_over_frames() -> None:
    random = np.random.default_rng(4)
    values = np.where(random.random(1000) < 0.5, 100, -7).astype(np.int16)
    classes = classes_of(values, random)
    assert ReferenceCoder(AscParams()).encode(values, classes, 12, TableState.initial())[1] >> 2  # some are
    check(values, classes, 12, AscParams(), frames=2)


def test_large_frames_count_some_rows_only() -> None:
    """Above 32,768 values, tables learn from every fourth row; most are zero here, which takes no time."""
    values = np.zeros(33000, np.int8)
    values[4096:4700] = np.arange(604) % 23 - 11
    values[10240:10500] = 3
    check(values, None, 8, AscParams(block_log2=12))


def test_values_that_do_not_fit_are_refused() -> None:
    state = TableState.initial()
    with pytest.raises(ValueError, match="more than 12 signed bits"):
        coder(SMALL).encode(torch.tensor([5, -3000, 1], dtype=torch.int16), None, 12, state)
    np.testing.assert_array_equal(state.hist, TableState.initial().hist)
    with pytest.raises(TypeError, match="float32"):
        coder(SMALL).encode(torch.zeros(3), None, 12, state)


def test_empty_frames() -> None:
    state, nothing = TableState.initial(), torch.zeros(0, dtype=torch.int16)
    assert bytes(coder(SMALL).encode(nothing, None, 12, state)) == b""
    coder(SMALL).decode(b"", 0, None, 12, state, nothing, None)
    with pytest.raises(FrameError):
        coder(SMALL).decode(b"\0", 0, None, 12, state, nothing, None)


def mutated(payload: bytes, random: np.random.Generator) -> bytes:
    """Return the payload with a byte changed, put in or left out: anywhere, in its head or last states."""
    data = bytearray(payload)
    spans = ((0, len(data)), (0, min(len(data), 12)), (max(0, len(data) - 100), len(data)))
    at = int(random.integers(*spans[int(random.integers(3))]))
    kind = random.random()
    if kind < 0.8:
        data[at] ^= 1 << int(random.integers(8))
    elif kind < 0.9:
        del data[at]
    else:
        data.insert(at, int(random.integers(256)))
    return bytes(data)


def accepts(coder: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether the coder decodes what it is given."""
    try:
        coder.decode(*arguments)
    except FrameError:
        return False
    return True


@pytest.mark.parametrize("width", [12, 20])
def test_damaged_payloads_are_refused_as_the_reference_refuses_them(width: int, seed: int) -> None:
    random = np.random.default_rng([seed, width])
    values = np.rint(random.laplace(0, 4 if width == 12 else 9000, 100)).astype(DTYPES[width])
    classes = classes_of(values, random)
    plain, device = ReferenceCoder(SMALL), coder(SMALL)
    payload = plain.encode(values, classes, width, TableState.initial())
    refused = 0
    for _ in range(150):
        data, states = mutated(payload, random), [TableState.initial() for _ in range(2)]
        outs = [np.zeros(values.size, np.int32) for _ in range(2)]
        first = (memoryview(data), values.size, classes, width, states[0], outs[0], None)
        other = (data, values.size, tensor(classes), width, states[1], torch.from_numpy(outs[1]), None)
        accepted = accepts(plain, first)
        assert accepts(device, other) == accepted, data.hex()
        if accepted:
            np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(states[0].hist, states[1].hist)
        refused += not accepted
    assert refused


def test_without_a_device_the_coder_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from oscar_gpu.coder import find_device

    monkeypatch.setenv(INTERPRET, "0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OscarError, match=r"expected a CUDA device, found none; code on the CPU"):
        find_device()


# What needs kernels that are compiled is done by a process of its own.


def apart(what: str) -> str:
    """Run a function of this file in a process that compiles its kernels; return what it printed."""
    environment = {**os.environ, INTERPRET: "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, what],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout


def test_kernels_compile_for_a_card() -> None:
    """Of blocks, with as few registers as let 40 warps into a multiprocessor of 65,536."""
    registers = dict(line.split() for line in apart("compiled").splitlines())
    assert len(registers) == 16
    assert max(int(registers[name]) for name in ("encode", "decode")) <= 56, registers


def compiled() -> None:
    """Compile every kernel for compute capability 9.0, which takes no device; print their registers."""
    import re
    import tempfile
    from pathlib import Path

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from oscar_gpu import decode, encode, survey
    from oscar_gpu import quantiser_kernels as kernels

    pointers = {
        "*u8": "classes scratch payload data",
        "*i16": "values out sums reduced before old moved",
        "*i32": "meta info groups counts hist possible costs levels coding table means blocks status pieces "
        "places exponents tensors rises lanes tiles",
        "*i64": "entries sizes ends filled offsets",
        "*fp32": "residual keep mean",
    }
    other = {"quantise": {"values": "*fp32", "tallies": "*i64"}, "settle": {"facts": "*i64"}}
    other |= {"rescale": {"means": "*i16"}, "checksum": {"out": "*i32"}}
    kinds = {name: kind for kind, names in pointers.items() for name in names.split()}
    constants = {
        "SIZE": 1024, "LEAST": 0, "POSITIONS": True, "GROUPS": 4, "BLOCK_LOG2": 0,
        "SENDS": True, "NARROW": True, "ADD": True, "ADDS": True, "KEEPS": True, "ORDERED": True,
        "COSTS": True, "BLOCK": 256,
    }  # fmt: skip
    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    for module, names in (
        (survey, ("find_magnitude", "classify", "count", "tables")),
        (encode, ("encode", "pack", "gather")),
        (decode, ("expand", "average", "decode", "fill")),
        (kernels, ("quantise", "spread", "settle", "rescale", "checksum")),
    ):
        for name in names:
            kernel: Any = getattr(module, name)
            asked = [parameter.name for parameter in kernel.params]
            own = kinds | other.get(name, {})
            types = {key: "constexpr" if key in constants else own.get(key, "i32") for key in asked}
            source = ASTSource(kernel, types, {key: constants[key] for key in asked if key in constants})
            warps = 1 if name in ("encode", "decode") else 4
            options = {"num_warps": warps, "enable_fp_fusion": False}
            made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(made.asm["cubin"])
                file.flush()
                said = subprocess.run(
                    [cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True
                )
            found = re.search(r"REG:(\d+)", said.stdout)
            print(name, found.group(1) if found else 0)


def test_a_card_codes_as_the_reference_does() -> None:
    needs("cuda")
    assert apart("on_a_card").split() == ["equal"] * 12


def on_a_card() -> None:
    """Code frames of all kinds of blocks and counters on the card: whole and short groups, rows left out."""
    global there
    there = torch.device("cuda", torch.cuda.current_device())
    random = np.random.default_rng(7)
    for context in ("class", "none"):
        for width, scale in ((8, 2.0), (12, 40.0), (32, 1e8)):
            limit = (1 << (width - 1)) - 1
            values = np.clip(np.rint(random.laplace(0, scale, 50_000)), -limit, limit).astype(DTYPES[width])
            values[20_000:26_000] = 0
            params = AscParams(context=context, block_log2=12)  # type: ignore[arg-type]
            check(values, classes_of(values, random), width, params)
            print("equal")
    for count in (1, 1000, 3001):
        values = np.rint(random.laplace(0, 2, count)).astype(np.int16)
        check(values, classes_of(values, random), 12, SMALL, frames=2)
        print("equal")
    parts = [np.full(3000, -9), random.integers(-2048, 2048, 7100), np.zeros(5000), random.laplace(0, 2, 999)]
    values = np.rint(np.concatenate(parts)).astype(np.int16)
    check(values, classes_of(values, random), 12, SMALL, frames=2)  # raw and constant blocks
    print("equal")
    for live in (1, 3):  # in groups of few rows with values other or all rows are counted
        values = np.zeros(280_000, np.int16)
        values[:40_000] = np.rint(random.laplace(0, 4, 40_000))
        values[:40_000].reshape(-1, 32)[np.arange(1250) % 4 >= live] = 0
        check(values, classes_of(values, random), 12, AscParams(block_log2=12))
        print("equal")


if __name__ == "__main__":
    {"compiled": compiled, "on_a_card": on_a_card}[sys.argv[1]]()
