"""The frame that every codec sends: a 24-byte header, then the payload (docs/reference/protocol.md, "Frame").

Little-endian, byte offsets::

    0 u8  0xA0 | version     8 u16 sequence on this (link, step)
    1 u8  codec             10 u16 state checksum (adaptive codecs; 0 otherwise)
    2 u16 step              12 u32 count of values
    4 u16 chunk             16 u32 payload length in bytes
    6 u8  sub-frame         20 u32 CRC-32 (IEEE) of bytes 0..19 and the payload
    7 u8  width in bits of a raw value (bits 0 to 5), and the notice (bits 6 and 7)

The notice belongs to the values in the frame, not to their code: nodes add and remove it (`noticed`,
`parted`), and codecs never see it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from isal.isal_zlib import crc32  # some 50 GB/s, where zlib has 4

from oscar.errors import FrameError

VERSION = 1
MAGIC = 0xA0 | VERSION
HEADER_BYTES = 24
MAX_COUNT = 1 << 28  # most values of a frame; it bounds every allocation for one

NOTICE_SHIFT = 6  # where the notice lies in the byte of the width

_WIDTH_BYTE = 7
_HEAD = struct.Struct("<BBHHBBHHII")
_CRC = struct.Struct("<I")


@dataclass(slots=True)  # not frozen: that takes 3 us for each frame and end
class Header:
    """The fields of a frame header; `pack_frame` adds magic, payload length and CRC."""

    codec: int
    step: int
    count: int
    chunk: int = 0
    sub: int = 0
    width: int = 16
    sequence: int = 0
    checksum: int = 0


def _head(header: Header, length: int) -> bytes:
    """Return the header's bytes before the CRC; length: bytes of the payload."""
    if not 0 <= header.count <= MAX_COUNT:
        raise ValueError(f"a frame carries 0 to {MAX_COUNT} values, got {header.count}; split the chunk")
    try:
        return _HEAD.pack(
            MAGIC,
            header.codec,
            header.step,
            header.chunk,
            header.sub,
            header.width,
            header.sequence & 0xFFFF,
            header.checksum,
            header.count,
            length,
        )
    except struct.error as error:
        raise ValueError(f"a field of {header} does not fit its place in the frame: {error}") from None


def pack_frame(header: Header, payload: bytes | bytearray | memoryview) -> bytes:
    """Return a frame of `header` and `payload`; raises ValueError if a field does not fit its place."""
    head = _head(header, len(payload))
    return b"".join((head, _CRC.pack(crc32(payload, crc32(head))), payload))


def put_head(header: Header, frame: memoryview) -> memoryview:
    """Write the header of a frame whose payload lies after its first HEADER_BYTES; return it."""
    payload = frame[HEADER_BYTES:]
    head = _head(header, len(payload))
    frame[:HEADER_BYTES] = head + _CRC.pack(crc32(payload, crc32(head)))
    return frame


def noticed(frame: bytes | memoryview, notice: int) -> bytes | memoryview:
    """Return a frame without a notice with `notice`, two bits (oscar.numerics.renewal)."""
    return _with_width(frame, frame[_WIDTH_BYTE] | notice << NOTICE_SHIFT) if notice else frame


def parted(frame: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """Return a received frame without its notice, and the notice. Raises FrameError for a damaged one."""
    if len(frame) < HEADER_BYTES or not frame[_WIDTH_BYTE] >> NOTICE_SHIFT:
        return frame, 0
    unpack_frame(frame)  # the new checksum must not hide damage
    width = frame[_WIDTH_BYTE]
    return _with_width(frame, width & (1 << NOTICE_SHIFT) - 1), width >> NOTICE_SHIFT


def _with_width(frame: bytes | memoryview, width: int) -> bytes:
    payload, head = memoryview(frame)[HEADER_BYTES:], bytearray(frame[: HEADER_BYTES - _CRC.size])
    head[_WIDTH_BYTE] = width
    return b"".join((head, _CRC.pack(crc32(payload, crc32(head))), payload))


def peek(frame: bytes) -> Header:
    """Return the header of a frame that `unpack_frame` has already checked."""
    _, codec, step, chunk, sub, width, sequence, checksum, count, _ = _HEAD.unpack_from(frame)
    return Header(codec, step, count, chunk, sub, width, sequence, checksum)


def unpack_frame(frame: bytes | bytearray | memoryview) -> tuple[Header, memoryview]:
    """Check a frame (length, magic, version, CRC) and return its header and payload.

    Raises FrameError for damaged or foreign bytes. Codec, step and sequence are for the caller to check.
    """
    try:
        view = memoryview(frame).cast("B")
    except (TypeError, ValueError, BufferError):
        raise FrameError(f"a frame is contiguous bytes, got {type(frame).__name__}") from None
    if len(view) < HEADER_BYTES:
        raise FrameError(f"a frame has at least {HEADER_BYTES} bytes, got {len(view)}: truncated on the way")
    magic, codec, step, chunk, sub, width, sequence, checksum, count, length = _HEAD.unpack_from(view)
    if magic & 0xF0 != MAGIC & 0xF0:
        raise FrameError(f"frame starts with 0x{magic:02x}, expected 0x{MAGIC:02x}: not an OSCAR frame")
    if magic != MAGIC:
        raise FrameError(
            f"frame version {magic & 15}, this side speaks {VERSION}: run one release everywhere"
        )
    if length != len(view) - HEADER_BYTES:
        raise FrameError(f"header announces {length} payload bytes, frame has {len(view) - HEADER_BYTES}")
    payload = view[HEADER_BYTES:]
    (crc,) = _CRC.unpack_from(view, HEADER_BYTES - 4)
    actual = crc32(payload, crc32(view[: HEADER_BYTES - 4]))
    if crc != actual:
        raise FrameError(f"CRC-32 is 0x{actual:08x}, the header says 0x{crc:08x}: damaged on the way")
    if count > MAX_COUNT:
        raise FrameError(f"header announces {count} values, a frame carries at most {MAX_COUNT}")
    return Header(codec, step, count, chunk, sub, width, sequence, checksum), payload
