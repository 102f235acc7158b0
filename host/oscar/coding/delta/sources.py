"""Tensors of any dtype as bytes, piece by piece, and tensors like them to fill.

torch is never imported here, only used where it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from oscar.array import Array, sizes_of
from oscar.coding.delta.layout import STATE_DICT, TENSOR, Entry, words_in
from oscar.numerics.tensors import check_plain, name_of, offsets_of, parts_of

CARRIED = re.compile(r"(bool|u?int\d+|b?float\d+(_e\d+m\d+\w*)?|complex\d+)")  # names of dtypes


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
            own = self.sources[tensor]
            if not (own.on_host() and np.shares_memory(own.read(first - begin, last - begin), data)):
                own.write(first - begin, last - begin, data)

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
