"""The format of a message (docs/reference/delta.md, "Format"): its head, and what a piece begins with."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from isal.isal_zlib import crc32

from oscar.errors import FrameError, WrongBaseError

VERSION = 1
MAGIC = 0xD0 | VERSION
TENSOR, STATE_DICT = range(2)  # kinds of a message
KINDS = ("one tensor", "a state dict")
SAME, RAW, FLOATS, SPARSE, DENSE, XOR = range(6)  # modes of a piece
CODE = 21  # codec byte of frames, each of which carries a piece
PIECE = 1 << 22  # words of a piece, as many as oscar.floats has values in a frame
MAX_DIMS, MAX_NAME = 64, 0xFFFF
SHOWN = 5  # differences that an error names

PIECE_HEAD = struct.Struct("<QB")  # XXH64 of the base's piece, mode
SPARSE_HEAD = struct.Struct("<IIB")  # changed words, bytes of the gaps, bits of a raw gap
_HEAD = struct.Struct("<BBHII")  # magic, kind, 0, tensors, bytes of the table
_ENTRY = struct.Struct("<HBB")  # bytes of the name, bytes of the dtype's name, dimensions
_CRC = struct.Struct("<I")


class Entry(NamedTuple):
    """What a message says of a tensor; name: its key in the state dict, or nothing."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def text(self) -> str:
        """Return dtype and shape in words."""
        return f"{self.dtype} {list(self.shape)}"


def pack_head(kind: int, entries: list[Entry]) -> bytes:
    """Return the bytes that begin a message; raises ValueError for names and shapes that do not fit."""
    table = b"".join(map(_pack_entry, entries))
    head = _HEAD.pack(MAGIC, kind, 0, len(entries), len(table)) + table
    return head + _CRC.pack(crc32(head))


def _pack_entry(entry: Entry) -> bytes:
    name, dtype = entry.name.encode("utf-8", "surrogatepass"), entry.dtype.encode()
    if len(name) > MAX_NAME or len(entry.shape) > MAX_DIMS:
        raise ValueError(
            f"expected names of up to {MAX_NAME} bytes and up to {MAX_DIMS} dimensions, got "
            f"{len(name)} bytes and {len(entry.shape)} dimensions; rename or reshape the tensor"
        )
    sizes = struct.pack(f"<{len(entry.shape)}Q", *entry.shape)
    return _ENTRY.pack(len(name), len(dtype), len(entry.shape)) + name + dtype + sizes


def read_head(data: bytes, expected: bytes, kind: int, entries: list[Entry]) -> memoryview:
    """Return the bytes after the head of a message.

    Args:
        data: the message, bytes-like.
        expected: the head of a message for the base at hand.
        kind: TENSOR or STATE_DICT, of that base.
        entries: its tensors.

    Raises:
        FrameError: the head is damaged, foreign or of another version.
        WrongBaseError: the head is of a message for tensors of other names, dtypes or shapes.
    """
    try:
        view = memoryview(data).cast("B")
    except (TypeError, ValueError, BufferError):
        raise FrameError(f"expected a message as contiguous bytes, got {type(data).__name__}") from None
    if view[: len(expected)] == expected:
        return view[len(expected) :]
    came_kind, count, table = _checked(view)
    if came_kind != kind:
        raise WrongBaseError(f"expected a message for {KINDS[kind]}, as the base is, got {KINDS[came_kind]}")
    came = _entries(table)
    names = [entry.name for entry in came]
    if len(names) != count or names != sorted(set(names)) or came == entries:
        raise damaged(f"{count} tensors in the order of their names", f"{len(names)}")
    raise WrongBaseError(differences(entries, came, "the base", "the message"))


def _checked(view: memoryview) -> tuple[int, int, memoryview]:
    """Return the kind, the number of tensors and the table of a head; raises FrameError."""
    if len(view) < _HEAD.size + _CRC.size:
        raise damaged(f"at least {_HEAD.size + _CRC.size} bytes", f"{len(view)}")
    magic, kind, zero, count, size = _HEAD.unpack_from(view)
    if magic & 0xF0 != MAGIC & 0xF0:
        raise FrameError(f"expected a message that starts with 0x{MAGIC:02x}, got 0x{magic:02x}: not ours")
    if magic != MAGIC:
        raise FrameError(
            f"expected a message of version {VERSION}, got {magic & 15}: run one release everywhere"
        )
    end = _HEAD.size + size
    if len(view) < end + _CRC.size:
        raise damaged(f"a head of {end + _CRC.size} bytes", f"{len(view)}")
    (crc,), right = _CRC.unpack_from(view, end), crc32(view[:end])
    if crc != right:
        raise damaged(f"a head of CRC-32 0x{right:08x}", f"0x{crc:08x}")
    if kind >= len(KINDS) or zero:
        raise damaged("a head that an encoder writes", bytes(view[: _HEAD.size]).hex())
    return kind, count, view[_HEAD.size : end]


def _entries(table: memoryview) -> list[Entry]:
    """Return the entries of a table; raises FrameError."""
    entries, at = [], 0
    while at < len(table):
        try:
            name, dtype, dims = _ENTRY.unpack_from(table, at)
            at += _ENTRY.size
            shape = struct.unpack_from(f"<{dims}Q", table, at + name + dtype)
            words = bytes(table[at : at + name]), bytes(table[at + name : at + name + dtype])
            entries.append(Entry(words[0].decode("utf-8", "surrogatepass"), words[1].decode(), shape))
        except (struct.error, UnicodeError) as error:
            raise damaged("a table of tensors", f"{len(table)} bytes that are none ({error})") from None
        at += name + dtype + 8 * dims
    return entries


def differences(one: Iterable[Entry], other: Iterable[Entry], first: str, second: str) -> str:
    """Return in words how two sets of tensors differ, the first few of them.

    Args:
        one: expected tensors.
        other: tensors that came instead.
        first: what the expected ones belong to.
        second: what the others belong to.
    """
    here, there = ({entry.name: entry for entry in entries} for entries in (one, other))
    texts = [f"{name!r} is not in {second}" for name in here if name not in there]
    texts += [f"{name!r} is not in {first}" for name in there if name not in here]
    texts += [
        f"{repr(name) if name else 'the tensor'} is {here[name].text()} in {first}, "
        f"{there[name].text()} in {second}"
        for name in here
        if name in there and here[name] != there[name]
    ]
    more = f", and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return (
        f"expected tensors of equal names, dtypes and shapes in {first} and {second}, got others: "
        f"{'; '.join(texts[:SHOWN])}{more}"
    )


def words_in(size: int, itemsize: int) -> int:
    """Return the words of `size` values; a word has at most 4 bytes."""
    return size * max(1, itemsize // 4)


def damaged(expected: str, actual: str) -> FrameError:
    """Return the error for bytes that no encoder wrote."""
    return FrameError(f"delta: expected {expected}, got {actual}: damaged or cut off on the way")
