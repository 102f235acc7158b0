"""Saved state: its digest, and how it is read field by field, so that nothing foreign gets in.

A `load_state_dict` reads all that it needs through `Saved` before it changes anything. Compiled code trusts
what it finds in a state (indices, sums of a histogram row, lengths), so every such bound is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.errors import ConfigError

T = TypeVar("T")

MOST_VALUES = 1 << 40  # of a gradient
MOST_BITS = (1 << 128) - 1  # of a generator's integers
MOST_STEPS = (1 << 62) - 1  # of iterations and of values counted: what fits int64 with room to add
SHOWN = 300  # characters of a value in an error


class Saved:
    """One node of a saved state: `state["nodes"][0]["residual"]`, with the path for errors.

    `path` names the state in errors; `value` is what was saved.
    """

    def __init__(self, value: Any, path: str = "state") -> None:
        self.value, self.path = value, path

    @classmethod
    def of(cls, state: Any) -> Saved:
        """Return `state` as a Saved: a caller passes on its own, a user passes a dict."""
        return state if isinstance(state, Saved) else cls(state)

    def refuse(self, expected: str, actual: str | None = None) -> ConfigError:
        """Return the error that says what was expected here."""
        text = self.shown if actual is None else actual
        advice = "; resume with the state of this model and configuration"
        return ConfigError(f"{self.path}: expected {expected}, got {text}", advice=advice)

    @property
    def shown(self) -> str:
        """The value in few words, for errors."""
        return _shown(self.value)

    def _typed(self, kind: type[T], name: str) -> T:
        if type(self.value) is not kind:
            raise self.refuse(name, f"{type(self.value).__name__} {_shown(self.value)}")
        return self.value

    def __getitem__(self, key: Hashable) -> Saved:
        """Return the value of a key of a dict; raises ConfigError where there is none."""
        held = self._typed(dict, "a dict")
        path = f"{self.path}.{key}" if isinstance(key, str) else f"{self.path}[{_named(key)}]"
        if key not in held:
            raise Saved(None, path).refuse("a value", "none")
        return type(self)(held[key], path)

    @property
    def missing(self) -> bool:
        """Whether this is None: it had no value when it was saved."""
        return self.value is None

    def keys(self, allowed: Callable[[Any], bool], expected: str) -> list[Any]:
        """Return the keys of a dict; raises ConfigError for one that is not allowed."""
        for key in self._typed(dict, "a dict"):
            if not allowed(key):
                raise self.refuse(f"keys that are {expected}", f"the key {_shown(key)}")
        return list(self.value)

    def only(self, *names: str) -> Saved:
        """Return this dict; raises ConfigError unless its keys are `names`."""
        self.keys(names.__contains__, f"of {', '.join(names)}")
        for name in names:
            self[name]
        return self

    def items(self, count: int | None = None) -> list[Saved]:
        """Return the items of a list (a tuple is one, too); raises ConfigError unless there are `count`."""
        if type(self.value) not in (list, tuple):
            raise self.refuse("a list", f"{type(self.value).__name__} {_shown(self.value)}")
        if count is not None and len(self.value) != count:
            raise self.refuse(f"{count} items", f"{len(self.value)}")
        return [type(self)(item, f"{self.path}[{index}]") for index, item in enumerate(self.value)]

    def integer(self, low: int = 0, high: int = MOST_STEPS) -> int:
        """Return an integer of low to high."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.refuse(f"an integer of {low} to {high}")
        return self.value

    def number(self, low: float, high: float) -> float:
        """Return a float of low to high; NaN is none."""
        if type(self.value) is not float or not low <= self.value <= high:
            raise self.refuse(f"a number of {low:g} to {high:g}")
        return self.value

    def flag(self) -> bool:
        """Return a bool."""
        return self._typed(bool, "true or false")

    def text(self) -> str:
        """Return a str."""
        return self._typed(str, "text")

    def fits(self, key: str, expected: object) -> None:
        """Raise ConfigError unless the value of `key` is `expected`; it names the first difference."""
        saved = self[key]
        if isinstance(expected, dict):
            for name in saved.only(*expected).value:
                saved.fits(name, expected[name])
        elif type(saved.value) is not type(expected) or saved.value != expected:
            raise ConfigError(
                f"{saved.path}: state was saved under {saved.shown}, this is {expected!r}",
                advice=": resume with the configuration of the run that saved it, "
                "each rank with its own state",
            )

    def shapes(self) -> list[tuple[int, ...]]:
        """Return a list of shapes of tensors, with at most MOST_VALUES in total."""
        shapes = [tuple(size.integer() for size in shape.items()) for shape in self.items()]
        if sum(math.prod(shape) for shape in shapes) > MOST_VALUES:
            raise self.refuse(f"shapes with at most {MOST_VALUES:,} values in total")
        return shapes

    @contextmanager
    def fitting(self) -> Iterator[None]:
        """Turn a lack of memory for tensors of these shapes into a ConfigError."""
        try:
            yield
        except MemoryError:
            raise self.refuse("shapes of tensors that fit the memory") from None

    def like(self, template: Any) -> Any:
        """Return the value; raises ConfigError unless it has the keys, types and shapes of `template`."""
        if isinstance(template, dict):
            self.only(*template)
            return {key: self[key].like(item) for key, item in template.items()}
        if isinstance(template, (list, tuple)):
            items = zip(self.items(len(template)), template, strict=True)
            return type(template)(item.like(wanted) for item, wanted in items)
        if isinstance(template, np.ndarray):
            return self.array(template.dtype, template.shape)
        if type(template) is int:
            return self.integer(0, MOST_BITS)
        if type(self.value) is not type(template) or (isinstance(template, str) and self.value != template):
            raise self.refuse(repr(template) if isinstance(template, str) else f"a {type(template).__name__}")
        return self.value

    def array(
        self,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        low: int | None = None,
        high: int | None = None,
        *,
        finite: bool = True,
    ) -> Array:
        """Return a copy, in C order, of an array of this dtype and shape whose values lie in low to high.

        finite: refuse NaN and Inf.
        """
        wanted, value = np.dtype(dtype), self.value
        if type(value) is not np.ndarray or value.dtype != wanted or value.shape != shape:
            actual = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else _shown(value)
            raise self.refuse(f"{wanted} {shape}", actual)
        if value.size:
            least, most = value.min(), value.max()  # NaN, where there is one
            if finite and wanted.kind == "f" and not (np.isfinite(least) and np.isfinite(most)):
                raise self.refuse("finite values", "NaN or Inf")
            if (low is not None and least < low) or (high is not None and most > high):
                bounds = f"{'any' if low is None else low} to {'any' if high is None else high}"
                raise self.refuse(f"values of {bounds}", f"{least} to {most}")
        return np.array(value, wanted, order="C")


Reader = Callable[[Any, Saved], Any]


class Stateful:
    """State that is saved and resumed. `STATE` names the attributes that hold it, and says how each is read.

    A reader gets the object and what was saved for the attribute, and returns its value; it raises
    ConfigError. An attribute that is Stateful reads itself. Arrays of the state are replaced, never written
    to, so that a snapshot does not copy them.
    """

    STATE: ClassVar[dict[str, Reader]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {name: _copied(getattr(self, name)) for name in self.STATE}

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved, before = Saved.of(state).only(*self.STATE), self.snapshot()
        try:
            for name, read in self.STATE.items():
                part = getattr(self, name)
                if isinstance(part, Stateful):
                    part.load_state_dict(saved[name])
                else:
                    setattr(self, name, read(self, saved[name]))
            self._follow()
        except BaseException:
            self.restore(before)
            raise

    def snapshot(self) -> Any:
        """Return a cheap token of the state for `restore`."""
        return {name: _kept(getattr(self, name)) for name in self.STATE}

    def restore(self, token: Any) -> None:
        """Go back to the state of `snapshot`."""
        for name, value in token.items():
            part = getattr(self, name)
            if isinstance(part, Stateful):
                part.restore(value)
            else:
                setattr(self, name, _kept(value))
        self._follow()

    def _follow(self) -> None:
        """Derive what depends on the state, after it was loaded or restored."""


def optional(read: Reader, *, when: Callable[[Any], bool] | None = None, without: str = "") -> Reader:
    """Return a reader of None, or of what `read` reads.

    when: whether the object has a value at all; `without` says in errors what it is that has none.
    """

    def reader(owner: Any, saved: Saved) -> Any:
        if saved.missing:
            return None
        if when is not None and not when(owner):
            raise saved.refuse(f"None {without}")
        return read(owner, saved)

    return reader


def absent(where: str) -> Reader:
    """Return a reader of None; `where` says in errors what has nothing there."""
    return optional(natural, when=lambda owner: False, without=where)


def natural(owner: Any, saved: Saved) -> int:
    """Read an integer of 0 or more."""
    return saved.integer()


PART: Reader = absent("where there is no such part")  # of an attribute that is Stateful


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, Stateful):
        return value.state_dict()
    return value.copy() if isinstance(value, np.ndarray) else value


def _kept(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.snapshot()
    return value.copy() if isinstance(value, (list, dict)) else value


def _shown(value: Any) -> str:
    """Return a plain value cut to a length, or else its type; never fails, whatever came."""
    try:
        text = repr(value) if isinstance(value, (int, float, str, bytes, tuple)) or value is None else ""
    except (ValueError, RecursionError):  # an integer of too many digits, deep nesting
        text = ""
    return (text if len(text) <= SHOWN else f"{text[:SHOWN]}...") or type(value).__name__


def _named(key: Any) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    return ", ".join(str(int(part)) if isinstance(part, int) else _shown(part) for part in parts)


def optional_integers(saved: Saved, count: int, low: int, high: int) -> list[int | None]:
    """Return a list of `count` integers of low to high, or None where one is not set."""
    return [None if item.missing else item.integer(low, high) for item in saved.items(count)]


def crc(tree: Any) -> int:
    """Return a CRC-32 over every bit of a tree of dicts, lists, arrays and plain values."""
    digest = 0
    for piece in _pieces(tree):
        digest = crc32(piece, digest)
    return digest


def _pieces(tree: Any) -> Iterator[Any]:
    if isinstance(tree, np.ndarray):
        yield f"{tree.dtype.str}{tree.shape}".encode()
        yield np.ascontiguousarray(tree).reshape(-1).view(np.uint8)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield repr(key).encode()
            yield from _pieces(value)
    elif isinstance(tree, Sequence) and not isinstance(tree, (str, bytes)):
        yield f"{len(tree)}".encode()
        for value in tree:
            yield from _pieces(value)
    else:
        yield repr(tree).encode()
