"""oscar.pseudo: what is encoded comes back, damage is an error, and the recipes of pseudo.md run."""

from __future__ import annotations

import re
import struct
import sys
import zlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar import pseudo
from oscar.coding.asc import Encoder
from oscar.coding.pseudo import PIECE, SUMS, SparseTensor, _squares
from oscar.errors import ConfigError, FrameError, GradientError

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "pseudo.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16")
CODES = np.array([-2, -1, 1, 2], np.int8)


def of_chunks(random: np.random.Generator, chunks: int, kept: int = 64, size: int = 4096) -> np.ndarray:
    """Return `kept` ascending positions in each chunk of `size`, in the flat tensor."""
    order = np.argsort(random.random((chunks, size)), axis=1)[:, :kept]
    return (np.sort(order, axis=1) + size * np.arange(chunks)[:, None]).ravel()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_come_back(dtype: str, seed: int) -> None:
    random, limits = np.random.default_rng(seed), np.iinfo(dtype)
    for shape in ((), (0,), (1,), (3, 0, 2), (5, 7), (40_000,)):
        for low, high in ((limits.min, limits.max), (0, 3), (0, 0)):
            tensor = random.integers(low, high, shape, dtype, endpoint=True)
            again = pseudo.decode(pseudo.encode(tensor))
            assert again.dtype == tensor.dtype
            np.testing.assert_array_equal(again, tensor, strict=True)
    ends = np.array([limits.min, limits.max], dtype)
    np.testing.assert_array_equal(pseudo.decode(pseudo.encode(ends)), ends)


def test_floats_come_back_within_half_a_step(seed: int) -> None:
    random = np.random.default_rng(seed)
    for scale in (1e-42, 1e-3, 1.0, 1e30):
        values = (random.normal(0, 1, (33, 17)) * scale).astype(np.float32)
        for coarseness in (0.125, 1.0, 4.0):
            again = pseudo.decode(pseudo.encode(values, coarseness=coarseness))
            assert again.dtype == np.float32
            step = max(coarseness * float(np.sqrt(np.square(values, dtype=np.float64).mean())), 2.0**-149)
            assert np.abs(again - values).max() <= 2**0.51 * step / 2
    spike = np.zeros(100_000, np.float32)
    spike[7] = np.finfo(np.float32).max
    again = pseudo.decode(pseudo.encode(spike))
    assert np.isfinite(again).all()
    assert again[7] >= spike[7] * (1 - 2.0**-14)  # nothing saturates, and nothing becomes Inf
    half = np.array([65504, 1, -65504], np.float16)
    assert np.isfinite(pseudo.decode(pseudo.encode(half, coarseness=8))).all()
    assert not pseudo.decode(pseudo.encode(np.zeros(9, np.float64))).any()


def test_the_step_of_floats_is_summed_in_one_order_everywhere(seed: int) -> None:
    """No BLAS, whose order differs, decides a step: not even where the last bit of one value does."""
    random = np.random.default_rng(seed)
    for size in (1, 15, 16, 33, 5000):
        values = (random.normal(size=size) * 2.0 ** random.integers(-60, 60, size)).astype(np.float32)
        sums = [0.0] * SUMS
        for at, value in enumerate(values.tolist()):
            sums[at % SUMS] += value * value
        assert _squares(values).tolist() == sums
    values = np.tile(np.array([0, 2], np.float32), 1 << 16)  # of mean square 2, from which a step is 2
    for last, exponent in ((2.0, 1), (np.nextafter(np.float32(2), np.float32(0)), 0)):
        values[-1] = last
        data = pseudo.encode(values, coarseness=1)
        assert struct.unpack_from("<h", data, 4) == (exponent,)


def test_sparse_tensors_come_back_in_ascending_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    positions = of_chunks(random, 6)
    codes = random.choice(CODES, positions.size)
    order = random.permutation(positions.size)
    straight = pseudo.encode((positions, codes), shape=(6, 4096))
    assert pseudo.encode((positions[order], codes[order]), shape=[6, 4096]) == straight
    sparse = pseudo.decode(straight)
    np.testing.assert_array_equal(sparse.positions, positions)
    np.testing.assert_array_equal(sparse.values, codes, strict=True)
    assert sparse.shape == (6, 4096)
    assert pseudo.encode(sparse) == straight
    assert sparse.dense().shape == (6, 4096)
    np.testing.assert_array_equal(sparse.dense().ravel()[positions], codes)
    whole = np.int64(6 * 4096)
    assert pseudo.decode(pseudo.encode((positions, codes), shape=whole)).shape == (6 * 4096,)
    empty = pseudo.decode(pseudo.encode((np.empty(0, np.int64), np.empty(0, np.float32)), shape=12))
    assert empty.positions.size == empty.values.size == 0
    assert empty.dense().tolist() == [0.0] * 12


def test_sparse_loco_takes_little_more_than_its_entropy() -> None:
    random = np.random.default_rng(1)  # 2.8 % and .06 % to either side: one of many would be beyond 3 %
    positions = of_chunks(random, 600)
    codes = random.choice(CODES, positions.size)
    entropy = 600 * (64 * 2 + 466.9)  # of codes; log2 C(4096, 64) for each chunk
    for values in (codes, (codes + 2 - (codes > 0)).astype(np.uint8)):
        data = pseudo.encode((positions, values), shape=600 * 4096)
        assert 8 * len(data) <= 1.03 * entropy
        np.testing.assert_array_equal(pseudo.decode(data).values, values)


def test_a_large_tensor_takes_several_frames(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-9, 9, 2500).astype(np.int32)
    monkeypatch.setattr("oscar.coding.pseudo.PIECE", 1000)
    data = pseudo.encode(values)
    np.testing.assert_array_equal(pseudo.decode(data), values)
    assert data.count(b"\xa1\x10") >= 3  # frames begin so; values may hold it by chance
    assert PIECE < 1 << 28


def test_a_message_is_what_the_page_says() -> None:
    """The bytes are frozen: an empty tensor has a head alone, two codes have two frames."""
    head = struct.pack("<BBBBhBxQQ", 0xC2, 0, 1, 1, 0, 0, 0, 0)
    assert pseudo.encode(np.empty(0, np.float32))[:2] == head[:2]
    data = pseudo.encode((np.array([3, 9]), np.array([1, -2], np.int8)), shape=(4, 4))
    fixed = struct.pack("<BBBBhBxQQQ", 0xC2, 1, 4, 2, 0, 0, 33, 4, 4)
    assert data[: len(fixed) + 4] == fixed + struct.pack("<I", zlib.crc32(fixed))
    assert data[36:69] == Encoder().encode(np.array([-2, -3]), step=0, width=8)  # gaps 3 and 5
    assert (zlib.crc32(data), len(data)) == (3302645708, 102)
    with pytest.raises(FrameError, match="of version 2, got 1: run one release everywhere"):
        pseudo.decode(b"\xc1" + data[1:])  # whose positions were in Rice codes


def test_gaps_are_any_and_positions_end_within_the_tensor() -> None:
    size = 1 << 32
    positions = np.array([0, 1, 3, size - 2, size - 1])
    data = pseudo.encode((positions, np.arange(5)), shape=size)
    np.testing.assert_array_equal(pseudo.decode(data).positions, positions)
    for only in (size - 2, size - 1):  # the largest gaps of each sign
        data = pseudo.encode((np.array([only]), np.array([7])), shape=size)
        assert pseudo.decode(data).positions.tolist() == [only]
    head, frame = bytearray(pseudo.encode((np.array([3]), np.array([1])), shape=8)[:24]), Encoder()
    for sent, said in (
        ([4], "got 8"),
        ([3, 0, 0], "got 8 as number 2"),
        ([0] * 9, "at most 8 values, got 9"),
    ):
        gaps = Encoder().encode(np.array(sent, np.int16), step=0)
        head[8:16] = struct.pack("<Q", len(gaps))
        codes = frame.encode(np.ones(len(sent), np.int64), step=0)
        with pytest.raises(FrameError, match=said):
            pseudo.decode(sealed(head, gaps + codes))


def test_bad_arguments_say_what_was_expected() -> None:
    one, two = np.array([1]), np.array([1, 2], np.int8)
    for bad, kind, said in (
        (((one, two), 9), ValueError, "of one length"),
        (((np.array([[1]]), np.array([[1]])), 9), ValueError, "then flatten both"),
        (((np.array([1, 1]), two), 9), ValueError, "or it twice"),
        (((np.array([1, 9]), two), 9), ValueError, "0 to 8"),
        (((two * 0.5, two), 9), TypeError, "positions are integers"),
        (((one, one), None), ValueError, "shape="),
        (((one, one), (1 << 40,)), ConfigError, "split the tensor"),
        ((one, 9), ValueError, "a tensor has its own"),
        (((one, one), 4.5), TypeError, "a sequence of them, got 4.5"),
        (([1.0, 2.0], None), TypeError, "expected an array of NumPy or a tensor of PyTorch, got list"),
        ((1.0, None), TypeError, "got float"),
        ((([1], [2]), 9), TypeError, "got list"),
        (((one, [2]), 9), TypeError, "got list"),
        ((np.array(["a"]), None), TypeError, "expected a tensor of one of"),
        ((np.array([1 << 40]), None), ValueError, "signed bits"),
        ((np.array([1.0, np.nan]), None), GradientError, "got nan at flat index 1"),
        ((np.array([1e300]), None), GradientError, r"got 1e\+300 .*; skip this step"),
        ((np.array([np.inf], np.float32), None), GradientError, r"oscar\.floats"),
    ):
        with pytest.raises(kind, match=said):
            pseudo.encode(bad[0], shape=bad[1])  # type: ignore[index]


def messages() -> list[bytes]:
    random = np.random.default_rng(5)
    positions = of_chunks(random, 2)
    return [
        pseudo.encode(random.normal(size=(30, 40)).astype(np.float32)),
        pseudo.encode((positions, random.choice(CODES, 128)), shape=(2, 4096)),
        pseudo.encode(random.integers(0, 255, 300, np.uint8)),
        pseudo.encode(np.empty((0, 3), np.int16)),
    ]


def sealed(head: bytes | bytearray, rest: bytes) -> bytes:
    """Return a message with this head, whose CRC is made anew."""
    return bytes(head) + struct.pack("<I", zlib.crc32(head)) + rest


@pytest.mark.parametrize("at", [7, 4], ids=["the byte that is 0", "a step, of integers"])
def test_a_head_has_one_form(at: int) -> None:
    codes = np.array([0, 1, 2, 3], np.uint8)
    data = pseudo.encode(codes)
    head = bytearray(data[:24])
    np.testing.assert_array_equal(pseudo.decode(sealed(head, data[28:])), codes)
    head[at] = 1
    with pytest.raises(FrameError, match="a head that a sender writes"):
        pseudo.decode(sealed(head, data[28:]))


def test_an_unsigned_code_has_one_form() -> None:
    head = pseudo.encode(np.array([7, 3, 0], np.uint8))[:24]  # of 3 bits: 0 to 7 are sent as -4 to -1, 1 to 4
    for sent, said in (
        ([1, 2, 0], "without a 0, got 0 at index 2"),
        ([-4, -1, -1], "codes of 3 bits, got 2"),
        ([5, 1, 1], "codes of 3 bits, got 4"),
        ([-5, 1, 1], "values of uint8, got -1"),
    ):
        frame = Encoder().encode(np.array(sent, np.int16), step=0)
        with pytest.raises(FrameError, match=said):
            pseudo.decode(sealed(head, frame))


def test_a_forged_head_neither_hangs_nor_allocates(seed: int) -> None:
    """Heads of random fields with a right CRC, before the rest of real messages: decoded or refused."""
    random = np.random.default_rng(seed)
    for data in messages():
        size = 16 + 8 * data[3]
        for _ in range(300):
            head = bytearray(data[:size])
            for at in random.integers(1, size, random.integers(1, 4)):
                head[at] = random.choice([0, 1, 4, 64, 128, 255])
            try:
                pseudo.decode(sealed(head, data[size + 4 :]))
            except FrameError:
                continue


def test_tensors_of_torch_come_back_as_such(seed: int) -> None:
    needs("torch")
    import torch

    torch.manual_seed(int(np.random.default_rng(seed).integers(1 << 30)))
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        tensor = torch.randn(3, 50, 7).to(dtype).transpose(0, 1).requires_grad_()
        again = pseudo.decode(pseudo.encode(tensor, coarseness=0.25), as_torch=True)
        assert (again.dtype, again.shape) == (dtype, tensor.shape)
        assert (again - tensor).abs().max() < 0.2
        plain = pseudo.decode(pseudo.encode(tensor, coarseness=0.25))
        np.testing.assert_array_equal(
            plain, again.float().numpy() if dtype == torch.bfloat16 else again.numpy()
        )
        with pytest.raises(GradientError, match="got inf at flat index 1"):
            pseudo.encode(torch.tensor([1, torch.inf], dtype=dtype))
    with pytest.raises(TypeError, match="positions are integers, got bfloat16"):
        pseudo.encode((torch.ones(1, dtype=torch.bfloat16), torch.ones(1)), shape=9)
    codes = torch.tensor([3, 0, 2], dtype=torch.uint8)
    sparse = pseudo.decode(pseudo.encode((torch.tensor([5, 1, 2]), codes), shape=(2, 4)), as_torch=True)
    assert isinstance(sparse, SparseTensor)
    assert sparse.positions.tolist() == [1, 2, 5]
    assert sparse.dense().tolist() == [[0, 0, 2, 0], [0, 3, 0, 0]]


# --- the recipes, with the packages where they are installed, else with what they document


@dataclass
class _Wire:
    """A stand-in of hivemind's runtime_pb2.Tensor."""

    compression: int
    buffer: bytes
    size: Any
    dtype: str
    requires_grad: bool


class _Array:
    """A stand-in of flwr.app.Array."""

    def __init__(self, ndarray: np.ndarray) -> None:
        self.array = np.array(ndarray)

    def numpy(self) -> np.ndarray:
        return self.array


class _ArrayRecord(dict[str, _Array]):
    """A stand-in of flwr.app.ArrayRecord."""

    def to_numpy_ndarrays(self) -> list[np.ndarray]:
        return [array.numpy() for array in self.values()]


class _RecordDict(dict[str, Any]):
    """A stand-in of flwr.app.RecordDict that holds nothing but arrays."""

    @property
    def array_records(self) -> dict[str, Any]:
        return self


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def recipe(word: str) -> dict[str, Any]:
    """Run the one block of the page with this word; return its names."""
    (block,) = (block for block in BLOCKS if word in block)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/reference/pseudo.md", "exec"), names)
    return names


def test_the_first_example_runs() -> None:
    names = recipe("error feedback")
    assert names["sparse"].shape == (256, 64)
    bits = 8 * len(pseudo.encode(names["update"], coarseness=1)) / names["update"].size
    assert 2.1 < bits < 2.3
    assert np.abs(names["error"]).max() < 0.001


@pytest.fixture
def hivemind(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the page's block, with hivemind's list of compressions as `known`."""
    needs("torch")
    try:
        from hivemind.compression import serialization
    except ImportError:
        serialization = module(monkeypatch, "hivemind.compression.serialization", _BASE_COMPRESSION_TYPES={})
        module(monkeypatch, "hivemind")
        roles = Enum("TensorRole", "ACTIVATION PARAMETER GRADIENT OPTIMIZER UNSPECIFIED")
        named = {"CompressionBase": object, "TensorRole": roles, "serialization": serialization}
        module(monkeypatch, "hivemind.compression", **named)
        types = SimpleNamespace(MEANSTD_16BIT=2, QUANTILE_8BIT=3, Tensor=_Wire)
        module(monkeypatch, "hivemind.proto", runtime_pb2=types)
    monkeypatch.setattr(serialization, "_BASE_COMPRESSION_TYPES", {**serialization._BASE_COMPRESSION_TYPES})
    return recipe("CompressionBase") | {"known": serialization._BASE_COMPRESSION_TYPES}


def test_hivemind_sends_by_it(hivemind: dict[str, Any]) -> None:
    import torch

    compression = hivemind["OscarCompression"](coarseness=0.25)
    info = SimpleNamespace(
        role=hivemind["TensorRole"].GRADIENT, descriptor=SimpleNamespace(dtype=torch.float32)
    )
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.linspace(-1, 1, 3000).reshape(30, 100).to(dtype)
        message = compression.compress(tensor, info)
        assert len(message.buffer) < 3000
        again = hivemind["known"]["MEANSTD_16BIT"].extract(message)
        assert (again.dtype, again.shape) == (dtype, tensor.shape)
        assert (again - tensor).abs().max() < 0.1
    assert 0 < compression.estimate_compression_ratio(info) < 1


def test_hivemind_s_peers_agree_on_weights(hivemind: dict[str, Any], seed: int) -> None:
    """By hivemind's rule: peers send weights, and get the difference from the average back."""
    import torch

    state = SimpleNamespace(role=hivemind["TensorRole"].PARAMETER)
    other = SimpleNamespace(role=hivemind["TensorRole"].UNSPECIFIED)
    with pytest.raises(TypeError, match=r"expected gradients, got state: set state_averaging_compression="):
        hivemind["OscarCompression"]().compress(torch.ones(4), state)

    def sent(tensor: Any, info: Any) -> Any:
        return hivemind["known"]["QUANTILE_8BIT"].extract(hivemind["OscarWeights"]().compress(tensor, info))

    random = torch.Generator().manual_seed(seed % (1 << 63))
    base = torch.randn(5000, generator=random) * 0.02
    peers = [base + 1e-3 * torch.randn(5000, generator=random) for _ in range(4)]
    exact = torch.stack(peers).double().mean(0)
    for _ in range(3):
        parts = [sent(peer, state) for peer in peers]
        mean = torch.stack(parts).mean(0)
        peers = [peer + sent(mean - part, other) for peer, part in zip(peers, parts, strict=True)]
    assert (torch.stack(peers).double() - exact).abs().max() < 1e-7


def test_flower_sends_by_it(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    try:
        from flwr.app import Array, ArrayRecord, RecordDict
    except ImportError:
        Array, ArrayRecord, RecordDict = _Array, _ArrayRecord, _RecordDict
        module(monkeypatch, "flwr")
        module(monkeypatch, "flwr.app", Array=Array, ArrayRecord=ArrayRecord)

    def message(record: Any) -> Any:
        return SimpleNamespace(content=RecordDict({"arrays": record}), has_error=lambda: False)

    random = np.random.default_rng(seed)
    weights = {"w": random.normal(size=(40, 50)).astype(np.float32), "b": np.ones(3, np.float32)}
    trained = {name: w + random.normal(0, 1e-3, w.shape).astype(np.float32) for name, w in weights.items()}
    sent, new = (ArrayRecord({n: Array(w) for n, w in held.items()}) for held in (weights, trained))
    names = recipe("oscar_mod")
    reply = names["oscar_mod"](message(sent), None, lambda msg, ctxt: message(new))
    coded = reply.content.array_records["arrays"]
    assert sum(array.numpy().nbytes for array in coded.values()) < 2003
    names["restore"](reply, {"arrays": sent})
    for name, array in reply.content.array_records["arrays"].items():
        assert array.numpy().dtype == np.float32
        assert np.abs(array.numpy() - trained[name]).max() < 1e-3
