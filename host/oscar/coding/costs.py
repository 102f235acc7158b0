"""The cost of coding on this machine: measured at first use, then kept in the user's cache folder.

`kept` measures and keeps costs, here those of frames. oscar.planning.costs keeps those of methods with it.
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

from oscar.cores import at_most
from oscar.errors import ConfigError
from oscar.files import waiting_lock, write_json
from oscar.provenance import installed, processor
from oscar.version import __version__

MOST_SECONDS = 1e3  # seconds; a longer time would be a fault in the file or the clock
SIZES = 1 << 14, 1 << 19  # values of the two frames through which the cost's line goes
SPREAD = 0.7  # of the logarithm of a position's scale, as gradients of mid-training have
# Turns for each size: the first one compiles, the least or the median of the others counts.
TURNS, LEAST_TURNS, ENOUGH_S = 9, 4, 0.3
MEASUREMENT = 6  # raise it when what is measured changes: costs that were kept are void then
FILE, LOCK = "costs.json", "costs.lock"
LOCK_S = 5.0  # seconds to wait for the lock; a writer holds it for milliseconds
clock = time.thread_time  # the thread's own time, as ranks that measure side by side share the cores
_here: dict[str, dict[str, Cost]] = {}  # costs that this process has measured or read


@dataclass(frozen=True)
class Cost:
    """The cost of work on n values: seconds of one core or engine, and bytes sent.

    per_value_s, once_s: seconds for each value, and once; per_value_bytes, once_bytes: the same for bytes.
    Raises ValueError unless all are finite and not negative.

    >>> Cost(per_value_s=2e-9, once_s=1e-5).seconds(5000)
    2e-05
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
        """Return the line through two measurements: seconds and bytes sent for two numbers of values."""
        (short, long), (begin, end) = sizes, seconds
        each = (end - begin) / (long - short)
        if each <= 0:  # noise: the longer call took less
            each = end / long
        every = max(0.0, (sent[1] - sent[0]) / (long - short))
        return cls(each, max(0.0, begin - each * short), every, max(0.0, sent[0] - every * short))

    def seconds(self, values: float) -> float:
        """Return the seconds for `values` values."""
        return self.per_value_s * values + self.once_s

    def bytes(self, values: float) -> float:
        """Return the bytes for `values` values."""
        return self.per_value_bytes * values + self.once_bytes

    def share(self, part: float) -> Cost:
        """Return the cost if only the share `part` of the values is worked on; no cost if it is 0."""
        if not part:
            return Cost(0.0, 0.0)
        each, every = self.per_value_s * part, self.per_value_bytes * part
        return replace(self, per_value_s=each, per_value_bytes=every)

    def slower(self, factor: float) -> Cost:
        """Return the cost of a machine that takes `factor` times as long."""
        return replace(self, per_value_s=self.per_value_s * factor, once_s=self.once_s * factor)


@dataclass(frozen=True)
class FrameCost:
    """The cost of one frame: `encode` sends its bytes, `decode` sends none.

    >>> FrameCost(Cost(2e-9, 1e-5), Cost(1e-9, 1e-5)).decode.seconds(0)
    1e-05
    """

    encode: Cost
    decode: Cost


def check_seconds(name: str, seconds: object) -> None:
    """Raise ValueError unless `seconds` is a number from 0 to MOST_SECONDS."""
    if not is_number(seconds) or not 0 <= seconds <= MOST_SECONDS:  # type: ignore[operator]
        raise ValueError(f"{name}: expected seconds from 0 to {MOST_SECONDS:g}, got {seconds!r}")


def is_number(value: object) -> bool:
    """Return whether `value` is a finite number; a bool is not a number here."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def machine() -> str:
    """Return the machine that a measurement holds for: its processor and the versions of oscar and numba."""
    return f"{processor()}, oscar {__version__}, numba {installed('numba')}"


def kept(key: str, names: Sequence[str], measure: Callable[[], dict[str, Cost]]) -> dict[str, Cost]:
    """Return the costs `names` of `key`: from this process, from the cache folder, or from `measure()`.

    Another processor or version measures anew, and so does a process that cannot read the file. If the folder
    cannot be written, each process measures for itself.
    """
    if key not in _here:
        path, own = _path(), machine()
        result = None if path is None else _parse(_read(path), own, key, names)
        if result is None:
            result = measure()
            if path is not None:
                _write(path, own, key, result)
        _here[key] = result
    return _here[key]


def _path() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oscar" / FILE
    except RuntimeError:
        return None  # a user without HOME and without an entry in passwd, as in containers


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
    """Add one measurement to the file; measurements that other processes write meanwhile are kept."""
    rows = {name: [c.per_value_s, c.once_s, c.per_value_bytes, c.once_bytes] for name, c in costs.items()}
    with suppress(OSError, ConfigError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with waiting_lock(path.with_name(LOCK), LOCK_S):
            tree = _read(path)
            before = tree.get(own)
            tree[own] = {**(before if isinstance(before, dict) else {}), key: rows}
            write_json(path, tree)


def repeated(
    turn: Callable[[], Sequence[float]], choose: Callable[[Sequence[float]], float] = min
) -> list[float]:
    """Return the least, or what `choose` gives, of each number that `turn` returns, after the first turn.

    Turns use one thread: `clock` sees no other.
    """
    took: list[Sequence[float]] = []
    with at_most(1):
        turn()
        began = time.perf_counter()
        while len(took) < TURNS - 1:
            took.append(turn())
            if len(took) >= LEAST_TURNS - 1 and time.perf_counter() - began > ENOUGH_S:
                break
    return [choose(numbers) for numbers in zip(*took, strict=True)]


def measure_frames(make_encoder: Callable[[], Any], make_decoder: Callable[[], Any], dtype: Any) -> FrameCost:
    """Time whole calls of a codec, after its tables have learnt.

    Values are Laplace with a sigma of 8 steps, at positions with scales of their own. Their classes differ,
    as those of gradients do.
    """
    rng = np.random.default_rng(0)
    means = 8 / np.sqrt(2) * np.exp(SPREAD * rng.standard_normal(SIZES[1]) - SPREAD**2)  # of magnitudes
    values = np.clip(np.rint(rng.laplace(0, means)), -127, 127).astype(dtype)
    classes = np.clip(np.frexp(16 * means)[1], 0, 15).astype(np.uint8)  # as oscar.numerics.position has them
    rows = [_frame(make_encoder(), make_decoder(), values[:size], classes[:size]) for size in SIZES]
    encode, decode, sent = zip(*rows, strict=True)
    return FrameCost(Cost.through(SIZES, encode, sent), Cost.through(SIZES, decode))


def _frame(sender: Any, receiver: Any, values: np.ndarray, classes: np.ndarray) -> tuple[float, float, int]:
    """Return the least seconds to encode and to decode, and the bytes of the last frame."""
    frame = b""

    def turn() -> tuple[float, float]:
        nonlocal frame
        began = clock()
        frame = sender.encode(values, step=0, context=classes)
        middle = clock()
        receiver.decode(frame, step=0, context=classes)
        return middle - began, clock() - middle

    encode, decode = repeated(turn)
    return encode, decode, len(frame)
