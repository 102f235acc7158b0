"""Frames for tests of senders: blocks, what a unit gives for them, and the bytes that are expected."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from oscar.coding.asc.link import ASC_CODE
from oscar.coding.asc.params import raw_limit
from oscar.coding.frame import Header, pack_frame

CODED, RAW, CONSTANT = 0, 1, 2
ROW_BITS = 16
SET_CHECKSUMS = 0x9E37  # of set n, in the model: n times this


@dataclass
class Part:
    """A block: its values, and what an encoder makes of it."""

    values: list[int]
    data: bytes  # what the encoder gives
    seeds: int = 0
    first: int = 0
    last: int = 0
    width: int = 16  # of the frame
    alone: bool = False  # it is the frame's only block

    @property
    def bits(self) -> int:
        """The results' `bits`."""
        return max(v ^ (v >> 15) for v in self.values).bit_length()

    @property
    def kind(self) -> int:
        """How it is sent."""
        if min(self.values) == max(self.values):
            return CONSTANT
        return CODED if len(self.data) < self.limit else RAW

    @property
    def raw_size(self) -> int:
        """Bytes of the raw block."""
        return (len(self.values) * (self.bits + 1) + 7) // 8

    @property
    def limit(self) -> int:
        """Bytes from which on it is sent raw."""
        return raw_limit(len(self.values), self.bits + 1, self.width, self.alone)

    def entry(self) -> bytes:
        """The directory's entry."""
        if self.kind == CONSTANT:
            entry = CONSTANT | (self.values[0] & 0xFFFFFFFF) << 16
        elif self.kind == RAW:
            entry = RAW | (self.bits + 1) << 2 | self.raw_size << 24
        else:
            entry = self.seeds << 2 | self.first << 5 | self.last << 12 | len(self.data) << 24
        return entry.to_bytes(6, "little")

    def sent(self) -> bytes:
        """Its bytes in the frame."""
        if self.kind == CONSTANT:
            return b""
        if self.kind == CODED:
            return self.data
        width = self.bits + 1
        packed = sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(self.values))
        return packed.to_bytes(self.raw_size, "little")


@dataclass
class Frame:
    """A command and the frame that is expected."""

    header: Header
    parts: list[Part]
    last: int
    block_log2: int
    row: int = 0
    load: int = 0
    save: int = 0
    fresh: bool = False
    bad: int = -1  # the block whose job ends with bad
    error: int = 0

    @property
    def peer(self) -> int:
        """To whom it goes: any number that goes with its chunk and sub-frame."""
        return self.header.chunk + self.header.sub & 255

    def bytes(self) -> bytes:
        """The frame."""
        if not self.parts:
            return pack_frame(self.header, b"")
        payload = (self.block_log2 | self.last << 11).to_bytes(2, "little")
        payload += b"".join(part.entry() for part in self.parts)
        payload += b"".join(part.sent() for part in self.parts)
        return pack_frame(self.header, payload)


def random_part(rng: random.Random, count: int, kind: int, most: int, width: int, alone: bool) -> Part:
    """Return a block of that kind with any bytes."""
    bits = rng.randrange(1, max(2, width))
    if kind == CONSTANT:
        value = rng.choice((0, -1, 1, rng.randrange(-(1 << 15), 1 << 15)))
        return Part([value] * count, b"")
    values = [rng.randrange(-(1 << bits), 1 << bits) for _ in range(count)]
    values[0] = -(1 << bits)
    if count > 1:
        values[1] = rng.choice((0, 1))
    states = rng.randrange(6), rng.randrange(128), rng.randrange(128)
    part = Part(values, b"", *states, width, alone)
    size = part.limit + rng.choice((0, 0, 1, 2, 9, 200))
    if kind == CODED and part.limit > 1:
        longest = max(1, part.limit - rng.choice((1, 1, 2, 60)))
        size = min(longest, rng.choice((rng.randrange(1, 24), most, rng.randrange(1, most))))
    part.data = rng.randbytes(size) if size else b""
    return part


def random_frame(
    rng: random.Random, *, blocks: int, most: int = 700, kinds: str = "ccccrk", log2: int = 10,
    width: int = 0,
) -> Frame:  # fmt: skip
    """Return a frame with blocks of any kind and bytes: coded, raw, constant; width 0: any."""
    size = 1 << log2
    tail = rng.choice((1, 2, 31, 32, 33, rng.randrange(1, size), size))
    count = (blocks - 1) * size + tail if blocks else 0
    parts, width = [], width or rng.randrange(1, 17)
    for at in range(0, count, size):
        kind = "crk".index(rng.choice(kinds))
        n = min(size, count - at)
        parts.append(random_part(rng, n, CONSTANT if n == 1 else kind, most, width, blocks == 1))
    load = rng.randrange(128)
    header = Header(
        ASC_CODE, rng.getrandbits(16), count, rng.getrandbits(16), rng.getrandbits(8), width,
        rng.getrandbits(16), checksum(load, fresh := rng.random() < 0.5),
    )  # fmt: skip
    return Frame(
        header, parts, rng.randrange(16), log2, rng.randrange(1 << ROW_BITS), load, rng.randrange(128), fresh
    )


def checksum(load: int, fresh: bool) -> int:
    """What the model of tables says of a set."""
    return (load * SET_CHECKSUMS + fresh) & 0xFFFF


def sized_frame(rng: random.Random, size: int) -> Frame:
    """Return a frame of so many bytes, with four coded blocks that are longer raw."""
    sizes = [rng.randrange(1, (size - 50) // 3) for _ in range(3)] if size < 5000 else [1500] * 3
    sizes.append(size - 50 - sum(sizes))
    parts = [Part([-(1 << 15), *([1] * 1023)], rng.randbytes(n), rng.randrange(6)) for n in sizes]
    frame = random_frame(rng, blocks=0)
    frame.header, frame.parts = replace(frame.header, count=4096, width=16), parts
    assert len(frame.bytes()) == size
    return frame
