"""What coding costs this machine: measured at first use, and kept in the user's cache folder.

`kept` is the one way to keep such a measurement; oscar.planning.costs keeps those of methods with it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from oscar.errors import ConfigError
from oscar.files import waiting_lock, write_json
from oscar.provenance import installed, processor
from oscar.version import __version__

MOST_SECONDS = 1e3  # beyond this a time is of no use, and further out it is no number any more
SIZES = 1 << 14, 1 << 18  # values of the two frames through which the line of a cost goes
TURNS, LEAST_TURNS, ENOUGH_S = 9, 3, 0.3  # of each size: the first compiles, the best of the others counts
FILE, LOCK = "costs.json", "costs.lock"
LOCK_S = 5.0  # a writer holds the lock for milliseconds; one that is stopped keeps nobody
clock = time.thread_time  # of the work alone: ranks that measure side by side share the cores
_here: dict[str, dict[str, Cost]] = {}  # what this process has measured or read


@dataclass(frozen=True)
class Cost:
    """What work on n values costs: seconds of one core or engine, and bytes that it sends.

    Both are a straight line: so much for each value, and so much once. Raises ValueError for what is no cost.
    """

    per_value_s: float
    once_s: float
    per_value_bytes: float = 0.0
    once_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("per_value_s", "once_s"):
            check_seconds(name, getattr(self, name))
        for name in ("per_value_bytes", "once_bytes"):
            size = getattr(self, name)
            if not is_number(size) or size < 0:
                raise ValueError(f"{name}: expected bytes of 0 or more, got {size!r}")

    @classmethod
    def through(cls, sizes: Sequence[int], seconds: Sequence[float], sent: Sequence[float] = (0, 0)) -> Cost:
        """Return the line through what two numbers of values took and sent."""
        (short, long), (begin, end) = sizes, seconds
        each = (end - begin) / (long - short)
        if each <= 0:  # noise
            each = end / long
        every = max(0.0, (sent[1] - sent[0]) / (long - short))
        return cls(each, max(0.0, begin - each * short), every, max(0.0, sent[0] - every * short))

    def seconds(self, values: float) -> float:
        """Return the seconds for so many values."""
        return self.per_value_s * values + self.once_s

    def bytes(self, values: float) -> float:
        """Return the bytes for so many values."""
        return self.per_value_bytes * values + self.once_bytes

    def share(self, part: float) -> Cost:
        """Return the cost where only this part of the values is worked on; of none, nothing."""
        if not part:
            return Cost(0.0, 0.0)
        each, every = self.per_value_s * part, self.per_value_bytes * part
        return replace(self, per_value_s=each, per_value_bytes=every)


@dataclass(frozen=True)
class FrameCost:
    """What one frame costs: `encode` sends its bytes, `decode` sends none."""

    encode: Cost
    decode: Cost


def check_seconds(name: str, seconds: object) -> None:
    """Raise ValueError unless `seconds` is a time that a model can use."""
    if not is_number(seconds) or not 0 <= seconds <= MOST_SECONDS:  # type: ignore[operator]
        raise ValueError(f"{name}: expected seconds from 0 to {MOST_SECONDS:g}, got {seconds!r}")


def is_number(value: object) -> bool:
    """Whether `value` is a finite number; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def machine() -> str:
    """Return what a measurement holds for: this processor, this version, and that of what compiles it."""
    return f"{processor()}, oscar {__version__}, numba {installed('numba')}"


def kept(key: str, names: Sequence[str], measure: Callable[[], dict[str, Cost]]) -> dict[str, Cost]:
    """Return the costs `names` of `key`: those of this process, those in the cache folder, or `measure()`.

    Another processor or version measures anew, and so does a file that cannot be read. Where nothing can be
    written, each process measures for itself.
    """
    if key not in _here:
        path, own = _path(), machine()
        found = None if path is None else _parse(_read(path), own, key, names)
        if found is None:
            found = measure()
            if path is not None:
                _write(path, own, key, found)
        _here[key] = found
    return _here[key]


def _path() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oscar" / FILE
    except RuntimeError:  # a user without HOME or an entry in passwd, as containers have them
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _parse(tree: Any, own: str, key: str, names: Sequence[str]) -> dict[str, Cost] | None:
    try:
        return {name: Cost(*tree[own][key][name]) for name in names}
    except (KeyError, TypeError, ValueError):
        return None


def _write(path: Path, own: str, key: str, costs: dict[str, Cost]) -> None:
    """Add one measurement to the file; another process that writes it just now loses none of its own."""
    rows = {name: [c.per_value_s, c.once_s, c.per_value_bytes, c.once_bytes] for name, c in costs.items()}
    with suppress(OSError, ConfigError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with waiting_lock(path.with_name(LOCK), LOCK_S):
            tree = _read(path)
            before = tree.get(own)
            tree[own] = {**(before if isinstance(before, dict) else {}), key: rows}
            write_json(path, tree)


def best(turn: Callable[[], Sequence[float]]) -> list[float]:
    """Return the least of each of the seconds that `turn` returns, over some turns after the first."""
    turn()
    took: list[Sequence[float]] = []
    began = time.perf_counter()
    while len(took) < TURNS - 1:
        took.append(turn())
        if len(took) >= LEAST_TURNS - 1 and time.perf_counter() - began > ENOUGH_S:
            break
    return [min(seconds) for seconds in zip(*took, strict=True)]


def measure_frames(make_encoder: Callable[[], Any], make_decoder: Callable[[], Any], dtype: Any) -> FrameCost:
    """Time a codec on Laplace values of sigma 8 steps, whole calls on arrays, with tables that are learnt."""
    rng = np.random.default_rng(0)
    values = np.clip(np.rint(rng.laplace(0, 8 / np.sqrt(2), SIZES[1])), -127, 127).astype(dtype)
    rows = [_frame(make_encoder(), make_decoder(), values[:size]) for size in SIZES]
    encode, decode, sent = zip(*rows, strict=True)
    return FrameCost(Cost.through(SIZES, encode, sent), Cost.through(SIZES, decode))


def _frame(sender: Any, receiver: Any, values: np.ndarray) -> tuple[float, float, int]:
    """Return the least seconds of encoding and decoding, and the bytes of the last frame."""
    classes, frame = np.zeros(values.size, np.uint8), b""

    def turn() -> tuple[float, float]:
        nonlocal frame
        began = clock()
        frame = sender.encode(values, step=0, context=classes)
        middle = clock()
        receiver.decode(frame, step=0, context=classes)
        return middle - began, clock() - middle

    encode, decode = best(turn)
    return encode, decode, len(frame)
