"""The baseline codecs: exact round trips, honest sizes, and no payload that a decoder cannot survive."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any, cast

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from needs import needs
from oscar.coding.asc import Encoder
from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.coding.asc.reference import ReferenceCoder
from oscar.coding.codec import FramedEncoder
from oscar.coding.frame import MAX_COUNT
from oscar.coding.plain import Zstd
from oscar.coding.registry import codec_names, make_codec
from oscar.errors import FrameError, MissingExtraError
from oscar_studies.codecs.atalanta import MAX_GROUPS, Atalanta, AtalantaDp
from oscar_studies.codecs.atalanta_kernels import optimal_search, released_search
from oscar_studies.codecs.blocks import histogram, quantise
from oscar_studies.codecs.mx import E4M3

LOSSLESS = ["int32", "atalanta", "atalanta-dp", "rans0", "zstd", "constriction"]
CLIPPING, FEW_BITS = ["bf16", "fp16", "int8"], ["mxfp8", "mxfp6", "mxfp4", "fp8-rows"]
BASELINES = [
    "fp32", "bf16", "fp16", "int16", "int32", "int8", "atalanta", "atalanta-dp", "rans0", "zstd",
    "constriction", *FEW_BITS,
]  # fmt: skip
QUICK = settings(max_examples=60)


def codec(name: str) -> Any:
    """Return the payload codec behind a registry entry."""
    return cast(FramedEncoder, make_codec(name).make_encoder()).codec


def laplace(sigma: float, count: int, seed: int = 0) -> np.ndarray:
    """Return rounded Laplace values, the shape of quantised gradients."""
    return np.rint(np.random.default_rng(seed).laplace(0, sigma / 2**0.5, count)).astype(np.int32)


def entropy_bytes(values: np.ndarray) -> float:
    """Return the order-0 entropy of all values, which no static order-0 code undercuts."""
    counts = np.unique(values, return_counts=True)[1]
    return float((counts * np.log2(values.size / counts)).sum() / 8)


def test_registry_names_codes_and_counters() -> None:
    entries = {name: make_codec(name) for name in BASELINES}
    assert [entry.name for entry in entries.values()] == list(entries)
    assert [codec(name).code for name in entries] == [*range(1, 12), *range(17, 21)]
    assert {name for name, entry in entries.items() if not entry.lossless} == {*CLIPPING, *FEW_BITS}
    assert [name for name, entry in entries.items() if entry.saturated] == CLIPPING


def test_what_is_coded_and_what_goes_out_at_a_fixed_width() -> None:
    raw = {name for name in codec_names() if not make_codec(name).coded}
    assert raw == {"fp32", "bf16", "fp16", "int16", "int32", "int8", *FEW_BITS}


@pytest.mark.parametrize("name", ["asc", "asc-paper"])
def test_every_asc_has_its_name_and_the_implementation_asked_for(name: str) -> None:
    compiled, reference = (make_codec(name, implementation=kind) for kind in ("compiled", "reference"))
    assert compiled.name == reference.name == name
    encoders = cast(Encoder, compiled.make_encoder()), cast(Encoder, reference.make_encoder())
    assert isinstance(encoders[0].coder, CompiledCoder)
    assert isinstance(encoders[1].coder, ReferenceCoder)
    values = np.rint(np.random.default_rng(2).laplace(0, 6, 3000)).astype(np.int32)
    assert encoders[0].encode(values, step=0) == encoders[1].encode(values, step=0)


def test_int8_clips_and_counts_per_encoder() -> None:
    entry = make_codec("int8")
    first, second = entry.make_encoder(), entry.make_encoder()
    frame = first.encode(np.array([-300, -128, -127, 0, 127, 128], np.int32), step=1)
    assert entry.make_decoder().decode(frame, step=1).tolist() == [-127, -127, -127, 0, 127, 127]
    assert entry.saturated is not None
    share = (173**2 + 2) / (300**2 + 2 * 128**2 + 2 * 127**2)
    assert entry.saturated(first) == (3, pytest.approx(6 * share))
    assert entry.saturated(second) == (0, 0.0)


def test_float_codecs_round_as_they_say() -> None:
    special = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 65504.0, 7e4, 1e-42]
    values = np.concatenate((np.random.default_rng(1).normal(0, 3, 999), special)).astype(np.float32)
    entries = {name: make_codec(name) for name in ("fp32", "bf16", "fp16")}
    encoders = {name: entry.make_encoder() for name, entry in entries.items()}
    out = {n: e.make_decoder().decode(encoders[n].encode(values, step=1), step=1) for n, e in entries.items()}
    np.testing.assert_array_equal(out["fp32"].view(np.uint32), values.view(np.uint32))
    for name, bits, clipped in (("bf16", 8, 2), ("fp16", 11, 3)):
        error = np.abs(out[name][:999] - values[:999])
        assert 0 < error.max() <= np.abs(values[:999]).max() * 2.0**-bits
        np.testing.assert_array_equal(np.isfinite(out[name]), np.isfinite(values))
        count = entries[name].saturated
        assert count is not None
        assert count(encoders[name])[0] == clipped
        assert 0 < count(encoders[name])[1] <= values.size
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF808000], np.uint32).view(np.float32)
    halves = np.frombuffer(codec("bf16").pack(ties, 32), "<u2")
    assert [hex(half) for half in halves] == ["0x3f80", "0x3f82", "0x3f81", "0xbf80"]  # ties go to even


@pytest.mark.parametrize("name", FEW_BITS)
def test_small_floats_are_the_nearest_with_their_block_s_scale(name: str, seed: int) -> None:
    """The oracle tries all codes. Ties go to the even one, what is beyond the largest becomes it."""
    random, small = np.random.default_rng(seed), codec(name)
    size, table = small.block, np.nan_to_num(small.element.magnitudes, nan=np.inf).astype(np.float64)
    values = random.normal(0, 1e-3, 3 * size + 5).astype(np.float32)
    values[size : 2 * size] *= np.float32(1e-30)
    values[-5:] = 0
    payload = small.pack(values, 32)
    assert len(payload) == small.max_payload(values.size, 32)
    again = small.unpack(memoryview(payload), values.size, 32)
    for at in range(0, 3 * size, size):
        block = values[at : at + size].astype(np.float64)
        largest, top = np.abs(block).max(), table[small.element.largest]
        scale = float(np.float32(largest / top))
        if name != "fp8-rows":
            scale = 2.0 ** (np.floor(np.log2(largest)) - np.floor(np.log2(top)))
        scaled = (np.abs(block) / scale).astype(np.float32)  # of which the nearest is taken
        far = np.abs(scaled[:, None].astype(np.float64) - table)
        far[:, ::2] *= 1 - 1e-12
        expected = np.copysign(table[far.argmin(1)] * scale, block)
        np.testing.assert_allclose(again[at : at + size], expected, rtol=1e-6)
    np.testing.assert_array_equal(again[-5:], 0)
    for bad in (np.nan, np.inf):
        values[2] = bad
        again = small.unpack(memoryview(small.pack(values, 32)), values.size, 32)
        np.testing.assert_array_equal(np.isnan(again), np.arange(values.size) < size)


def test_small_floats_are_those_of_torch() -> None:
    needs("torch")
    import torch

    codes = torch.arange(256, dtype=torch.uint8)
    theirs = codes.view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(E4M3.decode(codes.numpy()), theirs)
    values = np.concatenate((theirs[:127], (theirs[:126] + theirs[1:127]) / 2))
    np.testing.assert_array_equal(
        E4M3.encode(values), torch.from_numpy(values).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    )


@pytest.mark.parametrize("sigma", [1, 8, 60])
def test_sizes_stay_near_the_entropy(sigma: float) -> None:
    values = laplace(sigma, 20_000)
    ideal = entropy_bytes(values)
    size = {name: len(codec(name).pack(values, 16)) for name in LOSSLESS[1:]}
    oracle = codec("constriction")
    coded = len(oracle.pack(values, 16)) - oracle.table_bytes
    assert ideal <= coded <= 1.0005 * ideal + 8
    for name, slack in (("rans0", 1.01), ("atalanta-dp", 1.01), ("atalanta", 1.07), ("zstd", 1.35)):
        assert ideal < size[name] < slack * ideal, name


def cost(parts: tuple[np.ndarray, np.ndarray, np.ndarray], row_bits: float = 0.0) -> float:
    """Return the estimated bits of a partition: range entropy at 1 / 1024 or more each, offsets and rows."""
    _, length, mass = parts
    share = np.maximum(mass, mass.sum() / 1024)
    bits = mass * (length + np.log2(mass.sum() / share)) + (share - mass) / np.log(2)
    return float(bits.sum() + row_bits * mass.size)


def test_exact_search_finds_what_brute_force_finds() -> None:
    random = np.random.default_rng(2)
    for row_bits in (0.0, 6.0, 19.0):
        for _ in range(8):
            distinct = np.sort(random.choice(60, 9, replace=False)).astype(np.int64)
            counts = (1 + random.pareto(0.3, 9)).astype(np.int64)
            best = np.inf
            for flags in itertools.product([0, 1], repeat=8):
                edges = [0, *(i + 1 for i, cut in enumerate(flags) if cut), 9]
                pieces = list(itertools.pairwise(edges))
                mass = np.array([counts[a:b].sum() for a, b in pieces])
                length = np.array([int(distinct[b - 1] - distinct[a]).bit_length() for a, b in pieces])
                best = min(best, cost((mass, length, mass), row_bits))
            found = optimal_search(distinct, distinct, counts, row_bits)
            assert cost(found, row_bits) == pytest.approx(best)


def test_released_search_ends_where_rounding_leaves_less_than_no_cost() -> None:
    found: list[Any] = []

    def search() -> None:  # one distinct value costs nothing; 7 and 48 such values once cost less
        for value, count, space in ((1000, 7, 12), (600, 48, 10), (100, 69, 8)):
            found.append(released_search(np.array([value]), np.array([count]), space))

    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    thread.join(30)
    assert [[part.tolist() for part in partition] for partition in found] == [
        [[1000], [0], [7]], [[600], [0], [48]], [[100], [0], [69]]
    ]  # fmt: skip


@pytest.mark.parametrize(("sigma", "count"), [(0.4, 900), (1, 200_000), (40, 20_000), (700, 30_000)])
def test_exact_search_is_never_beaten_by_the_released_one(sigma: float, count: int) -> None:
    values = laplace(sigma, count, seed=5)
    distinct, _ = histogram(values)
    assert (distinct.size > MAX_GROUPS) == (sigma == 700)
    assert (
        len(AtalantaDp().pack(values, 14)) <= len(Atalanta().pack(values, 14)) + 1
    )  # of rounding in the coder


def test_quantised_frequencies_sum_up_and_keep_rare_symbols() -> None:
    random = np.random.default_rng(3)
    for size, total in ((1, 1024), (16, 1024), (2048, 4096), (4096, 4096)):
        counts = (random.pareto(0.6, size) + 1).astype(np.int64)
        counts[random.random(size) < 0.2] = 0
        counts[0] = 1
        shares = np.zeros(size, np.int64)
        quantise(counts, total, shares)
        assert shares.sum() == total
        np.testing.assert_array_equal(shares > 0, counts > 0)


GOLDEN = {  # written once; a change here is a change of format (zstd may change its own)
    "atalanta": "039400880184002d401cb43c540e7e8e884e9c8336be9d04",
    "atalanta-dp": "0312c010a01d5ab30ea8e0082a5b216e1a860c193204",
    "rans0": "0106f25f80003e80e8ff00712cc408b6e7c79d6cea53c7088a0067aa",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_payload_format_is_what_it_was(name: str) -> None:
    values = np.array([0, 1, -1, 0, 0, 2, 0, -3, 0, 0, 0, 1, 0, 0, -1, 0] * 4, np.int32)
    assert codec(name).pack(values, 16).hex() == GOLDEN[name]


def survive(name: str, payload: bytes, count: int, width: int) -> None:
    """Decode any bytes: the right number of values that fit, or FrameError, and nothing else."""
    try:
        values = codec(name).unpack(memoryview(payload), count, width)
    except FrameError:
        return
    assert values.shape == (count,)
    if make_codec(name).domain == "int" and count:
        assert values.dtype == (np.int16 if name == "int16" else np.int32)
        assert -(1 << (width - 1)) <= values.min()
        assert values.max() < 1 << (width - 1)


@QUICK
@given(st.data())
def test_any_payload_decodes_or_raises_frame_error(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(BASELINES))
    values = laplace(data.draw(st.sampled_from([0.2, 3, 50])), 600)
    entry = codec(name)
    good = entry.pack(values.astype(np.float32) if entry.domain == "float" else values, 16)
    payload = bytearray(good)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.one_of(st.integers(0, 30), st.integers(0, len(payload) - 1)))
        payload[place % len(payload)] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.one_of(st.just(len(payload)), st.integers(0, len(payload))))
    count = data.draw(st.sampled_from([600, 600, 0, 1, 599, 601, 70_000, MAX_COUNT]))
    survive(name, bytes(payload[:cut]), count, data.draw(st.sampled_from([16, 16, 1, 8, 32])))
    survive(name, data.draw(st.binary(max_size=80)), count, 16)


@pytest.mark.parametrize("name", BASELINES)
def test_forged_count_raises_before_it_allocates(name: str) -> None:
    payload = codec(name).pack(
        np.zeros(100, np.float32 if make_codec(name).domain == "float" else np.int32), 16
    )
    for count in (MAX_COUNT, 10_000_000):
        with pytest.raises(FrameError, match=f"{count}|{4 * count}"):
            codec(name).unpack(memoryview(payload), count, 16)
    for cut in range(len(payload)):
        with pytest.raises(FrameError):
            codec(name).unpack(memoryview(payload)[:cut], 100, 16)


def test_zstd_frame_may_not_announce_its_size() -> None:
    bomb = b"\1" + zstandard.ZstdCompressor(write_content_size=True).compress(bytes(1 << 20))
    with pytest.raises(FrameError, match="its own size"):
        Zstd().unpack(memoryview(bomb), 1 << 20, 16)
    short = b"\1" + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    with pytest.raises(FrameError, match="does not open"):
        Zstd().unpack(memoryview(short), 1000, 16)


def test_missing_oracle_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "constriction", None)
    with pytest.raises(MissingExtraError, match=r"\[peers\]"):
        codec("constriction").pack(np.zeros(3, np.int32), 8)
