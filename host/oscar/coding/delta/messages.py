"""Tensors and state dicts as the difference from a base: `encode` and `decode` (docs/reference/delta.md).

Tensors of any dtype are read and written as bytes, piece by piece. torch is never imported here, only used
where it is.
"""

from __future__ import annotations

import re
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from oscar.array import Array, sizes_of
from oscar.coding.codec import check_header
from oscar.coding.delta.codec import DeltaCoder
from oscar.coding.delta.layout import (
    CODE,
    PIECE,
    STATE_DICT,
    TENSOR,
    Entry,
    damaged,
    differences,
    pack_head,
    read_head,
    words_in,
)
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame, unpack_frame
from oscar.errors import WrongBaseError
from oscar.numerics.tensors import check_plain, name_of, offsets_of, parts_of

CARRIED = re.compile(r"(bool|u?int\d+|b?float\d+(_e\d+m\d+\w*)?|complex\d+)")  # names of dtypes
FLOATS = ("float32", "bfloat16")  # dtypes that oscar.floats codes
_threads = threading.local()


class Source:
    """A tensor as flat values in native byte order, of NumPy or PyTorch, on any device.

    Attributes: ``entry``, what a message says of it; ``itemsize``, bytes of a value; ``size``, values.
    """

    def __init__(self, name: str, tensor: Any) -> None:
        """Take a tensor; raises TypeError for what has no plain numbers."""
        if not (hasattr(tensor, "shape") and hasattr(tensor, "dtype")):
            raise TypeError(
                f"{_prefix(name)}expected an array of NumPy or a tensor of PyTorch, got "
                f"{type(tensor).__name__}; leave it out, or send it apart"
            )
        self.of_torch = hasattr(tensor, "detach")
        dtype = name_of(tensor.dtype) if self.of_torch else np.asarray(tensor).dtype.name
        if not CARRIED.fullmatch(dtype):
            raise TypeError(f"{_prefix(name)}expected a dtype of numbers, got {dtype}; convert it first")
        try:
            self.flat: Any = _flat_of_torch(tensor) if self.of_torch else _flat_of_numpy(tensor)
        except TypeError as error:
            raise TypeError(f"{_prefix(name)}{error}") from None
        self.entry = Entry(name, dtype, tuple(map(int, tensor.shape)))
        (self.size,) = sizes_of([self.entry.shape])
        self.itemsize = int(self.flat.dtype.itemsize)
        self.words = words_in(self.size, self.itemsize)

    def like(self) -> Source:
        """Return a new tensor with the same shape, dtype and device, whose values are not set."""
        return Source(self.entry.name, self._empty().reshape(self.entry.shape))

    def _empty(self) -> Any:
        return self.flat.new_empty(self.size) if self.of_torch else np.empty(self.size, self.flat.dtype)

    def tensor(self) -> Any:
        """Return the tensor in its shape."""
        return self.flat.reshape(self.entry.shape)

    def on_host(self) -> bool:
        """Return True if `read` gives the tensor's own memory."""
        return not self.of_torch or str(self.flat.device) == "cpu"

    def read(self, low: int, high: int) -> Array:
        """Return words `low` to `high`, as many bytes as they have, uint8; copied from a device."""
        low, high = (word * self.size // max(1, self.words) for word in (low, high))
        part = self.flat[low:high]
        if self.of_torch:
            part = part.cpu().view(sys.modules["torch"].uint8).numpy()
        return part.view(np.uint8)

    def write(self, low: int, high: int, data: Array) -> None:
        """Set words `low` to `high` from bytes, uint8."""
        if self.on_host():
            np.copyto(self.read(low, high), data)
            return
        low, high = (word * self.size // max(1, self.words) for word in (low, high))
        torch: Any = sys.modules["torch"]
        self.flat[low:high].copy_(torch.from_numpy(data).view(self.flat.dtype))


def _prefix(name: str) -> str:
    return f"{name!r}: " if name else ""


def _flat_of_torch(tensor: Any) -> Any:
    check_plain(tensor)
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)


def _flat_of_numpy(tensor: Any) -> Array:
    array = np.asarray(tensor)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1)


def sources_of(tensors: Any) -> tuple[int, list[Source]]:
    """Return the kind of a message, and its tensors in the order of their names.

    Args:
        tensors: one tensor, or a mapping of names to tensors.
    """
    if not isinstance(tensors, Mapping):
        return TENSOR, [Source("", tensors)]
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"expected a state dict with names as keys, got the key {name!r}; rename it")
    return STATE_DICT, [Source(name, tensors[name]) for name in sorted(tensors)]


class Run:
    """Tensors of one dtype, one after the other, as words of up to 4 bytes."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.offsets = offsets_of([source.words for source in sources])
        self.words = int(self.offsets[-1])
        self.dtype = sources[0].entry.dtype
        self.word = np.dtype(f"u{min(4, sources[0].itemsize)}")
        self._room = np.empty(0, self.word)

    def read(self, low: int, high: int) -> Array:
        """Return words `low` to `high`; overwritten by the next call where several tensors have them."""
        parts = list(parts_of(self.offsets.tolist(), low, high))
        if len(parts) == 1:
            tensor, first, last = parts[0]
            begin = int(self.offsets[tensor])
            return self.sources[tensor].read(first - begin, last - begin).view(self.word)
        room = self.room(high - low)
        for tensor, first, last in parts:
            begin = int(self.offsets[tensor])
            data = self.sources[tensor].read(first - begin, last - begin)
            room[first - low : last - low] = data.view(self.word)
        return room

    def target(self, low: int, high: int) -> Array:
        """Return an array for words `low` to `high`, which `store` takes: the tensor's memory if it can."""
        parts = list(parts_of(self.offsets.tolist(), low, high))
        if len(parts) == 1 and self.sources[parts[0][0]].on_host():
            return self.read(low, high)
        return self.room(high - low)

    def store(self, low: int, high: int, words: Array) -> None:
        """Set words `low` to `high`."""
        for tensor, first, last in parts_of(self.offsets.tolist(), low, high):
            begin, data = int(self.offsets[tensor]), words[first - low : last - low].view(np.uint8)
            source = self.sources[tensor]
            if not (source.on_host() and np.shares_memory(source.read(first - begin, last - begin), data)):
                source.write(first - begin, last - begin, data)

    def room(self, words: int) -> Array:
        """Return memory for that many words, kept from call to call."""
        if self._room.size < words:
            self._room = np.empty(words, self.word)
        return self._room[:words]


def runs_of(sources: list[Source]) -> list[Run]:
    """Return the tensors by dtype, in the order in which each dtype comes first; empty ones are left out."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        if source.size:
            groups.setdefault(source.entry.dtype, []).append(source)
    return [Run(group) for group in groups.values()]


def _coder() -> DeltaCoder:
    """Return this thread's coder, which keeps its memory."""
    if not hasattr(_threads, "coder"):
        _threads.coder = DeltaCoder()
    return _threads.coder


def encode(new: Any, base: Any) -> bytes:
    """Return the bytes from which `decode` makes `new`, bit for bit, where `base` is.

    Args:
        new: tensor of NumPy or PyTorch, of any dtype and shape, on any device; or a mapping of names to
            tensors, such as a state dict.
        base: what the receiver has already: of the same names, shapes and dtypes.

    Returns:
        The message. Beside its head, which lists the tensors, it has at most 9 bytes for each 2^22 values
        more than that of `oscar.floats`, or 33 more than the values themselves for other dtypes.

    Raises:
        WrongBaseError: names, shapes or dtypes differ; the text names them.
        TypeError: what is not a tensor with plain numbers.
        ValueError: a name or a number of dimensions is too large for the format.

    >>> import numpy as np
    >>> base = np.linspace(-1, 1, 10_000, dtype=np.float32)
    >>> new = base.copy()
    >>> new[::50] *= np.float32(1.0001)
    >>> data = encode(new, base)
    >>> len(data) < 0.02 * new.nbytes, decode(data, base).tobytes() == new.tobytes()
    (True, True)
    """
    return b"".join(encode_pieces(new, base))


def encode_pieces(new: Any, base: Any) -> Iterator[bytes]:
    """Yield the message of `encode` in parts, of up to 16 MiB, for a file or a socket.

    Args:
        new: as for `encode`; nothing may change it until the last part is there.
        base: as for `encode`, too.

    Returns:
        An iterator over the parts, each made when it is asked for. Tensors on a device are copied to the host
        in pieces of 2^22 values.

    Raises:
        WrongBaseError: as `encode`, and TypeError and ValueError; at the first part.

    >>> import numpy as np
    >>> base = np.zeros(3, np.int16)
    >>> data = b"".join(encode_pieces(base + np.int16(1), base))
    >>> decode(data, base).tolist()
    [1, 1, 1]
    """
    kind, sources = sources_of(new)
    base_kind, base_sources = sources_of(base)
    if kind != base_kind:
        names = type(new).__name__, type(base).__name__
        raise WrongBaseError(f"expected two tensors, or two mappings of them, got {names[0]} and {names[1]}")
    entries, base_entries = ([one.entry for one in each] for each in (sources, base_sources))
    if entries != base_entries:
        raise WrongBaseError(differences(entries, base_entries, "the new tensors", "the base"))
    yield pack_head(kind, entries)
    for run, base_run in zip(runs_of(sources), runs_of(base_sources), strict=True):
        for number, low in enumerate(range(0, run.words, PIECE)):
            high = min(low + PIECE, run.words)
            here = run.read(low, high), base_run.read(low, high)
            payload = _coder().encode(*here, floats=run.dtype in FLOATS)
            width = 8 * run.word.itemsize
            yield pack_frame(Header(CODE, 0, high - low, width=width, sequence=number), payload)


def decode(data: bytes, base: Any) -> Any:
    """Return the tensor or the state dict that `encode` was given.

    Args:
        data: the message, bytes-like.
        base: the same values as the base that `encode` had. It is not changed.

    Returns:
        New tensors of the base's kind, NumPy's or PyTorch's, on its device; for a mapping a dict in its
        order.

    Raises:
        WrongBaseError: the base has other names, shapes, dtypes or values.
        FrameError: the bytes are damaged, or no encoder writes them.
        TypeError: the base is not of tensors with plain numbers.

    >>> import numpy as np
    >>> base = {"weight": np.ones((2, 2), np.float16), "steps": np.array(7)}
    >>> new = {"weight": base["weight"] / 2, "steps": np.array(8)}
    >>> decode(encode(new, base), base)["steps"]
    array(8)
    """
    kind, sources = sources_of(base)
    entries = [source.entry for source in sources]
    rest = read_head(data, pack_head(kind, entries), kind, entries)
    results = {source.entry.name: source.like() for source in sources}
    for run in runs_of(sources):
        rest = _read_run(rest, run, Run([results[source.entry.name] for source in run.sources]))
    if len(rest):
        raise damaged("no bytes after the last piece", f"{len(rest)}")
    if isinstance(base, Mapping):
        return {name: results[name].tensor() for name in base}
    (result,) = results.values()
    return result.tensor()


def _read_run(rest: memoryview, base: Run, out: Run) -> memoryview:
    """Fill the tensors of one dtype; return the bytes after their pieces."""
    for number, low in enumerate(range(0, base.words, PIECE)):
        high = min(low + PIECE, base.words)
        length = struct.unpack_from("<I", rest, 16)[0] if len(rest) >= HEADER_BYTES else 0
        end = HEADER_BYTES + length
        if len(rest) < end:
            raise damaged(f"a piece of {end} bytes", f"{len(rest)}")
        header, payload = unpack_frame(rest[:end])
        check_header(header, codec=CODE, step=0, sequence=number & 0xFFFF)
        size, sent = (high - low, 8 * base.word.itemsize), (header.count, header.width)
        if sent != size:
            raise damaged("a piece of {} words of {} bits".format(*size), "{} of {}".format(*sent))
        target = out.target(low, high)
        _coder().decode(payload, base.read(low, high), target, floats=base.dtype in FLOATS)
        out.store(low, high, target)
        rest = rest[end:]
    return rest
