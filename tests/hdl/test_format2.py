"""Format 2 as the RTL speaks it: frames that pin it, round trips, and what is refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oscar.coding.frame import HEADER_BYTES
from oscar.errors import ConfigError, FrameError
from oscar_hdl.format2 import reference as ref
from oscar_hdl.format2.link import Decoder, Encoder, max_frame
from oscar_hdl.format2.params import (
    LANES,
    PRIOR,
    STATE_BITS,
    STATE_LOW,
    WORD_BITS,
    AscParams,
    cut_row,
    is_counted,
    max_words,
    raw_bytes,
)
from oscar_hdl.format2.state import TableState
from oscar_sim.seeds import numbers

SMALL = AscParams(10)


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


CODED = lcg(200, 1, 5, 2)
CLASSES = np.arange(200) * 7 % 16
PEAKS = np.where(np.arange(60) % 30 == 7, -32768, 1).astype(np.int32)
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
Message = tuple[np.ndarray, int | None, np.ndarray | None]
Golden = tuple[AscParams, list[Message], list[str]]
# Frames as hex, or length and CRC-32. A change here is another wire format than the RTL's.
GOLDEN: dict[str, Golden] = {
    "tiny": (
        AscParams(),
        [(lcg(0, 1, 1), None, None), (lcg(5, 9, 3), 16, None)],
        [
            "a11001000000000800006d430000000000000000685eaa7e",
            "a11001000000001001006d4305000000100000007f99cfec0200000000000100fafff9ff01000000",
        ],
    ),
    "constant": (
        SMALL,
        [(np.full(1500, -7, np.int32), 8, None)],
        ["a11001000000000800009086dc0500000c00000064bb3baa0100f9ffffff0100f9ffffff"],
    ),
    "raw": (
        SMALL,
        [(lcg(13, 3, 7), 8, None)],
        ["a110010000000008000090860d00000014000000d01112770200000000000ea22cb130c03dbaa78490202900"],
    ),
    "coded": (
        SMALL,
        [(CODED, 16, CLASSES), (CODED, 16, CLASSES)],
        ["208:30cf25d0", "202:3dd96a53"],
    ),
    "escape": (
        SMALL,
        [(PEAKS, 16, None)],
        [
            "a110010000000010000090863c000000480000005ac6d47d3000000600002f12025012042f12022f1202"
            "2f12022f12022f12025012042f12022f12022f12022f1202c4c1ffc4411cc4411cc4c1ffc4411cc4411c"
            "00000002fc81007f00000000",
        ],
    ),
    "raw, then shift 7, then 6": (
        SMALL,
        [(lcg(1100, 4, 15), 16, None), (lcg(1100, 5, 14, 2), 16, None)],
        ["2236:83b1db21", "2136:4a77f0e2"],
    ),
    "coded, constant, raw in turns": (
        SMALL,
        [(ALTERNATING, 16, None), (ALTERNATING[4000:], 16, None)],
        ["5614:6026cbec", "1992:c92fc4a7"],
    ),
    "full blocks": (
        AscParams(11),
        [(lcg(5000, 6, 8, 4), 16, None), (lcg(900, 7, 7, 4), 16, None)],
        ["3966:5552ac06", "638:a5f70e39"],
    ),
    "largest blocks": (
        AscParams(),
        [(lcg(9000, 6, 8, 4), 16, np.arange(9000) // 50 % 16), (lcg(900, 7, 7, 4), 16, None)],
        ["7064:fd19f87b", "652:11941f5d"],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_words(name: str) -> None:
    params, messages, golden = GOLDEN[name]
    encoder, decoder = Encoder(params), Decoder(params)
    for (values, width, context), expected in zip(messages, golden, strict=True):
        frame = encoder.encode(values, step=1, width=width, context=context)
        assert (f"{len(frame)}:{zlib.crc32(frame):08x}" if ":" in expected else frame.hex()) == expected
        np.testing.assert_array_equal(decoder.decode(frame, step=1, context=context), values)


def test_golden_words_reach_every_type_of_block() -> None:
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


@pytest.mark.parametrize("block_log2", [10, 11, 12])
def test_what_is_sent_comes_back(block_log2: int) -> None:
    params, rng = AscParams(block_log2), numbers(1)
    encoder, decoder = Encoder(params), Decoder(params)
    for number in range(40):
        count = int(rng.choice([0, 1, 11, 12, 13, 25, params.block, rng.integers(1, 3 * params.block)]))
        values = np.rint(rng.laplace(0, rng.choice([0.2, 3, 40, 9000]), count)).clip(-32768, 32767)
        values = (values * (rng.random(count) < rng.choice([0.1, 1]))).astype(np.int32)
        context, step = rng.integers(0, 16, count), int(rng.integers(0, 3))
        frame = encoder.encode(values, step=step, width=16, context=context, chunk=number)
        assert len(frame) <= max_frame(params, count, 16)
        np.testing.assert_array_equal(decoder.decode(frame, step=step, context=context), values)
        assert decoder.checksum(step) == encoder.checksum(step)


def test_state_dict_moves_a_link_to_new_ends() -> None:
    encoder = Encoder(SMALL)
    encoder.encode(CODED, step=3)
    moved, decoder = Encoder(SMALL), Decoder(SMALL)
    for end in (moved, decoder):
        end.load_state_dict(encoder.state_dict())
    np.testing.assert_array_equal(decoder.decode(moved.encode(CODED, step=3), step=3), CODED)
    with pytest.raises(ConfigError, match="saved under other parameters"):
        Encoder().load_state_dict(encoder.state_dict())


def test_unequal_parameters_fail_at_the_first_frame() -> None:
    frame = Encoder(SMALL).encode(lcg(90, 1, 5), step=0)
    for params in (AscParams(11), AscParams(12)):
        with pytest.raises(FrameError, match="parameters differ"):
            Decoder(params).decode(frame, step=0)


def test_lost_repeated_and_misdirected_frames() -> None:
    encoder, decoder = Encoder(SMALL), Decoder(SMALL)
    first, second = (encoder.encode(lcg(50, seed, 5), step=3) for seed in (3, 4))
    with pytest.raises(FrameError, match="sequence 1, expected 0: lost"):
        decoder.decode(second, step=3)
    with pytest.raises(FrameError, match="step 3, expected 4"):
        decoder.decode(first, step=4)
    decoder.decode(first, step=3)
    with pytest.raises(FrameError, match="sequence 0, expected 1: lost, repeated"):
        decoder.decode(first, step=3)
    np.testing.assert_array_equal(decoder.decode(second, step=3), lcg(50, 4, 5))


def reseal(frame: bytes | bytearray) -> bytes:
    """Return a forged frame with the length and the CRC that belong to it."""
    data = bytearray(frame)
    struct.pack_into("<I", data, 16, len(data) - HEADER_BYTES)
    struct.pack_into("<I", data, 20, zlib.crc32(data[HEADER_BYTES:], zlib.crc32(data[:20])))
    return bytes(data)


def test_a_frame_that_fails_leaves_the_state_alone() -> None:
    encoder, decoder = Encoder(SMALL), Decoder(SMALL)
    decoder.decode(encoder.encode(lcg(400, 4, 6, 2), step=3), step=3)
    frame, before = encoder.encode(lcg(400, 5, 6, 2), step=3, width=16), decoder.checksum(3)
    damaged, kept = 0, decoder.state_dict()
    for at in range(HEADER_BYTES, len(frame), 3):
        forged = bytearray(frame)
        forged[at] ^= 0x55
        try:
            decoder.decode(reseal(forged), step=3)
            decoder.load_state_dict(kept)
        except FrameError:
            damaged += 1
        assert decoder.checksum(3) == before
    assert damaged > 30
    for size in (HEADER_BYTES, HEADER_BYTES + 3, HEADER_BYTES + 20, len(frame) - 2):
        with pytest.raises(FrameError, match=r"ends inside a block|cannot hold"):
            decoder.decode(reseal(frame[:size]), step=3)
    with pytest.raises(FrameError, match="follow the last block"):
        decoder.decode(reseal(frame + b"\0"), step=3)
    wide = bytearray(frame)
    wide[7] = 17
    with pytest.raises(FrameError, match="values of 17 bits, a lane's have 16 at most"):
        decoder.decode(reseal(wide), step=3)
    np.testing.assert_array_equal(decoder.decode(frame, step=3), lcg(400, 5, 6, 2))


@pytest.mark.parametrize("n", [1024, 16, 13])
def test_a_block_with_more_words_than_three_for_eight_values_is_refused(n: int) -> None:
    frame, most = Encoder(SMALL).encode(np.zeros(n, np.int32), step=0), max_words(n)
    assert 8 * most <= 3 * n < 8 * (most + 1)
    start = b"".join(STATE_LOW.to_bytes(3, "little") for _ in range(LANES))
    for words, reason in ((most, "coded words do not end"), (most + 1, "more words than")):
        forged = frame[:HEADER_BYTES] + (words << 2).to_bytes(6, "little") + start + bytes(2 * n)
        with pytest.raises(FrameError, match=reason):
            Decoder(SMALL).decode(reseal(forged), step=0)


def test_a_forged_block_of_zeros_is_learnt_from_like_any_coded_block() -> None:
    """No encoder writes it: a block of one value is constant."""
    f = ref.frequencies(PRIOR)[0]
    words, states = ref.push_all([(lane, f, 0) for _, lane, _ in ref.order(1024)])
    numbers_ = [(words, WORD_BITS, 2 * ((WORD_BITS * len(words) + 15) // 16)), (states, STATE_BITS, 36)]
    packed, flush = (
        sum(x << (bits * i) for i, x in enumerate(xs)).to_bytes(size, "little") for xs, bits, size in numbers_
    )
    frame = Encoder(SMALL).encode(np.zeros(1024, np.int32), step=0)
    decoder = Decoder(SMALL)
    forged = frame[:HEADER_BYTES] + (len(words) << 2).to_bytes(6, "little") + flush + packed
    np.testing.assert_array_equal(decoder.decode(reseal(forged), step=0), np.zeros(1024, np.int32))
    assert decoder.states[0].hist[0, 0] > PRIOR[0]


def test_bad_arguments_say_what_was_expected() -> None:
    encoder, values = Encoder(SMALL), np.arange(9)
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (TypeError, "quantise the tensor first", lambda: encoder.encode(values / 2, step=0)),
        (ValueError, "up to 16 bits, got 24", lambda: encoder.encode(values << 15, step=0)),
        (ValueError, "up to 16 bits, got 17", lambda: encoder.encode(values, step=0, width=17)),
        (ValueError, "step is 0 to 65535", lambda: encoder.encode(values, step=-1)),
        (ValueError, "integer class", lambda: encoder.encode(values, step=0, context=np.zeros(9))),
        (ValueError, r"0\.\.15, got 0\.\.16", lambda: encoder.encode(values, step=0, context=values * 2)),
        (ValueError, "block_log2 is 10 to 12 in hardware, got 13", lambda: AscParams(13)),
        (TypeError, "block_log2 is an integer", lambda: AscParams(10.0)),  # type: ignore[arg-type]
    ]
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()
    assert encoder.states == {}


def test_arithmetic_stays_in_its_widths() -> None:
    """Frequencies sum to 4096, rows to less than 2^10, states stay in [2^12, 2^24)."""
    rng = numbers(2)
    for _ in range(50):
        hist = [int(h) for h in rng.integers(0, rng.choice([2, 64]), 16)]
        freq = ref.frequencies(hist)
        assert min(freq) >= 1
        assert sum(freq) == 4096
        rows = [hist[:]]
        ref.update(rows, [[int(n) for n in rng.integers(0, 300, 16)]])
        assert sum(rows[0]) < 1 << 10
        words, states = ref.push_all(
            [(i % LANES, f, sum(freq[:s])) for s, f in enumerate(freq) for i in range(12)]
        )
        assert all(STATE_LOW <= x < 1 << STATE_BITS for x in states)
        assert all(0 <= w < 1 << WORD_BITS for w in words)


def test_counted_symbols_are_apart_and_a_block_is_cut_once() -> None:
    counted = [i for i in range(4096) if is_counted(*divmod(i, LANES))]
    assert min(np.diff(counted)) == 2
    assert [cut_row(rows, AscParams(12)) for rows in (0, 85, 86, 341)] == [0, 0, 1, 256]
    assert [ref.symbol(u) for u in (0, 4, 5, 6, 255, 256, 70000)] == [0, 4, 4, 5, 14, 15, 15]
    assert TableState.initial().checksum(AscParams(12)) != TableState.initial().checksum(SMALL)
