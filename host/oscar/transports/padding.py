"""Messages lengthened to few sizes, so that an encrypted one's tells little (docs/transports.md)."""

from __future__ import annotations

import struct
from bisect import bisect_left

from oscar.transports.base import Bytes

LEAST_BYTES = 64  # of a padded message: the ladder's lowest rung
MOST_BYTES = 1 << 40
LEAST_PERCENT, MOST_PERCENT = 1.0, 100.0
PAD_NEEDS_SECURITY = "who reads plain frames reads their sizes, too; set transport.security to aes-gcm"
_LENGTH = struct.Struct("<Q")  # in front of a padded message


class Padding:
    """Padding by `percent` per cent at most: 0 for none, or 1 to 100; raises ValueError for others.

    A padded message is u64 length, message, zeros. Its size is a rung of a ladder: 64 bytes, and each next
    rung is higher by `percent` per cent, rounded down, or by one byte. plain_bytes, padded_total: of all
    messages that went through `pad`, before and after.
    """

    def __init__(self, percent: float) -> None:
        if percent and not LEAST_PERCENT <= percent <= MOST_PERCENT:
            raise ValueError(f"expected a pad of 0, or of 1 to 100 per cent, got {percent}")
        self.percent = percent
        self.plain_bytes = self.padded_total = 0
        self._rungs = _ladder(percent) if percent else []
        self._room = bytearray()

    def padded_bytes(self, size: int) -> int:
        """Return how many bytes a message of `size` bytes has once padded; never fewer for a longer one."""
        if not self.percent:
            return size
        return self._rungs[bisect_left(self._rungs, size + _LENGTH.size)]

    def pad(self, message: Bytes) -> Bytes:
        """Return `message` padded, valid until the next call; or as it is where there is no padding."""
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
        """Return the message in `padded`; raises ValueError where `pad` did not make it."""
        if not self.percent:
            return padded
        if len(padded) < LEAST_BYTES:
            raise ValueError(f"expected {LEAST_BYTES} bytes at least, got {len(padded)}")
        (size,) = _LENGTH.unpack_from(padded)
        if size > len(padded) - _LENGTH.size:
            raise ValueError(f"it says that it has {size} bytes, and has {len(padded) - _LENGTH.size}")
        return padded[_LENGTH.size : _LENGTH.size + size]


def _ladder(percent: float) -> list[int]:
    """Return the rungs, bytes, ascending."""
    rungs = [LEAST_BYTES]
    while rungs[-1] < MOST_BYTES:
        rungs.append(rungs[-1] + max(1, int(rungs[-1] * percent / 100)))
    return rungs
