"""Pads messages to few sizes, so that the size of an encrypted message tells little (docs/transports.md)."""

from __future__ import annotations

import struct
from bisect import bisect_left

from oscar.transports.base import Bytes

LEAST_BYTES = 64  # bytes of the shortest padded message
MOST_BYTES = 1 << 40
LEAST_PERCENT, MOST_PERCENT = 1.0, 100.0
PAD_NEEDS_SECURITY = "who reads plain frames reads their sizes, too; set transport.security to aes-gcm"
_LENGTH = struct.Struct("<Q")  # in front of a padded message


class Padding:
    """Pads messages by at most about `percent` per cent.

    percent: 0 for no padding, or 1 to 100. A larger value hides sizes better and costs more bytes. Raises
    ValueError for other values. A padded message is a u64 length, the message, and zeros. Its size is a step
    of a ladder: 64 bytes, then each step larger by `percent` per cent, rounded down, but at least by one
    byte. `plain_bytes` and `padded_total` sum the bytes of all messages before and after `pad`.
    """

    def __init__(self, percent: float) -> None:
        if percent and not LEAST_PERCENT <= percent <= MOST_PERCENT:
            raise ValueError(f"expected a pad of 0, or of 1 to 100 per cent, got {percent}")
        self.percent = percent
        self.plain_bytes = self.padded_total = 0
        self._rungs = _ladder(percent) if percent else []
        self._room = bytearray()

    def padded_bytes(self, size: int) -> int:
        """Return the padded size in bytes of a message of `size` bytes; it never falls as `size` grows."""
        if not self.percent:
            return size
        return self._rungs[bisect_left(self._rungs, size + _LENGTH.size)]

    def pad(self, message: Bytes) -> Bytes:
        """Return the padded message, valid until the next call; without padding, `message` itself."""
        size, total = len(message), self.padded_bytes(len(message))
        self.plain_bytes += size
        self.padded_total += total
        if not self.percent:
            return message
        if total > len(self._room):
            self._room = bytearray(total)  # kept, so that pages stay mapped
        padded = memoryview(self._room)[:total]
        end = _LENGTH.size + size
        _LENGTH.pack_into(padded, 0, size)
        padded[_LENGTH.size : end] = message
        padded[end:] = bytes(total - end)
        return padded

    def unpad(self, padded: memoryview) -> memoryview:
        """Return the message in `padded`. Raises ValueError where `pad` did not make it."""
        if not self.percent:
            return padded
        if len(padded) < LEAST_BYTES:
            raise ValueError(f"expected {LEAST_BYTES} bytes at least, got {len(padded)}")
        (size,) = _LENGTH.unpack_from(padded)
        if size > len(padded) - _LENGTH.size:
            raise ValueError(f"it says that it has {size} bytes, and has {len(padded) - _LENGTH.size}")
        return padded[_LENGTH.size : _LENGTH.size + size]


def _ladder(percent: float) -> list[int]:
    """Return the sizes of padded messages in bytes, ascending."""
    rungs = [LEAST_BYTES]
    while rungs[-1] < MOST_BYTES:
        rungs.append(rungs[-1] + max(1, int(rungs[-1] * percent / 100)))
    return rungs
