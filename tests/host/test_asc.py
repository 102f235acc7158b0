"""ASC: reference, compiled twin and decoders agree bit for bit, and nothing else gets through."""

from __future__ import annotations

import copy
import multiprocessing
import os
import random
import re
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from oscar import cores
from oscar.coding.asc import AscParams, Decoder, Encoder, make_coder, max_frame
from oscar.coding.asc.compiled import coder as compiled
from oscar.coding.asc.link import Implementation
from oscar.coding.asc.params import FORMAT
from oscar.coding.asc.state import TableState
from oscar.coding.frame import HEADER_BYTES
from oscar.errors import ConfigError, FrameError
from oscar_lab.trials._mutations import MUTATIONS, reseal

BOTH: tuple[Implementation, ...] = ("reference", "compiled")
SMALL = AscParams(block_log2=10)
PLAIN = AscParams(context="none", sent_rows=False)
both = pytest.mark.parametrize("implementation", BOTH)


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


def draw_params(dice: np.random.Generator) -> AscParams:
    """Any parameters."""
    return AscParams(
        context=str(dice.choice(["class", "class", "none"])),  # type: ignore[arg-type]
        tables=str(dice.choice(["step", "pooled"])),  # type: ignore[arg-type]
        sent_rows=bool(dice.integers(2)),
        block_log2=int(dice.choice([0, 10, 11, 12, 17])),
    )


def draw_values(dice: np.random.Generator, width: int, most: int) -> np.ndarray:
    """Values of any size that fit a width: noise, outliers, constants, extremes, stretches of zeros."""
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    n = int(
        dice.choice(
            [k for k in (0, 1, 2, 31, 32, 33, 500, 1023, 1024, 1025, 2049, 4097, 5000, 9000) if k <= most]
        )
    )
    x = dice.laplace(0, 2.0 ** dice.uniform(-4, width - 1), n)
    match dice.integers(8):
        case 0:
            x *= dice.random(n) < 0.02
        case 1:
            x[:] = dice.integers(low, high + 1)
        case 2:
            x = np.where(dice.random(n) < 0.01, x * 50, x)
        case 3:
            x[n // 3 :] = 0
        case 4:
            x = dice.uniform(low, high, n)
        case 5:
            x = dice.choice([low, high, 0.0], n, p=[0.02, 0.02, 0.96])
        case 6:
            x[: 2 * n // 3] = 0
    return np.clip(np.rint(x), low, high).astype(np.int64).astype(np.int32)


def same_state(a: Any, b: Any) -> bool:
    """Whether two link ends hold the same."""
    a, b = a.state_dict(), b.state_dict()
    if a["fingerprint"] != b["fingerprint"] or a["states"].keys() != b["states"].keys():
        return False
    return all(
        np.array_equal(a["states"][k][f], b["states"][k][f]) for k in a["states"] for f in a["states"][k]
    )


def forge(frame: bytes, at: int, value: bytes, *, insert: bytes = b"", cut: int | None = None) -> bytes:
    """Return a frame with `value` at `at` of its payload, grown or cut behind; length and CRC-32 right."""
    payload = bytearray(frame[HEADER_BYTES:])
    payload[at : at + len(value)] = value
    forged = bytearray(frame[:HEADER_BYTES] + payload[:cut] + insert)
    reseal(forged)
    return bytes(forged)


# ---------------------------------------------------------------------------------------- equality


def test_reference_equals_compiled_equals_what_comes_back(seed: int) -> None:
    dice = np.random.default_rng(seed)
    for _ in range(120):
        params, step = draw_params(dice), int(dice.integers(9))
        width = int(dice.choice([8, 9, 12, 16, 17, 24, 32]))
        encoders = [Encoder(params, implementation=i) for i in BOTH]
        decoders = [Decoder(params, implementation=i) for i in BOTH]
        with_context = dice.random() < 0.7
        for _ in range(int(dice.integers(1, 4))):
            values = draw_values(dice, width, 5000)
            context = dice.integers(0, 16, values.size) if with_context else None
            slow, fast = (e.encode(values, step=step, context=context, width=width) for e in encoders)
            case = (params, width, step, values.size, with_context)
            assert slow == fast, case
            assert len(fast) <= max_frame(params, values.size, width), case
            for decoder in decoders:
                decoded = decoder.decode(fast, step=step, context=context)
                assert decoded.dtype == np.int32
                np.testing.assert_array_equal(decoded, values, str(case))
            ends: list[Any] = [*encoders, *decoders]
            assert all(same_state(ends[0], end) for end in ends[1:]), case


@both
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_narrow_values_are_taken_as_they_are_and_sums_are_added_in_place(
    dtype: Any, implementation: Implementation, seed: int
) -> None:
    values = draw_values(np.random.default_rng(seed), 8, 4097)
    sender, twin = (Encoder(SMALL, implementation=implementation) for _ in range(2))
    receivers = {kind: Decoder(SMALL, implementation=implementation) for kind in (np.int16, np.int32)}
    for add in (False, True, True):
        frame = sender.encode(values.astype(dtype), step=1, width=8)
        assert frame == twin.encode(values, step=1, width=8)
        for kind, receiver in receivers.items():
            room = np.full(values.size + 20, 99, kind)
            expected = room.copy()
            expected[10:-10] = expected[10:-10] + values if add else values
            assert receiver.decode(frame, step=1, out=room[10:-10], add=add).base is room
            np.testing.assert_array_equal(room, expected)
        frame = sender.encode(values.astype(dtype), step=1, width=8)
        assert frame == twin.encode(values, step=1, width=8)
        for kind, receiver in receivers.items():
            others, room = np.arange(values.size).astype(kind), np.full(values.size + 20, 99, kind)
            expected, before = np.pad(others + values, 10, constant_values=99), others.copy()
            receiver.decode(frame, step=1, out=room[10:-10], add=True, plus=others)
            np.testing.assert_array_equal(room, expected)
            np.testing.assert_array_equal(others, before)


def test_threads_change_no_byte(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "THREAD_VALUES", 1500)
    dice = np.random.default_rng(seed)
    for _ in range(12):
        params, values = draw_params(dice), draw_values(dice, 16, 9000)
        context = dice.integers(0, 16, values.size)
        coder = compiled.CompiledCoder(params, threads=3)
        sender, receiver = Encoder(params, coder=coder), Decoder(params, coder=coder)
        slow = Encoder(params, implementation="reference")
        for _ in range(2):
            frame = sender.encode(values, step=0, context=context)
            assert frame == slow.encode(values, step=0, context=context)
            np.testing.assert_array_equal(receiver.decode(frame, step=0, context=context), values)
        assert same_state(sender, slow)
        assert same_state(receiver, slow)


def test_a_copy_of_a_coder_has_memory_of_its_own() -> None:
    values, coder = lcg(3000, 4, 6), compiled.CompiledCoder(SMALL, threads=2)
    expected = bytes(coder.encode(values, None, 8, TableState.initial()))
    for other in (copy.copy(coder), copy.deepcopy(coder)):
        assert other.threads == 2
        kept = coder.encode(values, None, 8, TableState.initial())
        other.encode(-values, None, 8, TableState.initial())
        assert kept == expected


def test_a_fork_codes_with_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's idle threads do not live on in the child: waiting for them would never end."""
    monkeypatch.setattr(cores, "THREAD_VALUES", 1500)
    values = lcg(9000, 3, 6)
    coder = compiled.CompiledCoder(SMALL, threads=3)
    expected = bytes(coder.encode(values, None, 8, TableState.initial()))

    def child() -> None:
        os._exit(bytes(coder.encode(values, None, 8, TableState.initial())) != expected)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where threads run: that is the point
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
    process.join(60)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0


def test_forged_frames_give_values_or_frame_errors_and_both_decoders_agree(seed: int) -> None:
    dice, r = np.random.default_rng(seed), random.Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(150):
        params, width = draw_params(dice), int(dice.choice([8, 16, 24, 32]))
        sender = Encoder(params)
        ends = [Decoder(params, implementation=i) for i in BOTH]
        values = [draw_values(dice, width, 1100) for _ in range(2)]
        frames = [sender.encode(v, step=0, width=width) for v in values]
        for end in ends:
            end.decode(frames[0], step=0)
        saved, held = ends[0].state_dict(), [dict(end.states) for end in ends]
        for _ in range(6):
            forged = bytearray(frames[1])
            MUTATIONS[r.randrange(len(MUTATIONS))](r, forged, frames[0])
            reseal(forged)
            if len(forged) >= HEADER_BYTES and struct.unpack_from("<I", forged, 12)[0] > 5000:
                continue  # the reference would take its time
            kind, add = (np.int16, np.int32)[int(dice.integers(2))], bool(dice.integers(2))
            room, others = dice.integers(-30000, 30000, (2, values[1].size)).astype(kind)  # a sum may wrap
            plus = others if add and dice.integers(2) else None
            got: list[Any] = []
            for end, before in zip(ends, held, strict=True):
                end.states = dict(before)
                try:
                    got.append(
                        end.decode(bytes(forged), step=0, out=room.copy(), add=add, plus=plus).tolist()
                    )
                except FrameError:
                    got.append(None)
            assert got[0] == got[1], bytes(forged).hex()
            assert same_state(ends[0], ends[1])
            outcomes["refused" if got[0] is None else "values"] += 1
            if got[0] is None:  # nothing has moved
                untouched = Decoder(params)
                untouched.load_state_dict(saved)
                assert same_state(ends[0], untouched)
    assert min(outcomes.values()) > 40, outcomes


def test_large_frames_of_many_blocks(seed: int) -> None:
    draw = np.random.default_rng(seed)
    level = np.exp(draw.normal(0, 1.5, 150_003))
    values = np.rint(draw.laplace(0, level)).astype(np.int32)
    context = np.minimum(15, np.maximum(0, 6 + np.log2(level))).astype(np.uint8)
    for params in (AscParams(), SMALL):
        encoder, decoder = Encoder(params), Decoder(params)
        sizes = []
        for _ in range(2):
            frame = encoder.encode(values, step=7, context=context)
            np.testing.assert_array_equal(decoder.decode(frame, step=7, context=context), values)
            sizes.append(len(frame))
        assert same_state(encoder, decoder)
        assert sizes[1] <= sizes[0] < len(Encoder(PLAIN).encode(values, step=7)) * 0.95
    plain = Encoder(AscParams(sent_rows=False))
    sizes = [len(plain.encode(values, step=7, context=context)) for _ in range(2)]
    assert sizes[1] < sizes[0]  # tables were learnt


def test_a_large_frame_learns_from_half_its_rows() -> None:
    values = np.zeros((1 << 18) + 5000, np.int32)
    values[:40_000], values[-3000:] = lcg(40_000, 7, 4, 3), lcg(3000, 8, 4, 3)
    encoders = [Encoder(AscParams(), implementation=i) for i in BOTH]
    slow, fast = (encoder.encode(values, step=0) for encoder in encoders)
    decoder = Decoder()
    assert slow == fast
    np.testing.assert_array_equal(decoder.decode(fast, step=0), values)
    assert same_state(*encoders)
    assert same_state(encoders[0], decoder)


def test_any_integer_array_is_taken() -> None:
    values = np.array([3, 0, 7, 120, 5, 1] * 40)
    expected = Encoder(SMALL).encode(values.astype(np.int32), step=0)
    frozen = values.astype(np.int32)
    frozen.flags.writeable = False
    for variant in (values, values.astype(np.uint8), values.astype(">i2"), frozen, np.repeat(values, 2)[::2]):
        assert Encoder(SMALL).encode(variant, step=0) == expected
    np.testing.assert_array_equal(Decoder(SMALL).decode(expected, step=0), values)


# ---------------------------------------------------------------------------------- golden frames

ZEROS = np.zeros(1024, np.int32)
FIVE = np.where(np.arange(1024) == 0, 5, 0).astype(np.int32)
# A frame of FIVE with default parameters, bytes as asc.md has them. Its one row that is not 0 rides in
# the start states; what is coded are 32 classes of rows, by a table row that is sent.
SPELT = (
    # frame header: magic and version, codec 16, step 1, chunk 0, sub-frame 0, width 8, sequence 0, checksum
    "a1 10 0100 0000 00 08 0000 {checksum} 00040000 74000000 {crc} "
    # prefix: blocks of 2^12, shift 0, rows sent, no symbol above 4; which: 24, classes of rows of mean 0; its
    # levels: of the eight rows in the sample 15 for the seven of class 0; 12 for the one of class 3, three
    # octaves rarer; 0 for others
    "0c24 00000001 0fc0000000000000 "
    # directory: coded, 4 seed rows, groups 0 to 0, 96 bytes
    "10 00 00 60 00 00 "
    # Frequencies are 898 for class 0, 112 for class 3 behind 900, 1 for others. The first lane starts at
    # 2^16 + 5 and becomes 585 * 1024 + 900 + 21 = 0x092799, others 72 * 1024 + 880 = 0x012370.
    "99" + 31 * " 70" + " 2709" + 31 * " 2301"
)
CODED = lcg(3000, 1, 9, 5)
CLASSES = np.arange(3000) * 7 // 50 % 16
MIXED = np.concatenate(  # constant, coded, raw and half empty blocks of SMALL, and a last row of 20
    [
        np.full(1024, 5),
        lcg(1024, 11, 8, 4),
        lcg(1024, 3, 12),
        lcg(600, 5, 3),
        np.zeros(1448),
        lcg(900, 15, 8, 4),
    ]
).astype(np.int32)
PEAKS = np.where(np.arange(1300) % 300 == 7, -32768, lcg(1300, 2, 4)).astype(np.int32)
WIDE = np.where(np.arange(1300) % 400 == 7, -(2**31), lcg(1300, 2, 4)).astype(np.int32)
Golden = tuple[AscParams, list[tuple[np.ndarray, int | None, np.ndarray | None]], str]
# Lengths and CRC-32 of frames. A change here is another wire format, and asc.md changes with it.
GOLDEN: dict[str, Golden] = {
    "empty": (AscParams(), [(ZEROS[:0], None, None)], "24:2144df1c"),
    "constant": (AscParams(), [(ZEROS - 7, 8, None)], "52:f22872c1"),
    "raw": (SMALL, [(lcg(13, 3, 7), 8, None)], "45:cb3b4639"),
    "coded": (AscParams(), [(CODED, 16, CLASSES), (CODED, 16, CLASSES)], "2420:6281c6df 2287:4871059f"),
    "no rows sent": (
        AscParams(sent_rows=False),
        [(CODED, 16, CLASSES), (CODED, 16, CLASSES)],
        "2587:fc5468ae 2287:4871059f",
    ),
    "paper": (PLAIN, [(CODED, 16, None), (CODED[::-1], 16, None)], "3767:8b7a7415 2258:ba787e22"),
    "pooled": (AscParams(tables="pooled"), [(CODED, 16, CLASSES)], "2420:859c52df"),
    "blocks of all types": (
        SMALL,
        [(MIXED, 16, None), (MIXED[4000:], 16, None)],
        "3709:148a5835 784:a25793bb",
    ),
    "short last blocks": (  # coded though longer than raw; raw, as in 8 bits it would be no longer; raw
        SMALL,
        [(lcg(1174, 3, 4), 8, None), (lcg(1124, 3, 4), 8, None), (lcg(1064, 3, 4), 8, None)],
        "842:291f53c4 764:6d34be0f 724:182d20cb",
    ),
    "wide rows": (AscParams(), [(PEAKS, 16, None), (WIDE, 32, None)], "1030:86c052ea 3135:31aa50cc"),
    "shift": (
        AscParams(),
        [(lcg(1100, 5, 20, 2), 24, None), (lcg(1100, 4, 30), 32, None)],
        "2934:11685a19 4307:be3f42a3",
    ),
    "many blocks": (
        AscParams(),
        [(lcg(40000, 7, 4, 3), 16, np.arange(40000) // 2600)] * 2,
        "15290:abcef7ca 15146:ebc9232b",
    ),
    "sparse": (AscParams(), [(lcg(9000, 8, 5, 12), 16, None)] * 2, "140:e0f4d009 133:67aeec78"),
}


@both
def test_a_frame_spelt_out(implementation: Implementation) -> None:
    frame = Encoder(AscParams(), implementation=implementation).encode(FIVE, step=1, width=8)
    checksum = TableState.initial().checksum(AscParams()).to_bytes(2, "little").hex()
    expected = bytearray.fromhex(SPELT.format(checksum=checksum, crc="00000000"))
    reseal(expected)
    assert frame.hex(" ") == expected.hex(" ")
    assert np.array_equal(Decoder(AscParams(), implementation=implementation).decode(frame, step=1), FIVE)


@both
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frames(name: str, implementation: Implementation) -> None:
    params, messages, golden = GOLDEN[name]
    encoder, decoder = (make(params, implementation=implementation) for make in (Encoder, Decoder))
    words = []
    for values, width, context in messages:
        frame = encoder.encode(values, step=1, width=width, context=context)
        words.append(f"{len(frame)}:{zlib.crc32(frame):08x}")
        np.testing.assert_array_equal(decoder.decode(frame, step=1, context=context), values)
    assert " ".join(words) == golden


def test_golden_frames_reach_what_they_are_for() -> None:
    kinds, shifts, sent = Counter[int](), Counter[int](), 0
    for params, messages, _ in GOLDEN.values():
        encoder = Encoder(params)
        for values, width, context in messages:
            payload = encoder.encode(values, step=1, width=width, context=context)[HEADER_BYTES:]
            prefix, entries = layout(payload, values.size)
            kinds.update(entry & 3 for entry in entries)
            shifts[prefix >> 5 & 31] += 1
            sent += prefix >> 10 & 1
    assert kinds.keys() == {0, 1, 2}
    assert len(shifts) >= 3
    assert 3 <= sent < 15
    payload = Encoder(SMALL).encode(MIXED, step=1, width=16)[HEADER_BYTES:]
    _, entries = layout(payload, MIXED.size)
    assert [entry & 3 for entry in entries] == [2, 0, 1, 0, 2, 0]


def layout(payload: bytes, count: int) -> tuple[int, list[int]]:
    """Return prefix and directory of a payload."""
    if not payload:
        return 0, []
    prefix = int.from_bytes(payload[:2], "little")
    at = 2 + (4 + 8 * int.from_bytes(payload[2:6], "little").bit_count() if prefix >> 10 & 1 else 0)
    blocks = -(-count >> (prefix & 31))
    return prefix, [int.from_bytes(payload[at + 6 * i :][:6], "little") for i in range(blocks)]


# ---------------------------------------------------------------------------------------- refusals


FRAMES: dict[str, tuple[np.ndarray, int]] = {
    "five": (FIVE, 8),  # prefix at 0, mask 2, row 6, entry 14, low bytes 20, others 52; alone with rows sent
    "constant": (ZEROS + 3, 8),  # entry at 2
    "raw": (lcg(13, 3, 7), 12),  # entry at 2: 8 bits a value, 13 bytes
    "empty": (ZEROS[:0], 8),
}
# Of which frame, what is put where, what is added at the end or where it is cut, and what the reference says.
REFUSED: list[tuple[str, int, str, dict[str, Any], str]] = [
    ("five", 0, "09 24", {}, "payload starts with 0x2409, which no sender writes"),
    ("five", 0, "12 24", {}, "payload starts with 0x2412"),  # blocks of 2^18
    ("five", 0, "2c 24", {}, "payload starts with 0x242c"),  # a shift of 1, for 8 bits
    ("five", 0, "0c a4", {}, "payload starts with 0xa40c"),
    ("five", 14, "13", {}, "a block's entry is 0x000060000013"),  # type 3
    ("five", 14, "18", {}, "a block's entry is 0x000060000018"),  # six seed rows
    ("five", 14, "30", {}, "a block's entry is 0x000060000030"),  # first group behind the last
    ("five", 14, "10 10", {}, "a block's entry is 0x000060001010"),  # a last group that the block has not
    ("five", 14, "10 00 08", {}, "a block's entry is 0x000060080010"),
    ("five", 17, "5f", {}, "a coded block of 95 bytes"),
    ("five", 17, "61", {}, "payload ends inside a block"),
    ("five", 18, "04", {}, "a coded block of 1120 bytes: shorter than"),  # raw it takes 1,024 at most
    ("five", 52, "ff 00", {}, "a coder state is below 2^16"),
    ("five", 54, "0b 02", {}, "a coder state does not end where it started"),
    ("five", 14, "00", {}, "a block's bytes end before its values do"),  # no row rides, so the first is coded
    ("five", 21, "d3", {}, "a block's bytes end before its values do"),  # a class of frequency 1
    ("five", 2, "00 00 00 00", {"cut": 6}, "bytes cannot hold"),
    ("five", 0, "", {"cut": 40}, "payload ends inside a block"),
    ("five", 0, "", {"cut": 10}, "payload ends inside a block"),
    ("five", 0, "", {"insert": b"\0"}, "1 bytes follow the last block"),
    ("constant", 2, "06", {}, "a constant block of 3, which does not fit 8 bits or its entry"),
    ("constant", 4, "80 00", {}, "a constant block of 128"),
    ("constant", 0, "", {"insert": b"\0"}, "1 bytes follow the last block"),
    ("raw", 2, "01", {}, "a raw block of 13 bytes and 0 bits a value, for 13 values of 12"),
    ("raw", 2, "35", {}, "a raw block of 13 bytes and 13 bits"),
    ("raw", 3, "01", {}, "a raw block of 13 bytes and 8 bits"),
    ("raw", 5, "0c", {}, "a raw block of 12 bytes and 8 bits"),
    ("raw", 0, "", {"cut": 20}, "payload ends inside a block"),
    ("empty", 0, "", {"insert": b"\0"}, "1 bytes follow the last block"),
]


def said(reason: str, implementation: Implementation) -> str | None:
    """What an error must match: the compiled twin refuses the same, in its own words."""
    return re.escape(reason) if implementation == "reference" else None


@both
@pytest.mark.parametrize("case", REFUSED, ids=[f"{of} {at} {value}" for of, at, value, _, _ in REFUSED])
def test_a_forged_frame_is_refused_and_moves_nothing(case: Any, implementation: Implementation) -> None:
    of, at, value, more, reason = case
    values, width = FRAMES[of]
    params = AscParams(sent_rows=of == "five")
    frame = Encoder(params, implementation=implementation).encode(values, step=3, width=width)
    decoder = Decoder(params, implementation=implementation)
    with pytest.raises(FrameError, match=said(reason, implementation)):
        decoder.decode(forge(frame, at, bytes.fromhex(value), **more), step=3)
    assert not decoder.states
    np.testing.assert_array_equal(decoder.decode(frame, step=3), values)


@both
def test_bytes_that_are_left_over_are_refused(implementation: Implementation) -> None:
    payload = Encoder(AscParams()).encode(FIVE, step=3, width=8)
    grown = forge(payload, 17, b"\x61")[:HEADER_BYTES]
    body = payload[HEADER_BYTES:]
    grown += body[:17] + b"\x61" + body[18:20] + b"\7" + body[20:]
    with pytest.raises(FrameError, match=said("1 bytes of a block are left over", implementation)):
        Decoder(AscParams(), implementation=implementation).decode(forge(grown, 0, b""), step=3)


def test_announced_counts_are_bounded_by_the_bytes_that_came() -> None:
    frame = bytearray(Encoder(SMALL).encode(ZEROS, step=0))
    struct.pack_into("<I", frame, 12, 1 << 28)
    with pytest.raises(FrameError, match="8 bytes cannot hold the 268435456 values"):
        Decoder(SMALL).decode(forge(bytes(frame), 0, b""), step=0)


# --------------------------------------------------------------------------------- links and states


def warm_pair(params: AscParams = SMALL) -> tuple[Encoder, Decoder]:
    """Both ends of a link that has carried two frames of step 3."""
    encoder, decoder = Encoder(params), Decoder(params)
    for seed in (1, 2):
        decoder.decode(encoder.encode(lcg(1200, seed, 8, 4), step=3), step=3)
    return encoder, decoder


def test_a_state_of_other_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="saved under other parameters"):
        Encoder(AscParams(tables="pooled")).load_state_dict(warm_pair()[0].state_dict())


def test_the_format_before_is_refused_by_name() -> None:
    frame = bytearray(Encoder().encode(FIVE, step=0))
    frame[10:12] = TableState.initial().checksum(AscParams(), FORMAT - 1).to_bytes(2, "little")
    reseal(frame)
    with pytest.raises(FrameError, match=f"expected a frame of ASC's format {FORMAT}, got one of format"):
        Decoder().decode(bytes(frame), step=0)
    saved = Encoder().state_dict() | {"fingerprint": AscParams().fingerprint_of(FORMAT - 1)}
    with pytest.raises(ConfigError, match=f"format {FORMAT}, got that of format {FORMAT - 1}: start"):
        Encoder().load_state_dict(saved)


def test_drift_is_found_before_a_value_is_decoded() -> None:
    encoder, decoder = warm_pair()
    other = Encoder(SMALL)
    for seed in (1, 9):  # the second frame was another one
        other.encode(lcg(1200, seed, 8, 4), step=3)
    with pytest.raises(FrameError, match="drifted apart; reset both"):
        decoder.decode(other.encode(lcg(9, 1, 4), step=3), step=3)
    assert same_state(encoder, decoder)


def test_ends_need_context_and_tables_alike_and_nothing_else() -> None:
    values = lcg(3000, 1, 7, 4)
    frame = Encoder(SMALL).encode(values, step=0)
    others = [
        AscParams(context="none"),
        AscParams(tables="pooled"),
        AscParams(context="none", tables="pooled"),
    ]
    assert len({p.fingerprint for p in (SMALL, *others)}) == 4
    for params in others:
        with pytest.raises(FrameError, match="parameters differ or the ends drifted apart"):
            Decoder(params).decode(frame, step=0)
    for params in (AscParams(), AscParams(sent_rows=False, block_log2=17)):  # a sender's own business
        np.testing.assert_array_equal(Decoder(params).decode(frame, step=0), values)


def test_a_new_step_starts_from_the_step_below() -> None:
    values = np.rint(np.random.default_rng(8).laplace(0, 40, 6000)).astype(np.int32)
    params = AscParams(sent_rows=False)
    sender, receiver = Encoder(params), Decoder(params)
    for step in (1, 4):
        receiver.decode(sender.encode(values, step=step), step=step)
    cold, warm = Encoder(params).encode(values, step=5), sender.encode(values, step=5)
    assert len(warm) < len(cold)
    np.testing.assert_array_equal(receiver.decode(warm, step=5), values)
    assert sender.states[5].sequence == 1
    assert sender.encode(values, step=0) == Encoder(params).encode(values, step=0)  # nothing below


def test_pooled_tables_are_one_set_for_all_steps() -> None:
    sender, receiver = (make(AscParams(tables="pooled")) for make in (Encoder, Decoder))
    for place, step in enumerate((4, 1, 9)):
        frame = sender.encode(lcg(700, step, 8, 4), step=step)
        assert int.from_bytes(frame[8:10], "little") == place
        np.testing.assert_array_equal(receiver.decode(frame, step=step), lcg(700, step, 8, 4))
    assert list(sender.states) == list(receiver.states) == [0]


def test_bad_arguments_say_what_was_expected() -> None:
    encoder = Encoder(SMALL)
    values, least = np.arange(9), np.array([-(1 << 31), *[1] * 1100])
    context = partial(encoder.encode, values, step=0)
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        # The least value of all has no magnitude; a kernel that counted it would write elsewhere.
        (ValueError, "from -2147483648 to 1", lambda: encoder.encode(least, step=0, width=8)),
        (ValueError, "for each of 9 values", lambda: context(context=np.zeros(8, int))),
        (ValueError, "integer class", lambda: context(context=np.zeros(9))),
        (ValueError, r"0\.\.15, got 0\.\.16", lambda: context(context=values * 2)),
        (ValueError, "block_log2 must be 0 or 10 to 17, got 18", lambda: AscParams(block_log2=18)),
        (TypeError, "block_log2 is an integer", lambda: AscParams(block_log2=12.0)),  # type: ignore[arg-type]
        (TypeError, "sent_rows true or false", lambda: AscParams(sent_rows=1)),  # type: ignore[arg-type]
        (ValueError, "context must be one of class, none", lambda: AscParams(context="all")),  # type: ignore[arg-type]
        (ValueError, '"compiled" or "reference"', lambda: make_coder(SMALL, "fast")),  # type: ignore[arg-type]
    ]
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()
    assert not encoder.states  # nothing of this moved the link
    frame = encoder.encode(values * 5000, step=0)
    decoder = Decoder(SMALL)
    with pytest.raises(FrameError, match="carries 9 values, 8 were expected"):
        decoder.decode(frame, step=0, context=np.zeros(8, np.uint8))
    with pytest.raises(ValueError, match=r"classes are 0\.\.15"):
        decoder.decode(frame, step=0, context=np.full(9, 16))
    with pytest.raises(FrameError, match="expected 8 that fit int32"):
        decoder.decode(frame, step=0, out=np.zeros(8, np.int32))
    fixed = np.zeros(9, np.int32)
    fixed.flags.writeable = False
    for out in (np.zeros(18, np.int32)[::2], np.zeros(9, np.int64), np.zeros(9, np.float32), fixed):
        with pytest.raises(ValueError, match="out is a contiguous, writeable array of int16 or int32"):
            decoder.decode(frame, step=0, out=out)
    room = np.zeros(9, np.int32)
    with pytest.raises(ValueError, match="plus is a contiguous, writeable array of int16 or int32"):
        decoder.decode(frame, step=0, out=room, add=True, plus=np.zeros(18, np.int32)[::2])
    with pytest.raises(
        ValueError, match=r"plus is an array like out, int32 of shape \(9,\), got int16 of shape"
    ):
        decoder.decode(frame, step=0, out=room, add=True, plus=np.zeros(9, np.int16))
    for wrong in ({"plus": room, "out": room}, {"plus": room, "add": True}, {"add": True}):
        with pytest.raises(ValueError, match="hand in add and out"):
            decoder.decode(frame, step=0, **wrong)
    wide = Encoder(SMALL).encode(values * 5000, step=0, width=17)
    with pytest.raises(FrameError, match="9 values of 17 bits, expected 9 that fit int16"):
        decoder.decode(wide, step=0, out=np.zeros(9, np.int16))
