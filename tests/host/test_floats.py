"""Lossless floats: every bit comes back, both implementations agree, and damage is an error."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar import Config, LocalCluster, floats, pseudo
from oscar.coding.floats.codec import FloatCoder
from oscar.coding.floats.layout import HEAD, RAW, max_bytes, packed_bytes
from oscar.coding.registry import make_codec
from oscar.errors import FrameError

COMPILED, REFERENCE = FloatCoder(), FloatCoder("reference")
SPECIAL = [0, 1 << 31, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 0x7F7FFFFF, 0x3F800000]
KINDS = ("normal", "zeros", "rows", "random", "special", "scales", "none")


def drawn(random: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """Return the bits of `count` float32 of this kind, uint32."""
    bits = random.normal(size=count).astype(np.float32).view(np.uint32)
    if kind == "zeros":
        return bits * (random.random(count) < 0.5).astype(np.uint32)
    if kind == "rows":
        return bits * np.repeat(random.random(count // 32 + 1) < 0.4, 32)[:count].astype(np.uint32)
    if kind == "random":
        return random.integers(0, 1 << 32, count, np.uint32)
    if kind == "special":
        return random.choice(np.array(SPECIAL, np.uint32), count)
    if kind == "scales":
        return (
            (bits.view(np.float32) * 2.0 ** random.integers(-140, 120, count))
            .astype(np.float32)
            .view(np.uint32)
        )
    return bits * np.uint32(kind == "normal")


def halves(bits: np.ndarray) -> np.ndarray:
    return (bits >> np.uint32(16)).astype(np.uint16)


@pytest.mark.parametrize("kind", KINDS)
def test_both_implementations_make_the_same_bytes_and_return_every_bit(kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    for count in (0, 1, 31, 32, 33, 255, 257, 600, 2100):
        whole = drawn(random, kind, count)
        for bits in (whole, halves(whole)):
            payload = bytes(COMPILED.encode(bits))
            assert payload == bytes(REFERENCE.encode(bits))
            assert len(payload) <= max_bytes(count, bits.itemsize)
            for coder in (COMPILED, REFERENCE):
                again = coder.decode(memoryview(payload), count, bits.dtype.type)
                np.testing.assert_array_equal(again, bits, strict=True)


def test_a_large_frame_returns_every_bit(seed: int) -> None:
    random = np.random.default_rng(seed)
    for kind in KINDS:
        whole = drawn(random, kind, 200_001)
        for bits in (whole, halves(whole)):
            payload = bytes(COMPILED.encode(bits))
            np.testing.assert_array_equal(
                COMPILED.decode(memoryview(payload), bits.size, bits.dtype.type), bits
            )


def test_gaussian_values_take_their_entropy_and_zeros_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    bits = drawn(random, "normal", 300_000)
    assert 8 * len(COMPILED.encode(halves(bits))) / bits.size < 10.8
    assert 8 * len(COMPILED.encode(bits)) / bits.size < 26.8
    assert len(COMPILED.encode(np.zeros(300_000, np.uint32))) < 100
    half = np.repeat(random.random(300_000 // 32) < 0.5, 32)
    some = bits[: half.size] * half.astype(np.uint32)
    share = half.mean() + 0.005  # of the rows that are not zero, and what it takes to say which
    assert len(COMPILED.encode(some)) < share * len(bytes(COMPILED.encode(bits[: half.size])))


def test_payloads_are_frozen() -> None:
    """The format cannot change unnoticed. 40 values: a short row, an empty tail, both signs, no 2^n count."""
    whole = (np.arange(-700, 700, dtype=np.float32) / 64).view(np.uint32)
    for bits, size, crc in ((whole, GOLDEN[0], GOLDEN[1]), (halves(whole), GOLDEN[2], GOLDEN[3])):
        payload = bytes(COMPILED.encode(bits))
        assert (len(payload), zlib.crc32(payload)) == (size, crc)
    mode, first, kept, exponents = HEAD.unpack_from(payload)
    assert (mode, first, kept) == (1, 130, 1399)  # 10.9 has the field 130; one value is 0
    assert packed_bytes(kept) == 5 * 224 + 7 * 15
    assert len(payload) > HEAD.size + packed_bytes(kept) + exponents
    raw = np.array([0x4049, 0x8000], np.uint16)
    assert bytes(COMPILED.encode(raw)) == bytes([RAW, 0x49, 0x40, 0x00, 0x80])


GOLDEN = (4428, 3363685908, 1630, 1205811219)


def test_forged_payloads_are_refused_or_give_values(seed: int) -> None:
    """With no CRC around them, bytes either decode alike in both implementations or raise FrameError."""
    random = np.random.default_rng(seed)
    refused = 0
    for bits in (drawn(random, "zeros", 700), halves(drawn(random, "rows", 900))):
        payload = bytes(COMPILED.encode(bits))
        for _ in range(150):
            hurt = bytearray(payload)
            for _ in range(random.integers(1, 4)):
                at = random.integers(len(hurt)) if random.random() < 0.5 else random.integers(HEAD.size)
                hurt[at] = random.integers(256)
            view = memoryview(bytes(hurt[: random.integers(len(hurt))] if random.random() < 0.1 else hurt))
            found: list[Any] = []
            for coder in (COMPILED, REFERENCE):
                try:
                    found.append(coder.decode(view, bits.size, bits.dtype.type).tolist())
                except FrameError:
                    found.append(None)
                    refused += 1
            assert found[0] == found[1]
    assert refused > 100


def test_a_forged_count_allocates_nothing() -> None:
    payload = memoryview(bytes(COMPILED.encode(np.zeros(1 << 20, np.uint16))))
    with pytest.raises(FrameError):
        COMPILED.decode(payload, 1 << 28, np.uint16)


def test_messages_return_tensors_and_refuse_others(seed: int) -> None:
    random = np.random.default_rng(seed)
    for shape in ((), (0,), (3, 0), (5, 7), (1000,)):
        tensor = drawn(random, "special", int(np.prod(shape))).view(np.float32).reshape(shape)
        again = floats.decode(floats.encode(tensor))
        assert again.shape == shape
        assert again.tobytes() == tensor.tobytes()
    data = floats.encode(drawn(random, "normal", 3000).view(np.float32))
    with pytest.raises(FrameError, match=r"one of oscar\.floats: decode it there"):
        pseudo.decode(data)
    with pytest.raises(TypeError, match="float32 or bfloat16, got float64"):
        floats.encode(np.ones(3))
    with pytest.raises(TypeError, match="expected an array of NumPy or a tensor of PyTorch, got list"):
        floats.encode([1.0])


def test_a_large_tensor_takes_several_frames(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    tensor = drawn(np.random.default_rng(seed), "normal", 2500).view(np.float32)
    monkeypatch.setattr("oscar.coding.floats.messages.PIECE", 1000)
    data = floats.encode(tensor)
    assert floats.decode(data).tobytes() == tensor.tobytes()
    assert data.count(struct.pack("<BBH", 0xA1, 13, 0)) == 3


def test_tensors_of_torch_keep_their_bits(seed: int) -> None:
    needs("torch")
    import torch

    bits = drawn(np.random.default_rng(seed), "special", 600)
    half = torch.from_numpy(halves(bits).view(np.int16)).view(torch.bfloat16).reshape(20, 30)
    again = floats.decode(floats.encode(half), as_torch=True)
    assert again.dtype == torch.bfloat16
    assert torch.equal(again.view(torch.int16), half.view(torch.int16))
    assert floats.decode(floats.encode(half)).tobytes() == (bits & 0xFFFF0000).astype(np.uint32).tobytes()
    whole = torch.from_numpy(bits.view(np.float32))
    assert torch.equal(
        floats.decode(floats.encode(whole), as_torch=True).view(torch.int32), whole.view(torch.int32)
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("schedule", ["direct", "ring"])
def test_an_allreduce_has_the_bits_of_the_uncompressed_one(dtype: str, schedule: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    gradients = [
        [random.normal(0, 1e-3, (70, 60)).astype(np.float32), np.zeros(90, np.float32)] for _ in range(3)
    ]
    methods = dtype, f"{dtype}-lossless"
    plain, coded = (
        LocalCluster(Config(nodes=3, method=method, schedule={"name": schedule})).allreduce(gradients)
        for method in methods
    )
    for one, other in zip(plain.mean, coded.mean, strict=True):
        assert one.tobytes() == other.tobytes()
    assert coded.stats.bits_per_value < (0.8 if dtype == "bf16" else 0.9) * plain.stats.bits_per_value
    assert coded.stats.exact == plain.stats.exact


def test_what_bf16_clips_is_counted() -> None:
    entry = make_codec("bf16-lossless")
    encoder = entry.make_encoder()
    values = np.array([np.finfo(np.float32).max, 1.0], np.float32)
    again = entry.make_decoder().decode(encoder.encode(values, step=0), step=0)
    assert np.isfinite(again).all()
    assert entry.saturated is not None
    assert entry.saturated(encoder)[0] == 1
