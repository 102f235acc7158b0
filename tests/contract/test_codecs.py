"""What every codec of a link, of positions and of messages keeps: its values, its state, and no damage."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from oscar import delta, floats, pseudo
from oscar.coding.codec import Codec
from oscar.coding.frame import HEADER_BYTES
from oscar.coding.index import INDEX_CODECS, make_index
from oscar.coding.registry import codec_names, make_codec
from oscar.errors import ConfigError, FrameError, WrongBaseError
from oscar.state import crc

ENTRIES = {name: make_codec(name) for name in codec_names()}
ENTRIES |= {
    f"{name}, reference": make_codec(name, implementation="reference") for name in ("asc", "asc-paper")
}
EVERY = pytest.mark.parametrize("name", ENTRIES)
LOST = {  # the largest error of a frame's largest magnitude, and half of what it is at least
    "bf16": 2**-8, "fp16": 2**-11, "bf16-lossless": 2**-8, "mxfp8": 2**-3, "mxfp6": 2**-4, "mxfp4": 2**-2,
    "fp8-rows": 2**-4,
}  # fmt: skip


def drawn(random: np.random.Generator, codec: Codec, count: int) -> np.ndarray:
    """Return values that a codec carries, of any kind and width; within +-127 where it clips."""
    if codec.domain == "float":
        values = random.normal(size=count) * (random.random(count) > 0.2)
        return values.astype(np.float32)
    most = (1 << (min(codec.max_bits, 31) if codec.lossless else 8) - 1) - 1
    scale = 2.0 ** random.uniform(-2, np.log2(most))
    kinds = (
        random.laplace(0, min(12, most), count),
        random.laplace(0, scale, count),
        random.uniform(-scale, scale, count),
        random.choice([-most, most, 0.0, 0.3 * scale], count, p=[0.001, 0.001, 0.9, 0.098]),
        1000 * np.rint(random.laplace(0, scale / 1000, count)),
    )
    return np.clip(np.rint(kinds[random.integers(len(kinds))]), -most, most).astype(np.int32)


def link(name: str) -> tuple[Any, Any]:
    """Return both ends of a link."""
    return ENTRIES[name].make_encoder(), ENTRIES[name].make_decoder()


def damages(frame: bytes, every: int = 1) -> Iterator[bytes]:
    """Yield a frame with each of its bits flipped, cut after each byte, and one byte longer."""
    for bit in range(0, 8 * len(frame), every):
        hurt = bytearray(frame)
        hurt[bit >> 3] ^= 1 << (bit & 7)
        yield bytes(hurt)
    yield from (frame[:size] for size in range(len(frame)))
    yield frame + b"\0"


@EVERY
@pytest.mark.parametrize("count", [0, 1, 2, 7, 300, 5000])
def test_codec_returns_its_values(name: str, count: int, seed: int) -> None:
    """All bits where it is lossless, else within a bound that the error comes near; no input is written."""
    random, codec, (encoder, decoder) = np.random.default_rng(seed), ENTRIES[name], link(name)
    for _ in range(3):
        values = drawn(random, codec, count)
        given = np.repeat(values, 2)[::2]
        given.flags.writeable = False
        frame = encoder.encode(given, step=3, chunk=2)
        result = decoder.decode(frame, step=3)
        assert result.size == count
        assert len(frame) <= codec.max_frame(count, frame[7])
        if name in LOST:
            error, top = np.abs(result - values).max(initial=0), np.abs(values).max(initial=0)
            assert error <= LOST[name] * top
            assert count < 300 or error > LOST[name] * top / 8
        else:
            assert np.array_equal(result, values)
        kept = result.copy()
        decoder.decode(encoder.encode(drawn(random, codec, count), step=3), step=3)
        assert np.array_equal(result, kept)


@pytest.mark.parametrize("name", [name for name, codec in ENTRIES.items() if codec.domain == "int"])
def test_integer_codec_carries_the_ends_of_its_widths(name: str) -> None:
    most = ENTRIES[name].max_bits
    for width in (1, 2, 8, 9, 16, 17, 31, 32):
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
        for values in ([low], [high], [low, high] * 20, [high] * 5000, [0] * 900 + [low]):
            encoder, decoder = link(name)
            array = np.array(values, np.int32)
            if width > most:
                with pytest.raises(ValueError, match=r"use int32|bits"):
                    encoder.encode(array, step=0, width=width)
                assert encoder.encode(np.array([1]), step=0)[8:10] == b"\0\0"  # the sequence did not move
                break
            result = decoder.decode(encoder.encode(array, step=0, width=width), step=0)
            assert np.array_equal(result, array if name != "int8" else np.clip(array, -127, 127))


@pytest.mark.parametrize("name", [name for name, codec in ENTRIES.items() if codec.domain == "float"])
def test_float_codec_carries_the_ends_of_float32(name: str) -> None:
    values = np.array([0.0, -0.0, 1e-45, -1e-40, 3.4e38, -3.4e38, 65504, np.inf, -np.inf, np.nan], np.float32)
    encoder, decoder = link(name)
    result = decoder.decode(encoder.encode(values, step=0), step=0)
    if ENTRIES[name].lossless:
        assert result.tobytes() == values.tobytes()
    else:
        assert np.isnan(result[-1])
        finite = np.concatenate([result[:7], decoder.decode(encoder.encode(values[:7], step=0), step=0)])
        assert name.startswith(("mx", "fp8")) or np.isfinite(finite).all()


@EVERY
def test_codec_link_resumes_bit_for_bit(name: str, seed: int) -> None:
    random, codec, ends = np.random.default_rng(seed), ENTRIES[name], link(name)
    encoder, decoder = ends
    for step in (1, 4, 1):
        decoder.decode(encoder.encode(drawn(random, codec, 2000), step=step), step=step)
    tokens, states = [end.snapshot() for end in ends], [end.state_dict() for end in ends]
    copies = copy.deepcopy(ends), pickle.loads(pickle.dumps(ends))
    kept = crc(states)
    values = [drawn(random, codec, 2000) for _ in range(2)]
    frames = [encoder.encode(one, step=1) for one in values]
    results = [decoder.decode(frame, step=1) for frame in frames]
    fresh = link(name)
    for end, state in zip(fresh, states, strict=True):
        end.load_state_dict(copy.deepcopy(state))
    for end, token in zip(ends, tokens, strict=True):
        end.restore(token)
    for one, other in (ends, fresh, *copies):
        assert [one.encode(value, step=1) for value in values] == frames
        assert all(np.array_equal(other.decode(f, step=1), r) for f, r in zip(frames, results, strict=True))
    assert crc(states) == kept
    for damaged in ({}, {**states[0], "more": 1}, None):
        with pytest.raises(ConfigError, match="state"):
            fresh[0].load_state_dict(damaged)
        assert crc(fresh[0].state_dict()) == crc(encoder.state_dict())


@EVERY
def test_codec_refuses_a_frame_out_of_place(name: str, seed: int) -> None:
    random, codec, (encoder, decoder) = np.random.default_rng(seed), ENTRIES[name], link(name)
    values = [drawn(random, codec, 40) for _ in range(3)]
    first, second, third = (encoder.encode(one, step=1) for one in values)
    decoder.decode(first, step=1)
    before = crc(decoder.state_dict())
    other = ENTRIES["int16" if name == "int32" else "int32"].make_encoder().encode(np.arange(40), step=1)
    for frame, step, text in (
        (first, 1, "sequence 0, expected 1"), (third, 1, "sequence 2, expected 1"), (other, 1, "codec"),
        (second, 2, "step 1, expected 2"), ("text", 1, "contiguous bytes"), (b"", 1, "truncated"),
    ):  # fmt: skip
        with pytest.raises(FrameError, match=text):
            decoder.decode(frame, step=step)
        assert crc(decoder.state_dict()) == before
    for frame, wanted in ((second, values[1]), (third, values[2])):
        assert decoder.decode(frame, step=1).shape == wanted.shape


@EVERY
def test_codec_tells_damage_and_keeps_its_state(name: str, seed: int) -> None:
    random, codec, (encoder, decoder) = np.random.default_rng(seed), ENTRIES[name], link(name)
    decoder.decode(encoder.encode(drawn(random, codec, 50), step=1), step=1)
    frame, before = encoder.encode(drawn(random, codec, 50), step=1), crc(decoder.state_dict())
    for hurt in damages(bytes(frame)):
        with pytest.raises(FrameError):
            decoder.decode(hurt, step=1)
    assert crc(decoder.state_dict()) == before
    decoder.decode(frame, step=1)


BAD_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"values": np.zeros((3, 3), np.int32)}, ValueError, r"1-D arrays, got shape \(3, 3\); use \.ravel"),
    ({"values": np.zeros(3, bool)}, TypeError, "carries (integers|float32 values), got bool"),
    ({"step": -1}, ValueError, "step"),
    ({"step": 1 << 16}, ValueError, "step"),
    ({"chunk": 1 << 16}, ValueError, "does not fit its place"),
    ({"sub": 256}, ValueError, "does not fit its place"),
]
BAD_INTEGERS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"values": np.zeros(3, np.float32)}, TypeError, "quantise the tensor first"),
    ({"values": np.array([1 << 40])}, ValueError, "more than 32 signed bits"),
    ({"values": np.array([8]), "width": 4}, ValueError, "more than 4 signed bits"),
    ({"width": 33}, ValueError, "width is 1 to 32 bits, got 33"),
    ({"width": 0}, ValueError, "width is 1 to 32 bits, got 0"),
]


@EVERY
def test_codec_refuses_arguments(name: str) -> None:
    codec, (encoder, _) = ENTRIES[name], link(name)
    good = {"values": np.zeros(3, np.int32 if codec.domain == "int" else np.float32), "step": 0}
    more = (
        BAD_INTEGERS if codec.domain == "int" else [({"values": np.zeros(3, np.int32)}, TypeError, "float32")]
    )
    before = crc(encoder.state_dict())
    for changes, kind, text in BAD_ARGUMENTS + more:
        with pytest.raises(kind, match=text):
            encoder.encode(**good | changes)
        assert crc(encoder.state_dict()) == before, text


@pytest.mark.parametrize("name", INDEX_CODECS)
def test_index_codec_returns_positions_and_tells_damage(name: str, seed: int) -> None:
    random, ends = np.random.default_rng(seed), (make_index(name), make_index(name))
    for size in (0, 1, 7, 8, 64, 900):
        for share in (0, 0.03, 0.4, 1):
            positions = np.flatnonzero(random.random(size) < share)
            positions.flags.writeable = False
            stream = ends[0].encode(positions, size)
            for hurt in damages(stream.tobytes(), every=1 if size < 9 else 7):
                with pytest.raises(FrameError):
                    ends[1].decode(np.frombuffer(hurt, np.uint8), size)
            result = ends[1].decode(stream, size)
            assert result.dtype == np.int64
            assert result.tolist() == positions.tolist()


@pytest.mark.parametrize("name", INDEX_CODECS)
@pytest.mark.parametrize(
    ("positions", "size", "kind", "text"),
    [
        (np.array([3, 3]), 5, ValueError, "positions ascend and lie in 0 to 4"),
        (np.array([4, 3]), 5, ValueError, "positions ascend and lie in 0 to 4"),
        (np.array([-1]), 5, ValueError, "positions ascend and lie in 0 to 4"),
        (np.array([5]), 5, ValueError, "positions ascend and lie in 0 to 4"),
        (np.array([1], np.int32), 5, ValueError, "positions are 1-D int64, got 1-D int32"),
        (np.array([1]), (1 << 32) + 1, ConfigError, "split the tensor"),
    ],
)
def test_index_codec_refuses_arguments(name: str, positions: Any, size: int, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        make_index(name).encode(positions, size)


def _messages() -> dict[str, tuple[bytes, Callable[[Any], Any]]]:
    """Return messages that describe themselves, and who decodes them."""
    random = np.random.default_rng(5)
    base = {"a": random.integers(0, 99, 700, np.uint16), "b": random.normal(size=(9, 9)).astype(np.float32)}
    few = {key: value.copy() for key, value in base.items()}
    for value in few.values():
        value.reshape(-1)[::50] += 1
    positions = np.sort(random.choice(8192, 128, replace=False))
    codes = random.choice(np.array([-2, -1, 1, 2], np.int8), 128)
    every = {key: value + 1 for key, value in base.items()}
    pseudos = {
        "floats": pseudo.encode(random.normal(size=(30, 40)).astype(np.float32)),
        "sparse": pseudo.encode((positions, codes), shape=(2, 4096)),
        "uint8": pseudo.encode(random.integers(0, 255, 300, np.uint8)),
        "empty": pseudo.encode(np.empty((0, 3), np.int16)),
    }  # fmt: skip
    return {
        **{f"pseudo, {name}": (data, pseudo.decode) for name, data in pseudos.items()},
        "floats": (floats.encode(random.normal(size=400).astype(np.float32)), floats.decode),
        "delta, few": (delta.encode(few, base), lambda data: delta.decode(data, base)),
        "delta, all": (delta.encode(every, base), lambda data: delta.decode(data, base)),
    }  # fmt: skip


MESSAGES = _messages()


@pytest.mark.parametrize("name", MESSAGES)
def test_message_tells_damage(name: str, seed: int) -> None:
    data, decode = MESSAGES[name]
    decode(data)
    hurts = list(damages(bytes(data)))
    for index in np.random.default_rng(seed).choice(len(hurts), min(500, len(hurts)), replace=False):
        with pytest.raises((FrameError, WrongBaseError)):
            decode(hurts[index])
    for wrong in (data + b"\0", b"", "text", 5, data[:HEADER_BYTES]):
        with pytest.raises(FrameError):
            decode(wrong)
    for other, (foreign, _) in MESSAGES.items():
        if other.partition(",")[0] != name.partition(",")[0]:
            with pytest.raises((FrameError, WrongBaseError)):
                decode(foreign)
