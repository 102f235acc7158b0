"""State in one file: a tree of plain values and arrays, without pickle, written whole or not at all.

The file: 8 bytes MAGIC, u32 version (little-endian), 32 bytes SHA-256 of the rest; the rest is an .npz of
`tree` (JSON) and one flat array per dtype, in which all arrays of that dtype follow each other.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.errors import ConfigError
from oscar.files import replacing

MAGIC = b"OSCARCKP"
VERSION = 1
_HEAD = len(MAGIC) + 4 + 32
_KINDS = "biuf"  # of dtypes that may be saved: no objects, no text


def _pack(value: Any, arrays: dict[str, list[Array]]) -> Any:
    """Return `value` as JSON would have it; arrays go to `arrays` by dtype, in the order of the tree."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)  # an IntEnum too: it equals its number, also as a key
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value  # JSON keeps every bit of a float64
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_pack(item, arrays) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, arrays), _pack(item, arrays)] for key, item in value.items()]}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _KINDS:
        array = np.asarray(value)
        plain = array.astype(array.dtype.newbyteorder("<"), copy=False)
        arrays[plain.dtype.str].append(plain.reshape(-1))
        what = "scalar" if isinstance(value, np.generic) else "array"
        return {what: [plain.dtype.str, list(array.shape)]}
    raise TypeError(
        f"expected a tree of dict, list, tuple, str, int, float, bool, None, bytes and numeric arrays, got "
        f"{type(value).__name__}; convert it in state_dict()"
    )


def _unpack(node: Any, take: Callable[[str, tuple[int, ...]], Array]) -> Any:
    """Return what `_pack` was given; `take(dtype, shape)` hands out the arrays in order."""
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "bytes":
        return base64.b64decode(content, validate=True)
    if kind == "list":
        return [_unpack(item, take) for item in content]
    if kind == "tuple":
        return tuple(_unpack(item, take) for item in content)
    if kind == "dict":
        return {_unpack(key, take): _unpack(item, take) for key, item in content}
    dtype, shape = content
    array = take(dtype, tuple(shape))
    return {"array": array, "scalar": array[()]}[kind]


def flatten(tree: Any) -> tuple[str, dict[str, Array]]:
    """Return the JSON of `tree` and its arrays, one flat one per dtype; raises TypeError as `save` does."""
    arrays: dict[str, list[Array]] = defaultdict(list)
    text = json.dumps(_pack(tree, arrays))
    return text, {dtype: np.concatenate(parts) for dtype, parts in sorted(arrays.items())}


def rebuild(text: str, arrays: dict[str, Array]) -> Any:
    """Return the tree that `flatten` was given; its arrays are copies."""
    cursor = _Cursor(arrays)
    tree = _unpack(json.loads(text), cursor)
    cursor.finish()
    return tree


def digest(tree: Any) -> str:
    """Return SHA-256 over every bit of `tree`, in hexadecimal; raises TypeError as `save` does."""
    text, arrays = flatten(tree)
    total = hashlib.sha256(text.encode())
    for dtype, array in arrays.items():
        total.update(dtype.encode())
        total.update(array.tobytes())
    return total.hexdigest()


def save(path: str | os.PathLike[str], tree: Any) -> int:
    """Write `tree` to `path` and return the bytes written; until that is done, the old file stays whole.

    tree: dict (any keys of these), list, tuple, str, int, float, bool, None, bytes and arrays of numbers;
    an IntEnum comes back as its number. Raises TypeError for anything else and ConfigError when
    `path` cannot be written.
    """
    text, arrays = flatten(tree)
    payload = io.BytesIO()
    np.savez(payload, **{"tree": np.frombuffer(text.encode(), np.uint8), **arrays})  # type: ignore[arg-type]
    body = payload.getbuffer()
    with replacing(path) as file:
        file.write(MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest())
        file.write(body)
    return _HEAD + len(body)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the tree in the file; raises ConfigError for one that is damaged, cut short or foreign."""
    target = Path(path)
    try:
        data = target.read_bytes()
    except OSError as error:
        raise ConfigError(f"{target}: expected a checkpoint that can be read, got {error}") from error
    if data[: len(MAGIC)] != MAGIC:
        raise _refuse(target, "a file of another kind")
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
    if len(data) < _HEAD or version != VERSION:
        raise _refuse(target, f"version {version} with {len(data)} bytes instead of version {VERSION}")
    body = memoryview(data)[_HEAD:]
    if hashlib.sha256(body).digest() != data[_HEAD - 32 : _HEAD]:
        raise _refuse(target, "a checksum that does not fit: damaged or cut short")
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return rebuild(arrays.pop("tree").tobytes().decode(), arrays)
    except Exception as error:  # NumPy raises many undocumented errors for a bad file
        raise _refuse(target, f"content that cannot be read ({error!r})") from error


class _Cursor:
    """Hands out pieces of flat arrays, each array from its start to its end."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.held, self.at = arrays, dict.fromkeys(arrays, 0)

    def __call__(self, dtype: str, shape: tuple[int, ...]) -> Array:
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"expected a shape of integers of 0 or more, got {list(shape)}")
        size, low, flat = math.prod(shape), self.at[dtype], self.held[dtype]
        if flat.ndim != 1 or flat.dtype != np.dtype(dtype) or flat.dtype.kind not in _KINDS:
            raise ValueError(f"expected a flat array of {dtype}, got {flat.dtype} of shape {flat.shape}")
        if size > flat.size - low:
            raise ValueError(f"expected {size} values of {dtype} for a shape, got {flat.size - low}")
        self.at[dtype] = low + size
        native = np.dtype(dtype).newbyteorder("=")
        return flat[low : low + size].reshape(shape).astype(native)  # a copy

    def finish(self) -> None:
        """Raise ValueError where values are left over: shapes were changed."""
        for dtype, flat in self.held.items():
            if self.at[dtype] != flat.size:
                raise ValueError(f"expected {self.at[dtype]} values of {dtype} in all, got {flat.size}")


def _refuse(target: Path, actual: str) -> ConfigError:
    return ConfigError(
        f"{target}: expected a checkpoint of `oscar train`, got {actual}; remove it, or resume from another"
    )
