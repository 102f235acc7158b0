"""The head of a message that describes itself, and its frames (docs/reference/pseudo.md, "Format").

Also tensors of NumPy and PyTorch as flat arrays, and back. torch is never imported here, only used where
it is. bfloat16 has no NumPy dtype, so its bits travel as uint16.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.coding.frame import HEADER_BYTES
from oscar.coding.index.base import MOST
from oscar.errors import FrameError, OscarError
from oscar.numerics.steps import MIN_EXPONENT
from oscar.numerics.tensors import on_host

FLOATS = ("float32", "bfloat16", "float16", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16")
DTYPES = FLOATS + INTEGERS  # a message names a dtype by its place here: append only
VERSION = 2  # 1 had positions of sparse tensors in Rice codes
MAGIC = 0xC0 | VERSION
DENSE, SPARSE, LOSSLESS = range(3)
KINDS = {DENSE: "oscar.pseudo", SPARSE: "oscar.pseudo", LOSSLESS: "oscar.floats"}  # and who decodes them
MAX_DIMS = 16
MAX_EXPONENT = 126  # of a step: the largest whose inverse is a normal float32

# Magic, kind, dtype, dimensions, log2 of the step, bits of unsigned codes, 0, bytes of frames of positions
_HEAD = struct.Struct("<BBBBhBBQ")
_CRC = struct.Struct("<I")


def bits_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype that holds values of the dtype `name`: its own, or uint16 for bfloat16."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def flat_bits(tensor: Any) -> tuple[Array, str, tuple[int, ...]]:
    """Return a tensor's values, flat and contiguous in native byte order, the name of its dtype, its shape.

    tensor: array of NumPy (ml_dtypes' bfloat16 too) or tensor of PyTorch, on any device. Copied only where it
    has to be. Raises TypeError for what is neither, for a dtype that is not in DTYPES, and for a tensor of
    PyTorch that is not dense, or is distributed.
    """
    if not (hasattr(tensor, "shape") and hasattr(tensor, "dtype")):
        raise TypeError(
            f"expected an array of NumPy or a tensor of PyTorch, got {type(tensor).__name__}; "
            "make one first, as numpy.asarray(..., dtype=...) does"
        )
    name = str(tensor.dtype).removeprefix("torch.")
    if hasattr(tensor, "detach"):
        if name not in DTYPES:
            raise _not_carried(name)
        plain = on_host(tensor)
        plain = plain.view(sys.modules["torch"].int16) if name == "bfloat16" else plain
        array = plain.numpy()
    else:
        array = np.asarray(tensor)
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        name = array.dtype.name
    if name not in DTYPES:
        raise _not_carried(name)
    return array.reshape(-1).view(bits_dtype(name)), name, tuple(tensor.shape)


def _not_carried(name: str) -> TypeError:
    return TypeError(f"expected a tensor of one of {', '.join(DTYPES)}, got {name}; convert it first")


def from_bits(flat: Array, name: str, shape: tuple[int, ...], *, as_torch: bool) -> Any:
    """Return the tensor with these values: of PyTorch, or of NumPy, where bfloat16 becomes float32.

    Raises OscarError if PyTorch is asked for and not imported.
    """
    if as_torch:
        torch: Any = sys.modules.get("torch")
        if torch is None:
            raise OscarError("as_torch makes tensors of PyTorch, which is not imported: import torch first")
        signed = flat.view(np.int16) if flat.dtype == np.uint16 else flat  # old releases have no uint16
        return torch.from_numpy(signed).view(getattr(torch, name)).reshape(shape)
    if name == "bfloat16":
        flat = (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return flat.reshape(shape)


@dataclass(frozen=True)
class MessageHead:
    """What a message says of its tensor. exponent: log2 of a float's step; bits: of unsigned codes."""

    kind: int
    dtype: str
    shape: tuple[int, ...]
    exponent: int = 0
    bits: int = 0
    index: int = 0  # bytes of the frames with a sparse tensor's positions

    @property
    def size(self) -> int:
        """The values of the whole tensor."""
        return math.prod(self.shape)

    def pack(self) -> bytes:
        """Return the bytes that begin a message; raises ValueError for a tensor that none carries."""
        if not _carried(self.shape):
            raise ValueError(
                f"a message carries tensors of up to {MAX_DIMS} dimensions and 2^48 values, got {self.shape}"
            )
        fixed = _HEAD.pack(
            MAGIC,
            self.kind,
            DTYPES.index(self.dtype),
            len(self.shape),
            self.exponent,
            self.bits,
            0,
            self.index,
        )
        head = fixed + struct.pack(f"<{len(self.shape)}Q", *self.shape)
        return head + _CRC.pack(crc32(head))


def _carried(shape: tuple[int, ...]) -> bool:
    """Whether a message carries tensors of this shape."""
    return len(shape) <= MAX_DIMS and math.prod(max(1, n) for n in shape) <= 1 << 48


def read_head(data: bytes, *kinds: int) -> tuple[MessageHead, memoryview]:
    """Return the head of a message of one of `kinds`, and what follows it; raises FrameError."""
    try:
        view = memoryview(data).cast("B")
    except (TypeError, ValueError, BufferError):
        raise FrameError(f"a message is contiguous bytes, got {type(data).__name__}") from None
    if len(view) < _HEAD.size + _CRC.size:
        raise damaged(f"at least {_HEAD.size + _CRC.size} bytes", f"{len(view)}")
    magic, kind, dtype, dims, exponent, bits, pad, index = _HEAD.unpack_from(view)
    if magic & 0xF0 != MAGIC & 0xF0:
        raise FrameError(f"expected a message that starts with 0x{MAGIC:02x}, got 0x{magic:02x}: not ours")
    if magic != MAGIC:
        raise FrameError(
            f"expected a message of version {VERSION}, got {magic & 15}: run one release everywhere"
        )
    end = _HEAD.size + 8 * dims
    if dims > MAX_DIMS or len(view) < end + _CRC.size:
        raise damaged(f"{dims} dimensions, of at most {MAX_DIMS}", f"{len(view)} bytes")
    (crc,), right = _CRC.unpack_from(view, end), crc32(view[:end])
    if crc != right:
        raise damaged(f"a head of CRC-32 0x{right:08x}", f"0x{crc:08x}")
    shape = struct.unpack_from(f"<{dims}Q", view, _HEAD.size)
    unsigned = dtype < len(DTYPES) and DTYPES[dtype].startswith("u")
    if (
        kind not in KINDS
        or dtype >= len(DTYPES)
        or pad
        or (exponent and DTYPES[dtype] not in FLOATS)
        or bits > (8 * bits_dtype(DTYPES[dtype]).itemsize if unsigned else 0)
        or (unsigned and not bits)
        or not MIN_EXPONENT <= exponent <= MAX_EXPONENT
        or not _carried(shape)
        or (kind == SPARSE and math.prod(shape) > MOST)
    ):
        raise damaged("a head that a sender writes", view[:end].hex())
    if kind not in kinds:
        raise FrameError(
            f"expected a message of {KINDS[kinds[0]]}, got one of {KINDS[kind]}: decode it there"
        )
    return MessageHead(kind, DTYPES[dtype], shape, exponent, bits, index), view[end + _CRC.size :]


def frames_of(
    view: memoryview, count: int, most: int, *, fewer: bool = False
) -> list[tuple[memoryview, slice, int]]:
    """Return the frames that are all of `view`: each with its place among `count` values, and its width.

    most: values that a byte of a payload can stand for. fewer: whether there may be fewer than `count`.
    Raises FrameError, before room is made for values.
    """
    parts, total = [], 0
    for frame in _cut(view):
        held, length = struct.unpack_from("<II", frame, 12)
        if held > most * length:
            raise damaged(f"at most {most * length} values in {length} bytes", f"{held}")
        parts.append((frame, slice(total, total + held), frame[7]))
        total += held
    if total > count or (total < count and not fewer):
        raise damaged(f"{'at most ' if fewer else ''}{count} values", f"{total}")
    return parts


def _cut(view: memoryview) -> Iterator[memoryview]:
    while len(view):
        length = struct.unpack_from("<I", view, 16)[0] if len(view) >= HEADER_BYTES else 0
        if len(view) < HEADER_BYTES + length:
            raise damaged(f"a frame of {HEADER_BYTES + length} bytes", f"{len(view)}")
        yield view[: HEADER_BYTES + length]
        view = view[HEADER_BYTES + length :]


def damaged(expected: str, actual: str) -> FrameError:
    """Return the error for a message that no sender wrote."""
    return FrameError(f"message: expected {expected}, got {actual}: damaged or cut off on the way")
