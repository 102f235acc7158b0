"""Numbers of so many bits into bytes and back, little-endian."""

from __future__ import annotations

from collections.abc import Sequence

from oscar.errors import FrameError


class Bits:
    """Numbers one behind the other, each from its lowest bit on, into whole 16-bit words."""

    def __init__(self) -> None:
        self._full, self._rest, self._held = bytearray(), 0, 0

    def put(self, number: int, length: int) -> None:
        """Append `length` bits."""
        self._rest |= number << self._held
        self._held += length
        if self._held >= 512:  # a long integer is copied by each operation: keep it short
            self._full += (self._rest & ((1 << 512) - 1)).to_bytes(64, "little")
            self._rest >>= 512
            self._held -= 512

    def to_bytes(self) -> bytes:
        """Return all bits, padded to 16."""
        return bytes(self._full) + self._rest.to_bytes(2 * ((self._held + 15) // 16), "little")


def packed(numbers: Sequence[int], length: int) -> bytes:
    """Return numbers of `length` bits each, padded to 16 bits."""
    bits = Bits()
    for number in numbers:
        bits.put(number, length)
    return bits.to_bytes()


def unpacked(data: bytes, count: int, length: int) -> list[int]:
    """Return `count` numbers of `length` bits, at most 24."""
    mask, data = (1 << length) - 1, data + bytes(4)
    starts = range(0, count * length, length)
    return [int.from_bytes(data[at >> 3 : (at >> 3) + 4], "little") >> (at & 7) & mask for at in starts]


def signed(bits: int, width: int) -> int:
    """Return the integer that `width` bits are in two's complement."""
    return bits - (1 << width) if bits >> (width - 1) else bits


class Reader:
    """Bytes off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """Bytes not taken yet."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes; raises FrameError where there are fewer."""
        if size > self.left:
            raise FrameError("payload ends inside a block: frame damaged")
        self.at += size
        return self.data[self.at - size : self.at]
