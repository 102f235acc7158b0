"""ASC: reference, compiled twin and decoders agree bit for bit, and nothing else gets through."""

from __future__ import annotations

import argparse
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscar.coding.asc import AscParams, Decoder, Encoder, make_coder, max_frame
from oscar.coding.asc import reference as ref
from oscar.coding.asc import table_kernels as tk
from oscar.coding.asc.params import (
    BASE,
    COUNT_STEP,
    EXTRA,
    PRIOR,
    PROB_BITS,
    RCP_SHIFT,
    STATE_BITS,
    STATE_LOW,
    WEIGHT,
    WORD_BITS,
    cut_row,
    epochs,
    is_counted,
    max_words,
    raw_bytes,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.coding.frame import HEADER_BYTES, unpack_frame
from oscar.errors import FrameError
from oscar.trials import mutate

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
SMALL = AscParams(block_log2=10, interval_log2=10)


@st.composite
def parameters(draw: st.DrawFn) -> AscParams:
    """Any parameters with blocks that the reference gets through quickly."""
    block = draw(st.integers(10, 12))
    return AscParams(
        block_log2=block,
        interval_log2=draw(st.integers(10, block)),
        context=draw(st.sampled_from(["none", "position", "neighbour", "both"])),
        tables=draw(st.sampled_from(["step", "pooled"])),
        map=draw(st.sampled_from(["learned", "fixed"])),
    )


@st.composite
def arrays(draw: st.DrawFn, *, limit: int = 3000) -> tuple[np.ndarray, int]:
    """Values and the width they fit: stretches of noise of any size, of constants and of extremes."""
    width = draw(st.integers(8, 32))
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    left = draw(st.sampled_from([0, 1, 2, 11, 12, 13, 100, 1024, 1025, limit]))
    pieces = [np.zeros(0)]
    while left:
        count = min(left, draw(st.sampled_from([1, 30, 1024, 2000])))
        left -= count
        scale, level = 2.0 ** draw(st.integers(-3, width)), draw(st.integers(low, high))
        match draw(st.sampled_from(["noise", "noise", "uniform", "constant", "extremes"])):
            case "noise":
                pieces.append(random.laplace(0, scale, count))
            case "uniform":
                pieces.append(random.uniform(low, high, count))
            case "constant":
                pieces.append(np.full(count, float(level)))
            case _:
                pieces.append(random.choice([low, high, 0.0], count, p=[0.02, 0.02, 0.96]))
    return np.clip(np.rint(np.concatenate(pieces)), low, high).astype(np.int32), width


def same_state(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two state_dicts hold the same."""
    if a["fingerprint"] != b["fingerprint"] or a["states"].keys() != b["states"].keys():
        return False
    return all(
        np.array_equal(a["states"][k][f], b["states"][k][f]) for k in a["states"] for f in a["states"][k]
    )


def reseal(frame: bytes | bytearray) -> bytes:
    """Make length and CRC-32 of a forged frame right."""
    forged = bytearray(frame)
    mutate.reseal(forged)
    return bytes(forged)


def lcg(count: int, seed: int, bits: int, fold: int = 1) -> np.ndarray:
    """Numbers from a generator that no library can change: products of `fold` draws, signed."""
    out, x = [], seed
    for _ in range(count):
        value = 1.0
        for _ in range(fold):
            x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
            value *= (x >> 40) / 2**24
        out.append(int(value * 2**bits) * (-1 if x >> 63 else 1))
    return np.array(out, np.int32)


# ---------------------------------------------------------------------------------------- equality


@settings(SETTINGS, max_examples=150)
@given(parameters(), st.lists(arrays(), min_size=1, max_size=3), st.booleans(), st.integers(0, 2**32))
def test_reference_equals_compiled_equals_what_comes_back(
    params: AscParams, messages: list[tuple[np.ndarray, int]], with_context: bool, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    encoders = Encoder(params, implementation="reference"), Encoder(params)
    decoders = Decoder(params), Decoder(params, implementation="reference")
    for values, width in messages:
        context = draw.integers(0, 16, values.size) if with_context else None
        slow, fast = (e.encode(values, step=2, context=context, width=width) for e in encoders)
        assert slow == fast
        assert len(fast) <= max_frame(params, values.size, width)
        for decoder in decoders:
            decoded = decoder.decode(fast, step=2, context=context)
            assert decoded.dtype == np.int32
            np.testing.assert_array_equal(decoded, values)
        states = [end.state_dict() for end in (*encoders, *decoders)]
        assert all(same_state(states[0], state) for state in states[1:])


@settings(SETTINGS, max_examples=250)
@given(parameters(), arrays(limit=300), st.integers(0, 2**32), st.booleans())
def test_forged_frames_give_values_or_frame_errors_and_both_decoders_agree(
    params: AscParams, message: tuple[np.ndarray, int], seed: int, warm: bool
) -> None:
    values, width = message
    encoder = Encoder(params)
    first = encoder.encode(values, step=0, width=width)
    second = encoder.encode(values[::-1], step=0, width=width)
    r = random.Random(seed)
    for _ in range(8):
        forged = bytearray(second if warm else first)
        mutate.MUTATIONS[r.randrange(len(mutate.MUTATIONS))](r, forged, first)
        mutate.reseal(forged)
        if len(forged) >= HEADER_BYTES and struct.unpack_from("<I", forged, 12)[0] > 5000:
            continue  # the reference would take its time
        outcomes: list[Any] = []
        for implementation in ("compiled", "reference"):
            decoder = Decoder(params, implementation=implementation)
            if warm:
                decoder.decode(first, step=0)
            before = decoder.state_dict()
            try:
                outcomes.append(decoder.decode(bytes(forged), step=0).tolist())
            except FrameError:
                outcomes.append("error")
                assert same_state(before, decoder.state_dict())
        assert outcomes[0] == outcomes[1]


def test_large_frame_of_many_blocks() -> None:
    draw = np.random.default_rng(5)
    level = np.exp(draw.normal(0, 1.5, 200_003))
    values = np.rint(draw.laplace(0, level)).astype(np.int32)
    context = np.minimum(15, np.maximum(0, 6 + np.log2(level))).astype(np.uint8)
    encoder, decoder = Encoder(), Decoder()
    sizes = []
    for _ in range(2):
        frame = encoder.encode(values, step=7, context=context)
        np.testing.assert_array_equal(decoder.decode(frame, step=7, context=context), values)
        sizes.append(len(frame))
    assert same_state(encoder.state_dict(), decoder.state_dict())
    assert sizes[1] < sizes[0]  # map and tables were learnt
    assert sizes[1] < len(Encoder(AscParams(context="none")).encode(values, step=7)) * 0.95


def test_any_integer_array_is_taken() -> None:
    values = np.array([3, 0, 7, 120, 5, 1] * 40)
    expected = Encoder(SMALL).encode(values.astype(np.int32), step=0)
    frozen = values.astype(np.int32)
    frozen.flags.writeable = False
    for variant in (values, values.astype(np.uint8), values.astype(">i2"), frozen, np.repeat(values, 2)[::2]):
        assert Encoder(SMALL).encode(variant, step=0) == expected
    np.testing.assert_array_equal(Decoder(SMALL).decode(expected, step=0), values)


# ------------------------------------------------------------------------------------ golden words

CODED = lcg(200, 1, 5, 2)
CLASSES = np.arange(200) * 7 % 16
PEAKS = np.where(np.arange(60) % 30 == 7, -32768, 1).astype(np.int32)
WIDE = np.where(np.arange(99) % 40 == 7, -(2**31), lcg(99, 2, 4)).astype(np.int32)
# The second costs more than 4.5 bits a value in words where tables were learnt from the first.
NARROW = 32 + np.abs(lcg(1024, 12, 5))
SPREAD = np.where(lcg(1024, 17, 1) == 0, lcg(1024, 13, 4), 64 + np.abs(lcg(1024, 14, 6)))
# Coded, constant, coded, raw for its words alone, coded and constant blocks of SMALL, then the start of one.
ALTERNATING = np.concatenate(
    [
        *(lcg(1024, 11, 6, 2), np.full(1024, 5), NARROW, SPREAD),
        *(lcg(1024, 14, 6, 2), np.full(1024, -1), lcg(500, 15, 6, 2)),
    ]
).astype(np.int32)
TWO_EPOCHS = AscParams(block_log2=12, interval_log2=11)
NEIGHBOUR = AscParams(context="neighbour", tables="pooled", map="fixed")
Message = tuple[np.ndarray, int | None, np.ndarray | None]
Golden = tuple[AscParams, list[Message], list[str]]
# Frames as hex, or length and CRC-32. A change here is another wire format, and docs/asc.md changes with it.
GOLDEN: dict[str, Golden] = {
    "tiny": (
        AscParams(),
        [(lcg(0, 1, 1), None, None), (lcg(5, 9, 3), 32, None)],
        [
            "a1100100000000080000952f0000000000000000b5e066c7",
            "a1100100000000200100952f050000001a000000812cbd68"
            "02000000000001000000fafffffff9ffffff0100000000000000",
        ],
    ),
    "constant": (
        SMALL,
        [(np.full(1500, -7, np.int32), 8, None)],
        ["a1100100000000080000aec4dc0500000c000000ea53c4500100f9ffffff0100f9ffffff"],
    ),
    "raw": (
        SMALL,
        [(lcg(13, 3, 7), 8, None)],
        ["a1100100000000080000aec40d00000014000000788dace70200000000000ea22cb130c03dbaa78490202900"],
    ),
    "coded": (SMALL, [(CODED, 16, CLASSES), (CODED, 16, CLASSES)], ["208:016e340d", "202:7e7912b5"]),
    "escape": (
        SMALL,
        [(PEAKS, 16, None)],
        [
            "a1100100000000100000aec43c00000048000000b4cae0903000000600002f12025012042f12022f1202"
            "2f12022f12022f12025012042f12022f12022f12022f1202c4c1ffc4411cc4411cc4c1ffc4411cc4411c"
            "00000002fc81007f00000000"
        ],
    ),
    "wide escape": (AscParams(context="none"), [(WIDE, 32, None)], ["142:5a9ac66d"]),
    "raw, then shift 7, then 6": (
        SMALL,
        [(lcg(1100, 4, 15), 16, None), (lcg(1100, 5, 14, 2), 16, None)],
        ["2236:b4bd9ae9", "2136:8dd681fb"],
    ),
    "learnt map": (
        TWO_EPOCHS,
        [(lcg(5000, 6, 8, 4), 16, None), (lcg(900, 7, 7, 4), 16, None)],
        ["3918:5e009c6f", "668:71ff130e"],
    ),
    "coded, constant, raw in turns": (
        SMALL,
        [(ALTERNATING, 16, None), (ALTERNATING[4000:], 16, None)],
        ["5614:7913caf7", "2006:3d686307"],
    ),
    "pooled": (NEIGHBOUR, [(CODED, 16, None)], ["208:d6d676b6"]),
}


@pytest.mark.parametrize("implementation", ["reference", "compiled"])
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_words(name: str, implementation: Any) -> None:
    params, messages, golden = GOLDEN[name]
    encoder = Encoder(params, implementation=implementation)
    decoder = Decoder(params, implementation=implementation)
    for (values, width, context), expected in zip(messages, golden, strict=True):
        frame = encoder.encode(values, step=1, width=width, context=context)
        assert (f"{len(frame)}:{zlib.crc32(frame):08x}" if ":" in expected else frame.hex()) == expected
        np.testing.assert_array_equal(decoder.decode(frame, step=1, context=context), values)


def test_golden_words_reach_what_they_are_for() -> None:
    kinds = []
    for params, messages, _ in GOLDEN.values():
        encoder = Encoder(params)
        kinds += [encoder.encode(v, step=1, width=w, context=c)[HEADER_BYTES:][:1] for v, w, c in messages]
    assert Counter(k[0] & 3 for k in kinds if k) == {0: 10, 1: 1, 2: 3}
    encoder = Encoder(TWO_EPOCHS)
    before = TableState.initial(TWO_EPOCHS).cmap
    encoder.encode(GOLDEN["learnt map"][1][0][0], step=1)
    assert not np.array_equal(encoder.states[1].cmap, before)
    frame = Encoder(SMALL).encode(ALTERNATING, step=1, width=16)
    assert block_types(frame, ALTERNATING.size, 16) == [0, 1, 0, 2, 0, 1, 0]


def block_types(frame: bytes, count: int, width: int) -> list[int]:
    """Types of the blocks of a frame coded with SMALL."""
    at, types = HEADER_BYTES, []
    for n in [1024] * (count // 1024) + [count % 1024] * (count % 1024 > 0):
        head = int.from_bytes(frame[at : at + 6], "little")
        coded = 36 + 2 * (-(-12 * (head >> 2 & 0x3FFFFF) // 16) + (head >> 24))
        types.append(head & 3)
        at += 6 + {0: coded, 1: 0, 2: raw_bytes(n, width)}[head & 3]
    assert at == len(frame)
    return types


# --------------------------------------------------------------------------------- links and states


def warm_pair(params: AscParams = SMALL, **options: Any) -> tuple[Encoder, Decoder]:
    """Both ends of a link that has carried two frames of step 3."""
    encoder, decoder = Encoder(params), Decoder(params, **options)
    for seed in (1, 2):
        decoder.decode(encoder.encode(lcg(700, seed, 6, 2), step=3), step=3)
    return encoder, decoder


def test_state_dict_moves_a_link_to_new_ends() -> None:
    encoder, decoder = warm_pair()
    saved, received = encoder.state_dict(), decoder.state_dict()
    frames = [encoder.encode(lcg(90, 8, 6), step=step) for step in (3, 4)]
    new_encoder, new_decoder = Encoder(SMALL), Decoder(SMALL)
    new_encoder.load_state_dict(saved)
    new_decoder.load_state_dict(received)
    assert [new_encoder.encode(lcg(90, 8, 6), step=step) for step in (3, 4)] == frames
    for step, frame in zip((3, 4), frames, strict=True):
        np.testing.assert_array_equal(new_decoder.decode(frame, step=step), lcg(90, 8, 6))
    assert same_state(saved, received)  # a state_dict is a copy
    with pytest.raises(ValueError, match="saved under other parameters"):
        Encoder(AscParams()).load_state_dict(saved)


def test_drift_is_found_before_a_value_is_decoded() -> None:
    encoder, _ = warm_pair()
    other = Decoder(SMALL)
    for seed in (1, 9):  # the second frame was another one
        source = other.state_dict()
        sender = Encoder(SMALL)
        sender.load_state_dict(source)
        other.decode(sender.encode(lcg(700, seed, 6, 2), step=3), step=3)
    with pytest.raises(FrameError, match="drifted apart; reset both"):
        other.decode(encoder.encode(lcg(9, 1, 4), step=3), step=3)


def test_unequal_parameters_fail_at_the_first_frame() -> None:
    frame = Encoder(SMALL).encode(lcg(90, 1, 5), step=0)
    others = [
        AscParams(block_log2=11, interval_log2=10),
        AscParams(block_log2=11, interval_log2=11),
        *(AscParams(block_log2=10, interval_log2=10, context=c) for c in ("none", "position", "neighbour")),
        AscParams(block_log2=10, interval_log2=10, tables="pooled"),
        AscParams(block_log2=10, interval_log2=10, map="fixed"),
    ]
    assert len({p.fingerprint for p in (SMALL, *others)}) == 1 + len(others)
    for params in others:
        with pytest.raises(FrameError, match="parameters differ"):
            Decoder(params).decode(frame, step=0)


def test_lost_repeated_and_misdirected_frames() -> None:
    encoder, decoder = warm_pair()
    first, second = (encoder.encode(lcg(50, seed, 5), step=3) for seed in (3, 4))
    with pytest.raises(FrameError, match="sequence 3, expected 2: lost"):
        decoder.decode(second, step=3)
    with pytest.raises(FrameError, match="step 3, expected 4"):
        decoder.decode(first, step=4)
    decoder.decode(first, step=3)
    with pytest.raises(FrameError, match="sequence 2, expected 3: lost, repeated"):
        decoder.decode(first, step=3)
    np.testing.assert_array_equal(decoder.decode(second, step=3), lcg(50, 4, 5))


@pytest.mark.parametrize("implementation", ["compiled", "reference"])
def test_a_frame_that_fails_leaves_the_state_alone(implementation: Any) -> None:
    encoder, decoder = warm_pair(implementation=implementation)
    frame = encoder.encode(lcg(400, 5, 6, 2), step=3, width=16)
    before = decoder.state_dict()
    damaged = 0
    for at in range(HEADER_BYTES, len(frame), 3):
        forged = bytearray(frame)
        forged[at] ^= 0x55
        try:
            decoder.decode(reseal(forged), step=3)
            decoder.load_state_dict(before)
        except FrameError:
            damaged += 1
        assert same_state(before, decoder.state_dict())
    assert damaged > 30
    for size in (HEADER_BYTES, HEADER_BYTES + 3, HEADER_BYTES + 20, len(frame) - 2, len(frame) - 1):
        with pytest.raises(FrameError, match=r"ends inside a block|cannot hold"):
            decoder.decode(reseal(frame[:size]), step=3)
    with pytest.raises(FrameError, match="follow the last block"):
        decoder.decode(reseal(frame + b"\0"), step=3)
    np.testing.assert_array_equal(decoder.decode(frame, step=3), lcg(400, 5, 6, 2))


def test_announced_counts_are_bounded_by_the_bytes_that_came() -> None:
    frame = bytearray(Encoder(SMALL).encode(np.zeros(1000, np.int32), step=0))
    struct.pack_into("<I", frame, 12, 1 << 28)
    with pytest.raises(FrameError, match="6 bytes cannot hold the 268435456 values"):
        Decoder(SMALL).decode(reseal(frame), step=0)


def test_a_forged_block_of_zeros_is_learnt_from_like_any_coded_block() -> None:
    frame = Encoder(AscParams(block_log2=12)).encode(np.zeros(4096, np.int32), step=0)
    forged = reseal(frame[:HEADER_BYTES] + zero_block(4096))
    ends = [Decoder(AscParams(block_log2=12), implementation=i) for i in ("reference", "compiled")]
    for end in ends:
        np.testing.assert_array_equal(end.decode(forged, step=0), np.zeros(4096, np.int32))
    assert same_state(ends[0].state_dict(), ends[1].state_dict())


@pytest.mark.parametrize("implementation", ["compiled", "reference"])
def test_a_block_with_more_words_than_three_for_eight_values_is_raw_and_refused(implementation: Any) -> None:
    encoder = Encoder(SMALL, implementation=implementation)
    encoder.encode(NARROW, step=0, width=16)
    frame = encoder.encode(SPREAD, step=0, width=16)
    assert block_types(frame, 1024, 16) == [2]
    for n, bits in ((1024, 5), (16, 3), (13, 3)):
        frame = Encoder(SMALL).encode(lcg(n, 1, bits), step=0, width=32)
        head, most = int.from_bytes(frame[HEADER_BYTES : HEADER_BYTES + 6], "little"), max_words(n)
        assert head & 3 == 0
        assert 8 * most <= 3 * n < 8 * (most + 1)
        for words, reason in ((most, "coded words do not end|ends inside"), (most + 1, "more words than")):
            forged = bytearray(frame) + bytes(2000)
            forged[HEADER_BYTES : HEADER_BYTES + 6] = (words << 2 | head >> 24 << 24).to_bytes(6, "little")
            with pytest.raises(FrameError, match=reason):
                Decoder(SMALL, implementation=implementation).decode(reseal(forged), step=0)


@pytest.mark.parametrize("scale", [20, 60, 300, 5000])
def test_a_link_does_not_stay_raw_for_its_words(scale: int) -> None:
    draw = np.random.default_rng(scale)
    for values in (draw.integers(-scale, scale + 1, 2048), np.rint(draw.normal(0, scale, 2048))):
        frame = Encoder(SMALL).encode(values.clip(-32768, 32767).astype(np.int32), step=0, width=16)
        assert block_types(frame, 2048, 16)[1] == 0


def zero_block(n: int) -> bytes:
    """A coded block of `n` zeros in the first context, which no encoder writes (it is constant)."""
    f = ref.frequencies(list(PRIOR))[0]
    words, states = ref.push_all([(lane, f, 0) for _, lane, _ in ref.order(n)])
    packed = sum(w << (WORD_BITS * i) for i, w in enumerate(words))
    flush = sum(x << (STATE_BITS * lane) for lane, x in enumerate(states))
    size = 2 * ((WORD_BITS * len(words) + 15) // 16)
    return (
        (len(words) << 2).to_bytes(6, "little")
        + flush.to_bytes(36, "little")
        + packed.to_bytes(size, "little")
    )


def test_bad_arguments_say_what_was_expected() -> None:
    encoder = Encoder(SMALL)
    values = np.arange(9)
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (TypeError, "quantise the tensor first", lambda: encoder.encode(values / 2, step=0)),
        (ValueError, r"use \.ravel\(\)", lambda: encoder.encode(values.reshape(3, 3), step=0)),
        (ValueError, "more than 32 signed bits", lambda: encoder.encode(values << 40, step=0)),
        (ValueError, "more than 4 signed bits", lambda: encoder.encode(values, step=0, width=4)),
        (ValueError, "width is 1 to 32 bits, got 33", lambda: encoder.encode(values, step=0, width=33)),
        (ValueError, "step is 0 to 65535", lambda: encoder.encode(values, step=-1)),
        (
            ValueError,
            "for each of 9 values",
            lambda: encoder.encode(values, step=0, context=np.zeros(8, int)),
        ),
        (ValueError, "integer class", lambda: encoder.encode(values, step=0, context=np.zeros(9))),
        (ValueError, r"0\.\.15, got 0\.\.16", lambda: encoder.encode(values, step=0, context=values * 2)),
        (ValueError, "does not fit its place", lambda: encoder.encode(values, step=0, chunk=1 << 16)),
        (ValueError, "interval_log2 <= block_log2 <= 16", lambda: AscParams(block_log2=17)),
        (ValueError, "interval_log2=12, block_log2=11", lambda: AscParams(block_log2=11)),
        (ValueError, "context must be one of none, position", lambda: AscParams(context="all")),  # type: ignore[arg-type]
        (ValueError, '"compiled" or "reference"', lambda: make_coder(SMALL, "fast")),  # type: ignore[arg-type]
    ]
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()
    assert not encoder.states  # nothing of this moved the link
    frame = encoder.encode(values, step=0)
    with pytest.raises(FrameError, match="carries 9 values, 8 were expected"):
        Decoder(SMALL).decode(frame, step=0, context=np.zeros(8, np.uint8))
    with pytest.raises(ValueError, match=r"classes are 0\.\.15"):
        Decoder(SMALL).decode(frame, step=0, context=np.full(9, 16))


# ------------------------------------------------------------------------- what docs/asc.md proves


def test_division_by_reciprocal_is_exact_at_every_step() -> None:
    k = np.arange(1, 4097, dtype=np.uint64)
    for f in range(
        1, 4097
    ):  # the quotient is monotone: right on both sides of every multiple, right everywhere
        r, multiple = np.uint64(-(-(1 << RCP_SHIFT) // f)), k * np.uint64(f)
        assert ((((multiple - np.uint64(1)) * r) >> np.uint64(RCP_SHIFT)) == k - np.uint64(1)).all()
        assert (((multiple[:-1] * r) >> np.uint64(RCP_SHIFT)) == k[:-1]).all()


@given(st.lists(st.integers(0, 1023), min_size=16, max_size=16))
def test_frequencies_and_update(raw: list[int]) -> None:
    rows = [list(PRIOR)]
    ref.update(rows, [raw])
    row = rows[0]
    assert min(row) >= 0
    assert max(row) >= 6
    assert 63 <= sum(row) < 1024
    freq = ref.frequencies(row)
    assert sum(freq) == 4096
    assert min(freq) >= 1
    assert max(freq) <= 4081
    compiled = np.empty(16, np.int64)
    tk.frequencies(np.array(row), compiled)
    assert compiled.tolist() == freq


def test_table_widths() -> None:
    scales = [((4080 << PROB_BITS) // (total + 1)) for total in range(63, 1024)]
    assert max(scales) < 1 << 18
    assert sum(PRIOR) == 63
    assert max(12 - np.log2(ref.frequencies(list(PRIOR)))) < 4.42 < 12 * 3 / 8  # a raw block is no trap
    assert all(16 * BASE[s] <= WEIGHT[s] <= 16 * BASE[s] + 8 * (1 << EXTRA[s]) for s in range(15))
    assert [BASE[s] + (1 << EXTRA[s]) for s in range(15)] == list(BASE[1:])
    state = 0
    for _ in range(60):
        state += (WEIGHT[15] - state) >> 3
    assert state == 4088 == WEIGHT[15] - 7


def test_epochs_and_lanes_cover_a_block() -> None:
    assert AscParams().lag_rows == 85
    for params in (AscParams(), SMALL, AscParams(block_log2=14, interval_log2=10)):
        for n in (1, 11, 12, 500, 1023, params.block - 1, params.block):
            cut = epochs(n // 12, params)
            assert (cut[0][0], cut[-1][1]) == (0, n // 12)
            assert [a for a, _ in cut[1:]] == [b for _, b in cut[:-1]]
            assert cut[-1][1] - cut[-1][0] < 1.5 * params.interval_rows
            for first, last in cut:
                row = cut_row(first, last, params)
                assert row == first or row + params.lag_rows == last
                assert first <= row < max(last, 1)
            if n < 2000:
                assert sorted(j for _, _, j in ref.order(n)) == list(range(n))


def test_counted_symbols_are_apart_and_counts_fit_their_width() -> None:
    for n in (1, 11, 12, 1023, 1024, 2048, 4096):
        counted = [i for i, (row, lane, _) in enumerate(ref.order(n)) if is_counted(row, lane)]
        assert {i % 24 for i in counted} <= {0, 2, 4, 6, 8, 10, 13, 15, 17, 19, 21}
        assert min(np.diff(counted), default=2) >= 2
        assert len(counted) >= n * 11 // 24
    largest: dict[tuple[int, int], int] = {}
    for block in range(10, 17):
        full = [is_counted(row, lane) for row, lane, _ in ref.order(1 << block)]
        for interval in range(10, block + 1):
            params = AscParams(block_log2=block, interval_log2=interval)
            cuts = [12 * cut_row(first, last, params) for first, last in epochs((1 << block) // 12, params)]
            ends = [[0, *cuts], [1 << block]]  # the block before ends behind its last cut
            sums = [sum(full[a:b]) for a, b in zip(ends[0], ends[0][1:], strict=False)]
            sums[0] += sum(full[cuts[-1] :])
            for rows in range((1 << block) // 12 + 1):  # a shorter block cuts elsewhere
                at = 12 * cut_row(*epochs(rows, params)[0], params)
                if len(epochs(rows, params)) == 1:
                    sums.append(sum(full[:at]) + sum(full[cuts[-1] :]))
            largest[block, interval] = COUNT_STEP * max(sums)
    assert largest[12, 12] == 3756
    assert max(v for (_, interval), v in largest.items() if interval == 12) <= 5630 < 1 << 13
    assert max(largest.values()) < 61440


def test_coder_states_stay_in_bounds(seed: int) -> None:
    draw = random.Random(seed)
    for f in (1, 2, 3, 4081, 4080, 17, 100):
        for _ in range(300):
            c, x = draw.randrange(4097 - f), draw.randrange(STATE_LOW, 1 << STATE_BITS)
            y = x >> WORD_BITS if x >= f << WORD_BITS else x
            assert f <= y < f << WORD_BITS  # one word was enough, so a symbol never needs two
            new = ((y // f) << PROB_BITS) + c + y % f
            assert STATE_LOW <= new < 1 << STATE_BITS
            back = f * (new >> PROB_BITS) + (new & 4095) - c
            assert back == y
            assert (back < STATE_LOW) == (x != y)


def test_log_eighths(seed: int) -> None:
    for x in range(1, 1 << 16):
        assert ref.log_eighths(x) == (x**8).bit_length() - 1
    draw = random.Random(seed)
    for x in [
        *(1 << k for k in range(45)),
        *(draw.getrandbits(draw.randrange(16, 45)) | 1 for _ in range(3000)),
    ]:
        exact = (x**8).bit_length() - 1
        assert exact - 1 <= ref.log_eighths(x) <= exact
        assert ref.log_eighths(x) == tk.log_eighths(x)


@pytest.mark.parametrize("width", [8, 13, 16, 17, 32])
def test_no_payload_exceeds_its_bound(width: int, seed: int) -> None:
    top = (1 << (width - 1)) - 1
    draw = np.random.default_rng(seed)
    worst = [
        draw.integers(-top - 1, top + 1, 2500),
        np.where(draw.random(2500) < 0.5, top, -top - 1),
        np.where(np.arange(2500) % 2, top, 0),
        np.rint(draw.laplace(0, top / 9, 2500)).clip(-top, top),
    ]
    encoder = Encoder(SMALL)
    for values in worst * 2:
        for count in (1, 2, 5, 48, 1024, 1025, 2500):
            frame = encoder.encode(values[:count].astype(np.int64), step=0, width=width)
            assert len(frame) <= HEADER_BYTES + SMALL.max_payload(count, width)
            assert SMALL.max_payload(count, width) <= 6 * -(-count // 1024) + raw_bytes(count, width) + 2 * (
                count // 1024
            )


# ---------------------------------------------------------------------------------- mutated frames


def test_mutated_frames_are_refused_or_decode(seed: int) -> None:
    args = argparse.Namespace(count=6000, seed=seed, jobs=1, boundscheck=False)
    result = mutate.run(args)
    assert result["ok"], result["faults"]
    assert result["mutations"] == result["returned"] + result["frame_errors"] == 6000
    assert result["returned"] > 300
    assert result["slowest_ms"] < 1000
    assert {"asc coded", "asc raw", "asc constant", "zstd", "frame"} <= result["subjects"].keys()


def test_the_attack_would_notice() -> None:
    frame = Encoder(SMALL).encode(lcg(40, 1, 5), step=0)

    def attack(decode: Callable[[Any], Any], sealed: bool = True) -> dict[str, int]:
        tally: Counter[str] = Counter()
        subject = mutate.Subject("x", (frame, frame), decode, decode, [1, 1])
        mutate._judge(subject, bytearray(frame), sealed, tally)
        return dict(tally)

    def crash(view: memoryview) -> Any:
        raise IndexError("index out of bounds")

    def refuse(view: memoryview) -> Any:
        raise FrameError("damaged")

    assert attack(crash) == {"crashes": 1}
    assert attack(refuse) == {"frame_errors": 1}
    assert attack(lambda view: bytes(view.obj)[len(view)]) == {"over_reads": 1}
    assert attack(lambda view: 1, sealed=False) == {"returned": 1}
    assert attack(lambda view: 2) == {"returned": 1}
    assert attack(lambda view: 2, sealed=False) == {"wrong": 1}
    assert unpack_frame(reseal(frame)) == unpack_frame(frame)


def test_a_new_step_starts_from_the_step_below() -> None:
    values = np.rint(np.random.default_rng(8).laplace(0, 40, 6000)).astype(np.int32)
    params = AscParams(map="fixed")  # a map learnt anew would send these values to other tables
    sender, receiver = Encoder(params), Decoder(params)
    for step in (1, 4):
        receiver.decode(sender.encode(values, step=step), step=step)
    cold, warm = Encoder(params).encode(values, step=5), sender.encode(values, step=5)
    assert len(warm) < len(cold)
    assert np.array_equal(receiver.decode(warm, step=5), values)
    assert sender.states[5].seen == values.size
    assert sender.encode(values, step=0) == Encoder(params).encode(values, step=0)  # nothing below
