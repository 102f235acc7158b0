"""The frame: what was packed comes back, and nothing else does."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscar.coding.codec import as_values, check_header, fit_width
from oscar.coding.frame import HEADER_BYTES, MAX_COUNT, Header, pack_frame, unpack_frame
from oscar.errors import FrameError
from oscar.numerics.integers import extremes

HEAD = Header(codec=16, step=0x0203, count=5, chunk=0x0405, sub=6, width=24, sequence=0x0708, checksum=0x090A)
GOLDEN = "a1100302050406180807" + "0a0905000000" + "03000000" + "dc16cf78" + "616263"


def sealed(frame: bytearray) -> bytes:
    """Return a frame with its CRC-32 made right."""
    struct.pack_into("<I", frame, 20, zlib.crc32(frame[24:], zlib.crc32(frame[:20])))
    return bytes(frame)


def test_golden_frame() -> None:
    assert pack_frame(HEAD, b"abc").hex() == GOLDEN
    head, payload = unpack_frame(bytes.fromhex(GOLDEN))
    assert (head, bytes(payload)) == (HEAD, b"abc")


@given(
    st.builds(
        Header,
        codec=st.integers(0, 255),
        step=st.integers(0, 65535),
        count=st.integers(0, MAX_COUNT),
        chunk=st.integers(0, 65535),
        sub=st.integers(0, 255),
        width=st.integers(0, 255),
        sequence=st.integers(0, 65535),
        checksum=st.integers(0, 65535),
    ),
    st.binary(max_size=60),
    st.sampled_from([bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)]),
)
def test_round_trip(head: Header, payload: bytes, kind: object) -> None:
    frame = pack_frame(head, payload)
    assert len(frame) == HEADER_BYTES + len(payload)
    came, body = unpack_frame(kind(frame))  # type: ignore[operator]
    assert (came, bytes(body)) == (head, payload)


def test_the_text_says_what_to_do() -> None:
    frame = bytearray(pack_frame(HEAD, b""))
    frame[0] = 0xA2
    with pytest.raises(FrameError, match="version 2, this side speaks 1: run one release everywhere"):
        unpack_frame(sealed(frame))
    frame[0] = 0x51
    with pytest.raises(FrameError, match="not an OSCAR frame"):
        unpack_frame(sealed(frame))
    frame[0] = 0xA1
    struct.pack_into("<I", frame, 12, MAX_COUNT + 1)
    with pytest.raises(FrameError, match="carries at most"):
        unpack_frame(sealed(frame))


@pytest.mark.parametrize(
    "thing", ["text", 7, None, [161], np.zeros((9, 9), np.uint8)[:, :3], np.zeros(9, "datetime64[s]")]
)
def test_what_is_not_bytes_is_a_frame_error(thing: object) -> None:
    with pytest.raises(FrameError, match="contiguous bytes"):
        unpack_frame(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"), [("codec", 256), ("step", -1), ("chunk", 65536), ("sub", 256), ("width", -1)]
)
def test_fields_that_do_not_fit_are_value_errors(field: str, value: int) -> None:
    with pytest.raises(ValueError, match="does not fit its place"):
        pack_frame(replace(HEAD, **{field: value}), b"")


@pytest.mark.parametrize("count", [-1, MAX_COUNT + 1])
def test_counts_no_frame_carries(count: int) -> None:
    with pytest.raises(ValueError, match="split the chunk"):
        pack_frame(replace(HEAD, count=count), b"")


def test_check_header_names_what_differs() -> None:
    check_header(HEAD, codec=16, step=0x0203, sequence=0x0708)
    with pytest.raises(FrameError, match="codec 16, expected 17"):
        check_header(HEAD, codec=17, step=0x0203, sequence=0x0708)
    with pytest.raises(FrameError, match="sequence 1800, expected 0"):
        check_header(HEAD, codec=16, step=0x0203, sequence=0)
    for width in (0, 33):
        with pytest.raises(FrameError, match=f"values of {width} bits"):
            check_header(replace(HEAD, width=width), codec=16, step=0x0203, sequence=0x0708)


def test_fit_width() -> None:
    edges = {8: (-128, 127), 16: (-129, 127), 24: (0, 1 << 15), 32: (-(1 << 31), 0)}
    for width, values in edges.items():
        assert fit_width(np.array(values), None) == width
    assert fit_width(np.array([-1, 0]), 1) == 1
    for kind in (np.int8, np.int16, np.int32, np.uint16):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        values = np.array([0, high, low, 3], kind)
        assert fit_width(values, 32) == 32
        assert extremes(values) == extremes(values.astype(">i8")) == (low, high)
        assert extremes(values[::3]) == (0, 3)
        assert extremes(values[:0]) == (0, 0)
    with pytest.raises(ValueError, match="more than 8 signed bits"):
        fit_width(np.array([128]), 8)
    for width in (0, 33, -5):
        with pytest.raises(ValueError, match="width is 1 to 32 bits"):
            fit_width(np.array([0]), width)


def test_narrow_integers_stay_narrow_only_where_they_may() -> None:
    for kind in (np.int8, np.int16, np.int32):
        values = np.arange(6, dtype=kind)
        assert as_values(values, "int").dtype == np.int32
        assert as_values(values, "int", narrow=True) is values
        assert as_values(values[::2], "int", narrow=True).flags.c_contiguous
    assert as_values(np.arange(6, dtype=np.uint16), "int", narrow=True).dtype == np.int32
