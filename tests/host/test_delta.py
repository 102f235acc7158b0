"""Differences from a base: every bit comes back, a wrong base is refused, damage is an error."""

from __future__ import annotations

import contextlib
import importlib.util
import random as plain_random
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needs import needs
from oscar import delta, floats
from oscar.coding.delta import kernels, layout
from oscar.coding.delta.codec import DeltaCoder
from oscar.coding.delta.layout import DENSE, FLOATS, PIECE_HEAD, RAW, SAME, SPARSE, XOR
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame
from oscar.errors import FrameError, WrongBaseError
from oscar_lab.trials.deltas import DTYPES, bits_of, drawn_pair, trial

EXAMPLES = Path(__file__).parents[2] / "examples"
HALF, WHOLE = np.uint16, np.uint32
FROZEN_MODES, FROZEN = (
    [RAW, SAME, SPARSE, SPARSE, DENSE],
    (1194, 3957304927),
)  # bytes of a message, and their CRC-32


def mode_of(data: bytes) -> int:
    """Return the mode of the first piece of a message about one tensor of one dimension."""
    return data[data.index(bytes([0xA1, layout.CODE])) + HEADER_BYTES + 8]


def same_bits(one: Any, other: Any) -> bool:
    """Whether two arrays have the same dtype, shape and bits."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_bit_comes_back_whatever_the_dtype_and_the_changes(seed: int) -> None:
    pair = drawn_pair(seed)
    before = pair.base.tobytes()
    data = delta.encode(pair.new, pair.base)
    assert same_bits(delta.decode(data, pair.base), pair.new)
    assert pair.base.tobytes() == before
    assert len(data) <= most_bytes(pair.new)


def most_bytes(new: np.ndarray) -> int:
    """Return the bound of docs/reference/delta.md for a message about one tensor of one piece."""
    if new.dtype == np.float32:
        return len(floats.encode(new)) + 9 + 4 + len(new.dtype.name)
    return new.nbytes + 33 + 20 + len(new.dtype.name) + 8 * new.ndim


def test_pieces_are_coded_in_the_shortest_way(seed: int) -> None:
    random = np.random.default_rng(seed)
    base = random.normal(0, 0.02, 200_000).astype(np.float32)
    few = base.copy().view(WHOLE)
    few[random.random(few.size) < 0.02] += 1
    steps = (base.view(WHOLE) + random.integers(0, 50, base.size, WHOLE)).view(np.float32)
    apart = random.normal(0, 0.02, base.size).astype(np.float32)
    noise = random.integers(0, 1 << 32, base.size, WHOLE).view(np.float32)
    rows = (base.view(WHOLE) ^ np.tile(random.integers(0, 1 << 32, 1000, WHOLE), 200)).view(np.float32)
    cases = {SAME: base, SPARSE: few.view(np.float32), DENSE: steps, FLOATS: apart, RAW: noise, XOR: rows}
    for mode, new in cases.items():
        data = delta.encode(new, base)
        assert mode_of(data) == mode
        assert same_bits(delta.decode(data, base), new)
        assert len(data) <= most_bytes(new)


def test_two_weights_of_a_hundred_take_less_than_a_quarter_of_a_bit(seed: int) -> None:
    random = np.random.default_rng(seed)
    base = (random.normal(0, 0.02, 1 << 21).astype(np.float32).view(WHOLE) >> 16).astype(HALF)
    changed = random.random(base.size) < 0.023
    new = base + changed * random.choice(np.array([1, -1], np.int16), base.size).view(HALF)
    data = delta.encode(new, base)
    assert 8 * len(data) / base.size < 0.22
    assert same_bits(delta.decode(data, base), new)


def test_messages_are_frozen() -> None:
    """The format cannot change unnoticed: a state dict with a piece of each mode but xor and floats."""
    names = ("uint16", "float32", "int64", "uint8", "int16")
    base = {name: np.arange(200).astype(name) for name in names}
    new = {name: array.copy() for name, array in base.items()}
    new["uint16"][[3, 50]] += np.array([1, 7], np.uint16)
    new["float32"] = (np.arange(200, dtype=WHOLE) * WHOLE(0x9E3779B1)).view(np.float32)
    new["int64"] += 1 << 33
    new["uint8"] += np.uint8(3)
    data = delta.encode(new, base)
    starts = [at for at in range(len(data)) if data[at : at + 2] == b"\xa1\x15"]
    assert [data[at + HEADER_BYTES + 8] for at in starts] == FROZEN_MODES
    assert (len(data), zlib.crc32(data)) == FROZEN


def test_a_wrong_base_is_refused(seed: int) -> None:
    random = np.random.default_rng(seed)
    base = random.normal(size=5000).astype(np.float32)
    data = delta.encode(base * 2, base)
    for place in random.choice(base.size, 20):
        wrong = base.copy()
        wrong.view(WHOLE)[place] ^= WHOLE(1 << int(random.integers(32)))
        with pytest.raises(
            WrongBaseError, match=r"expected a base of digest \w{16}, got \w{16}; give decode"
        ):
            delta.decode(data, wrong)
    swapped = base.copy()
    swapped[:2] = base[1::-1][:2]
    with pytest.raises(WrongBaseError):
        delta.decode(data, swapped)


def test_digests_are_xxh64(seed: int) -> None:
    """Published check values, and lengths around the stripe and the block."""
    words = {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999}
    for text, digest in words.items():
        assert kernels.hash_of(np.frombuffer(text, np.uint8)) == digest
    random = np.random.default_rng(seed)
    coder = DeltaCoder()
    for count in (1, 31, 32, 33, 100, kernels.BLOCK - 1, kernels.BLOCK + 1, 3 * kernels.BLOCK + 5):
        data = random.integers(0, 256, count, np.uint8)
        assert PIECE_HEAD.unpack_from(coder.encode(data, data, floats=False))[0] == kernels.hash_of(data)


def test_forged_pieces_are_refused_or_give_values(seed: int) -> None:
    """CRCs are right, the payload is not: an error or some tensor, never a crash."""
    chooser = plain_random.Random(seed)
    base = np.random.default_rng(seed).normal(size=3000).astype(np.float32)
    pieces = [base + 1, base.copy(), base.view(WHOLE) + WHOLE(3)]
    pieces[1][::40] = 0
    for new in (piece.view(np.float32) for piece in pieces):
        data = delta.encode(new, base)
        start = data.index(bytes([0xA1, layout.CODE]))
        payload = data[start + HEADER_BYTES :]
        for _ in range(300):
            forged = bytearray(payload)
            for _ in range(chooser.randint(1, 4)):
                forged[chooser.randrange(8, min(len(forged), 60))] = chooser.randrange(256)
            if chooser.random() < 0.3:
                del forged[chooser.randrange(8, len(forged)) :]
            frame = pack_frame(Header(layout.CODE, 0, base.size, width=32), forged)
            with contextlib.suppress(FrameError):
                assert delta.decode(data[:start] + frame, base).shape == base.shape


def test_mismatches_of_state_dicts_are_named() -> None:
    base = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.int8)}
    data = delta.encode(base, base)
    others = {
        r"'c' is not in the base": {**base, "c": np.zeros(1)},
        r"'b' is not in the new tensors|'b' is not in the message": {"a": base["a"]},
        r"'a' is float32 \[3, 2\]": {**base, "a": base["a"].T},
        r"'b' is uint8 \[4\]": {**base, "b": base["b"].view(np.uint8)},
    }
    for text, other in others.items():
        with pytest.raises(WrongBaseError, match=text.replace("new tensors", "(new tensors|base)")):
            delta.encode(other, base)
        with pytest.raises(WrongBaseError, match=r"in the base|in the message"):
            delta.decode(data, other)
    with pytest.raises(WrongBaseError, match="two mappings of them, got dict and ndarray"):
        delta.encode(base, base["a"])
    with pytest.raises(WrongBaseError, match="for one tensor, as the base is, got a state dict"):
        delta.decode(data, base["a"])
    with pytest.raises(TypeError, match="'b': expected an array of NumPy or a tensor of PyTorch, got int"):
        delta.encode({"b": 3}, {"b": 3})
    with pytest.raises(TypeError, match="expected a dtype of numbers, got object"):
        delta.encode(np.array([None]), np.array([None]))
    with pytest.raises(TypeError, match="names as keys, got the key 3"):
        delta.encode({3: base["a"]}, {3: base["a"]})


def test_state_dicts_keep_their_order_and_small_tensors_share_pieces(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr("oscar.coding.delta.messages.PIECE", 512)
    shapes = {"z": (700,), "y": (), "x": (0, 3), "w": (5, 7), "v": (300,), "u": (2, 600)}
    base = {name: np.array(random.normal(size=shape), np.float32) for name, shape in shapes.items()}
    base |= {"step": np.array(3), "mask": random.random(900) < 0.5, "wide": random.normal(size=900)}
    new = {name: (array.copy() if array.dtype == bool else array + 1) for name, array in base.items()}
    data = delta.encode(new, base)
    again = delta.decode(data, {name: base[name] for name in reversed(base)})
    assert list(again) == list(reversed(base))
    assert all(same_bits(again[name], np.asarray(new[name])) for name in base)
    words = sum(array.size for array in new.values() if array.dtype == np.float32)
    pieces = -(-words // 512) + -(-900 // 512) + -(-1800 // 512) + 1
    assert data.count(bytes([0xA1, layout.CODE, 0, 0, 0, 0])) == pieces


def test_memory_beside_tensors_and_message_is_bounded() -> None:
    """A sixteenth of the values changes; room for two pieces is little against 64 MB each."""
    base = np.zeros(1 << 25, HALF)
    new = base.copy()
    new[::16] = 1
    delta.decode(delta.encode(new[:100], base[:100]), base[:100])
    tracemalloc.start()
    data = list(delta.encode_pieces(new, base))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(data) == 9
    assert peak < 40e6
    assert sum(map(len, data)) < 5e5


def test_tensors_of_torch_come_back_as_such(seed: int) -> None:
    needs("torch")
    import torch

    random = np.random.default_rng(seed)
    names = ["bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int64", "bool", "complex64"]
    base = {}
    for name in names:
        dtype = getattr(torch, name)
        raw = random.integers(0, 2 if name == "bool" else 256, 40 * 30 * dtype.itemsize, np.uint8)
        base[name] = torch.from_numpy(raw).view(dtype).reshape(40, 30)
    base |= {"scalar": torch.tensor(2.5), "none": torch.zeros(0), "seen": torch.nn.Parameter(torch.ones(3))}
    new = {name: tensor.detach().clone() for name, tensor in base.items()}
    for name, tensor in new.items():
        tensor.reshape(-1).view(torch.uint8)[:1] ^= 1
        new[name] = tensor.t().contiguous().t() if tensor.dim() == 2 else tensor
    again = delta.decode(delta.encode(new, base), base)
    for name, tensor in new.items():
        assert again[name].dtype == tensor.dtype
        assert again[name].shape == tensor.shape
        assert bits_of(again[name]) == bits_of(tensor)
    if torch.cuda.is_available():
        there = {name: tensor.cuda() for name, tensor in base.items()}
        far = delta.decode(delta.encode(new, there), there)
        assert all(tensor.is_cuda for tensor in far.values())
    with pytest.raises(TypeError, match="'w': expected a dense tensor, got the layout"):
        delta.encode({"w": torch.ones(3).to_sparse()}, {"w": torch.ones(3)})


def test_numpy_and_torch_understand_each_other() -> None:
    needs("torch")
    import torch

    base, new = np.arange(9, dtype=np.float32), np.arange(1, 10, dtype=np.float32)
    data = delta.encode(torch.from_numpy(new), base)
    assert torch.equal(delta.decode(data, torch.from_numpy(base)), torch.from_numpy(new))
    assert same_bits(delta.decode(data, base.astype(">f4")), new)


@pytest.mark.skipif(importlib.util.find_spec("ml_dtypes") is None, reason="ml_dtypes is not installed")
def test_dtypes_of_ml_dtypes(seed: int) -> None:
    import ml_dtypes

    random = np.random.default_rng(seed)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        base = random.integers(0, 256, 2000 * dtype.itemsize, np.uint8).view(dtype)
        new = base.copy()
        new.view(np.uint8)[::30] ^= 1
        assert same_bits(delta.decode(delta.encode(new, base), base), new)


def test_the_trial_draws_all_dtypes_and_finds_nothing() -> None:
    assert trial(first=0, pairs=40) == []
    assert {drawn_pair(seed).base.dtype.name for seed in range(300)} == set(DTYPES)


def test_the_example_keeps_three_processes_equal() -> None:
    needs("torch")
    program = [sys.executable, str(EXAMPLES / "weight_sync.py"), "--steps", "3"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [(row[0], row[-1]) for row in rows] == [("broadcast", "equal"), ("files", "equal")]
