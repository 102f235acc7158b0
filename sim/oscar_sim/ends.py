"""Stream ends in memory, as plain objects that are moved on once a clock (see cycles.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from oscar_hdl.streams.bundles import Stream
from oscar_sim.bench import Pause, never


class Feeder:
    """Sends the words of a queue: (data, last). pause: whether to idle before offering the next."""

    def __init__(self, stream: Stream, pause: Pause = never) -> None:
        self.stream, self.pause = stream, pause
        self.queue: deque[tuple[int, bool]] = deque()
        self.offered = False

    def put(self, words: Iterable[int]) -> None:
        """Queue words, the last with tlast."""
        words = [int(w) for w in words]
        self.queue.extend((w, i == len(words) - 1) for i, w in enumerate(words))

    def tick(self) -> None:
        """One rising edge."""
        s = self.stream
        if self.offered and not s.tready:
            return
        if not self.offered and not self.queue:
            return
        self.offered = bool(self.queue) and not self.pause()
        s.tvalid.next = self.offered
        if self.offered:
            data, last = self.queue.popleft()
            s.tdata.next = data
            s.tlast.next = last


class Collector:
    """Takes words, (data, last) apart; pause: whether not to be ready in the next clock."""

    def __init__(self, stream: Stream, pause: Pause = never) -> None:
        self.stream, self.pause = stream, pause
        self.words: list[int] = []
        self.ready = False

    def tick(self) -> None:
        """One rising edge."""
        s = self.stream
        if self.ready and s.tvalid:
            self.words.append(int(s.tdata))
        ready = not self.pause()
        if ready != self.ready:
            s.tready.next = self.ready = ready
