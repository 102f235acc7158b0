"""Detects that buckets take much more or much less time than when it was decided how they go."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Iterable

RECENT = 8  # calls of each bucket whose median counts
CHANGED = 2.0  # times as long, or as short
NOISE_S = 1e-3  # seconds of all buckets together by which times have to differ
Key = tuple[int, int]  # index and values of a bucket


class Watch:
    """Seconds of the last calls of each bucket on this rank, beside those after the last decision.

    Any thread may note a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: dict[Key, deque[float]] = {}
        self._before: float | None = None  # seconds of all buckets, soon after the last decision

    def note(self, key: Key, seconds: float) -> None:
        """Note the seconds of a call of a bucket, compressed or not."""
        with self._lock:
            self._recent.setdefault(key, deque(maxlen=RECENT)).append(seconds)

    def changed(self, keys: Iterable[Key]) -> bool:
        """Return True if the buckets `keys` together take much more or much less time than before.

        The first result for which all have RECENT times is False. Later times are compared with it.
        """
        with self._lock:
            calls = [tuple(self._recent.get(key, ())) for key in keys]
        if not calls or min(map(len, calls)) < RECENT:
            return False
        now = sum(map(statistics.median, calls))
        if self._before is None:
            self._before = now
        apart = abs(now - self._before) > NOISE_S
        return apart and not self._before / CHANGED <= now <= self._before * CHANGED

    def clear(self) -> None:
        """Begin anew, after a decision."""
        with self._lock:
            self._recent.clear()
        self._before = None
