"""The file that `oscar codec -o` writes: one coded array, and all it takes to have the array back.

A line of text, the length of a JSON header (u32), its CRC-32 (u32), the header, the frame; little-endian.
The header holds codec, context mode, step, shape and dtype of the array, the exponent of the quantiser's step
(null: the values went over as they were) and whether position classes are needed.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import get_args

import numpy as np

from oscar.coding.asc.params import ContextMode
from oscar.errors import ConfigError

MAGIC = b"OSCAR array 1\n"
_HEAD = struct.Struct("<II")
_TYPES = {"codec": str, "context": str, "step": int, "shape": list, "dtype": str, "classes": bool}


@dataclass(frozen=True)
class ArrayFile:
    """What goes before the frame. exponent: log2 of the quantiser's step; None: nothing was quantised."""

    codec: str
    context: str
    step: int
    shape: list[int]
    dtype: str
    classes: bool
    exponent: int | None

    def pack(self, frame: bytes) -> bytes:
        """Return the file's content."""
        header = json.dumps(asdict(self)).encode()
        return b"".join((MAGIC, _HEAD.pack(len(header), zlib.crc32(header)), header, frame))

    def restore(self, values: np.ndarray) -> np.ndarray:
        """Return decoded `values` in the array's own shape and dtype, quantised floats times their step.

        Raises ConfigError where there are not as many values as the shape says.
        """
        if math.prod(self.shape) != values.size:
            raise ConfigError(
                f"expected {math.prod(self.shape)} values of shape {self.shape}, got {values.size}"
            )
        if self.exponent is not None:
            values = np.ldexp(values.astype(np.float64), self.exponent)
        return values.astype(self.dtype, copy=False).reshape(self.shape)


def read_array_file(path: Path) -> tuple[ArrayFile, bytes]:
    """Return header and frame of a file; raises ConfigError on anything that `pack` did not write."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `oscar codec ARRAY.npy -o {path}` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    wanted = f"{path}: expected a file written by `oscar codec ARRAY.npy -o FILE`"
    start = len(MAGIC) + _HEAD.size
    if not content.startswith(MAGIC) or len(content) < start:
        raise ConfigError(f"{wanted}, got one that begins with {content[:16]!r}")
    length, crc = _HEAD.unpack_from(content, len(MAGIC))
    header = content[start : start + length]
    if len(header) < length or zlib.crc32(header) != crc:
        raise ConfigError(f"{wanted}; this one's header is damaged: copy the file again")
    return _parse(header, wanted), content[start + length :]


def _parse(header: bytes, wanted: str) -> ArrayFile:
    """Return the header as it was packed; its CRC is right, so only another release could differ."""
    pairs = json.loads(header)
    names = [field.name for field in fields(ArrayFile)]
    if not isinstance(pairs, dict) or sorted(pairs) != sorted(names):
        raise ConfigError(f"{wanted} of this release, with {', '.join(names)}; code the array again")
    about = ArrayFile(**pairs)
    wrong = [name for name, kind in _TYPES.items() if not isinstance(pairs[name], kind)]
    wrong += [] if isinstance(about.exponent, int | None) else ["exponent"]
    wrong += [] if about.context in get_args(ContextMode) else ["context"]
    wrong += [] if wrong or all(type(n) is int and n >= 0 for n in about.shape) else ["shape"]
    wrong += [] if wrong or about.dtype[1:2] in ("i", "u", "f") else ["dtype"]
    if wrong:
        raise ConfigError(f"{wanted} of this release; {', '.join(wrong)} is something else here")
    return about
