"""Parts that all index codecs share: the seal, and checks of input and output.

A stream: u8 kind, the count as a varint, the codec's own bytes, and the seal. The seal is the CRC-32 of all
before it, xor the history in both halves, little-endian. The history is 16 bits over what a codec has learnt,
else 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.errors import ConfigError, FrameError
from oscar.kernels import njit

MOST = 1 << 32  # most positions of a space
MARK = 0xB0  # upper half of the first byte; the lower half is the codec's kind
SEAL_BYTES = 4
COUNT_BYTES = 5  # most bytes of a varint
KINDS: dict[int, str] = {}  # names of the imported codecs by kind, for error messages


class IndexCodec(ABC):
    """Codes a set of positions in a space of `size` that both ends know: a tensor, or the part of one server.

    A codec codes its own bytes in `_pack` and `_unpack`; this class adds and checks the rest.
    """

    name: ClassVar[str]
    kind: ClassVar[int]  # 0 to 15, unique

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls.name

    def encode(self, positions: Array, size: int, classes: Array | None = None) -> Array:
        """Return the stream, uint8, of int64 `positions`: ascending, distinct, in [0, size).

        classes: uint8 classes 0..15 of all positions of the space; only `popular` uses them. Raises
        ConfigError if the space is too large, ValueError for other positions.
        """
        check_size(size)
        array = np.ascontiguousarray(positions)
        if array.ndim != 1 or array.dtype != np.int64:
            raise ValueError(f"positions are 1-D int64, got {array.ndim}-D {array.dtype}")
        if (at := first_wrong(array, size)) >= 0:
            raise ValueError(f"positions ascend and lie in 0 to {size - 1}: number {at} is {array[at]}")
        head = bytes([MARK | self.kind]) + _varint(array.size)
        history = self._history(size, classes)
        body = self._pack(array, size, classes)
        data = np.empty(len(head) + len(body) + SEAL_BYTES, np.uint8)
        data[: len(head)] = np.frombuffer(head, np.uint8)
        data[len(head) : -SEAL_BYTES] = body
        data[-SEAL_BYTES:] = np.frombuffer(seal(data[:-SEAL_BYTES], history), np.uint8)
        return data

    def decode(self, stream: Array, size: int, classes: Array | None = None) -> Array:
        """Return the ascending int64 positions of a stream; raises FrameError, with the state unchanged."""
        check_size(size)
        body, count, history = self._open(stream)
        if history != (here := self._history(size, classes)):
            raise FrameError(
                f"index stream of history 0x{history:04x}, this end has 0x{here:04x}: the ends saw other "
                "hits, streams or sizes; resume all ranks from one checkpoint, or start all anew"
            )
        if count > size:
            raise damaged(f"at most {size} positions", f"{count}")
        positions = self._unpack(body, count, size, classes)
        if (at := first_wrong(positions, size)) >= 0:
            raise damaged(f"ascending positions of 0 to {size - 1}", f"{positions[at]} as number {at}")
        return positions

    def _open(self, stream: Array) -> tuple[Array, int, int]:
        """Return the codec's own bytes, the count and the history; raises FrameError if the seal is wrong."""
        data = np.asarray(stream)
        if data.ndim != 1 or data.dtype != np.uint8:
            raise FrameError(f"an index stream is 1-D uint8, got {data.ndim}-D {data.dtype}")
        data = np.ascontiguousarray(data)
        if data.size < 2 + SEAL_BYTES:
            raise damaged(f"at least {2 + SEAL_BYTES} bytes", f"{data.size}")
        crc, right = int.from_bytes(data[-SEAL_BYTES:].tobytes(), "little"), crc32(data[:-SEAL_BYTES])
        history = (crc ^ right) & 0xFFFF
        if (crc ^ right) >> 16 != history:
            raise damaged(f"a CRC-32 of 0x{right:08x}", f"0x{crc:08x}")
        mark = int(data[0])
        if mark != MARK | self.kind:
            known = KINDS.get(mark & 15) if mark & 0xF0 == MARK else None
            other = f"one of {known}" if known else f"first byte 0x{mark:02x}"
            raise FrameError(
                f"expected an index stream of {self.name}, got {other}: "
                "use the same index codec on all ranks, and hand on streams in the order they were sent"
            )
        count, used = _read_varint(data[1 : min(1 + COUNT_BYTES, data.size - SEAL_BYTES)].tobytes())
        return data[1 + used : -SEAL_BYTES], count, history

    def _history(self, size: int, classes: Array | None) -> int:
        """Return 16 bits over everything that codes the next stream and is not sent."""
        return 0

    @abstractmethod
    def _pack(self, positions: Array, size: int, classes: Array | None) -> Array:
        """Return the codec's own bytes."""

    @abstractmethod
    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        """Return `count` int64 positions, or raise FrameError; the caller checks their order and bounds."""


def check_size(size: int) -> None:
    """Raise ConfigError unless an index can name all positions of a space of this size."""
    if not 0 <= size <= MOST:
        raise ConfigError(f"an index names positions of a space of 0 to {MOST}, got {size}: split the tensor")


def seal(data: Array, history: int = 0) -> bytes:
    """Return the seal of a stream that begins with `data`."""
    return (crc32(data) ^ history * 0x10001).to_bytes(SEAL_BYTES, "little")


def damaged(expected: str, actual: str) -> FrameError:
    """Return the error for a stream that no encoder with the same space wrote."""
    return FrameError(
        f"index stream: expected {expected}, got {actual}: damaged, or both ends do not use the same space"
    )


def _varint(value: int) -> bytes:
    """Return a varint: 7 bits a byte, lowest first; the top bit says that more bytes follow."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes) -> tuple[int, int]:
    """Return the varint at the start of `data` and its length; raises FrameError if none or overlong."""
    value = 0
    for at, byte in enumerate(data):
        value |= (byte & 127) << 7 * at
        if byte < 128:
            if at and not byte:
                break
            return value, at + 1
    raise damaged(f"a count of up to {COUNT_BYTES} bytes", data.hex())


@njit(cache=True, nogil=True)
def first_wrong(positions: Any, size: int) -> int:
    """Return the index of the first position that does not ascend or lies outside the space, else -1."""
    before = -1
    for j in range(len(positions)):
        if positions[j] <= before or positions[j] >= size:
            return j
        before = positions[j]
    return -1
