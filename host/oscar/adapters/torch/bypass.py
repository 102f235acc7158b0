"""A measurement of whether compression pays against the plain AllReduce, with one decision for all ranks."""

from __future__ import annotations

import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from oscar.adapters.torch.jobs import Key, Watch
from oscar.planning.costs import method_cost
from oscar.reducers.communicator import Communicator
from oscar.state import Saved
from oscar.transports.gloo import load_torch


def bytes_of(buffer: Any, nodes: int) -> int:
    """Return about how many bytes a rank sends for a bucket that is not compressed."""
    if buffer.is_sparse:  # torch gathers indices and values
        return int(sum(part.nbytes for part in (buffer._indices(), buffer._values())) * (nodes - 1))
    return ring_bytes(buffer.numel() * buffer.element_size(), nodes)


def plain_mean(buffer: Any, nodes: int, group: Any, took: Callable[[float], None]) -> Any:
    """Return a Future of a bucket's mean, reduced by DDP's group. took: is called with the seconds."""
    buffer.div_(nodes)
    begin = time.perf_counter()
    work = load_torch()[1].all_reduce(buffer, group=group, async_op=True)

    def result(future: Any) -> Any:
        sums = future.value()[0]
        took(time.perf_counter() - begin)
        return sums if buffer.is_sparse else buffer  # of complex numbers torch returns a view as real ones

    return work.get_future().then(result)


Mode = Literal["auto", "never", "always"]
T = TypeVar("T")

ROUNDS = 3  # measured calls of each bucket; the medians count
FIRST = 1  # of them: after it, the plain AllReduce is compared with the least that coding takes
LOOK = 300  # backwards after which one bucket is measured again
VOTE = 16  # backwards between two votes of the ranks on whether times have changed
REST = 64  # backwards after a decision, at least, before changed times are looked at
MARGIN = 1.1  # by which the other way has to be faster before a bucket that was decided goes it
LOG = logging.getLogger("oscar.ddp")


class Bypass:
    """Decides which buckets go uncompressed.

    Decisions are checked again: one bucket, in turns, every LOOK backwards, and the largest one when a rank
    finds that times have changed a lot. If the decision on a bucket changes, all others are measured, too.

    Args:
        mode: "auto" measures each bucket's first calls, except the very first, which compiles and settles
            steps. "never" and "always" measure nothing.
        group: A private group (oscar.transports.gloo), for the measured AllReduces, whose results nobody
            uses.
        communicator: Carries what the ranks decide by, under its checksums.

    Attributes:
        estimate: Returns the least seconds that coding a number of values takes; 0 on a simulated NIC.
        decided: By bucket, True if it goes uncompressed.
    """

    def __init__(self, mode: Mode, group: Any, communicator: Communicator) -> None:
        check_mode(mode)
        self._torch, _ = load_torch()
        self.mode, self.group, self.communicator = mode, group, communicator
        config, nodes = communicator.config, communicator.nodes
        self.estimate: Callable[[int], float] = lambda values: method_cost(config).coding_s(values, nodes)
        if config.nic != "compiled":  # measuring a simulated one takes minutes; ranks may have different ones
            self.estimate = lambda values: 0.0
        self.watch = Watch()
        self.decided: dict[Key, bool] = {}
        self._calls: dict[Key, int] = defaultdict(int)
        self._times: dict[Key, list[tuple[float, float]]] = defaultdict(list)
        self._again: set[Key] = set()  # decided before, and measured now
        self._next: set[Key] = set()  # to be measured from the next backward on
        self._looked: set[Key] = set()  # measured since the last turn
        self._since = self._turns = 0  # backwards since the last decision; turns so far

    def skips(self, key: Key) -> bool:
        """Return True if this bucket goes uncompressed."""
        return self.mode == "always" or (self.decided.get(key, False) and key not in self._again)

    def measures(self, key: Key) -> bool:
        """Return True if this bucket's next call has to be a `measured` one."""
        return self.mode == "auto" and (key not in self.decided or key in self._again)

    def begin(self, *, changed: bool) -> bool:
        """Begin a backward: choose what is measured again. Return True if ranks have to vote in it.

        To be called on all ranks alike, before the first bucket. changed: the result of the vote in the
        backward before, which is True if the `watch` of a rank has seen other times.
        """
        if self.mode != "auto" or not self.decided or self._times or self._again:
            return False
        self._since += 1
        if self._next:
            self._again, self._next = self._next, set()
        elif changed and self._since > REST:
            self._look(max(self.decided, key=lambda key: (key[1], key)))
        elif self._since >= LOOK:
            self._look(sorted(self.decided)[self._turns % len(self.decided)])
            self._turns += 1
        return not self._again and self._since % VOTE == 0

    def _look(self, key: Key) -> None:
        self._again, self._looked, self._since = {key}, set(), 0
        self._calls.pop(key, None)

    def vote(self) -> bool:
        """Return True if times have changed a lot on some rank; collective."""
        mine = self.watch.changed(list(self.decided))
        return any(any(vote) for vote in self.communicator.gather(bytes([mine]), 1))

    def measured(self, key: Key, buffer: Any, compressed: Callable[[], T]) -> T:
        """Return `compressed()`, timed beside the AllReduce of a copy of `buffer`; collective."""
        self._calls[key] += 1
        if self._calls[key] == 1:
            return compressed()
        scratch = buffer.clone()
        self.group.allreduce([self._torch.zeros(1)]).wait()  # ranks that come late are not our cost
        begin = time.perf_counter()
        self.group.allreduce([scratch]).wait()
        middle = time.perf_counter()
        result = compressed()
        self._times[key].append((middle - begin, time.perf_counter() - middle))
        return result

    def settle(self) -> None:
        """Decide what can be decided, once an iteration has ended; collective.

        After the first measured round, buckets whose estimated coding alone takes longer than the plain
        AllReduce go uncompressed. After the last, all others are decided.
        """
        rounds = min((len(times) for times in self._times.values()), default=0)
        if rounds == FIRST:
            rows = self._agree(lambda key, compressed: self.estimate(key[1]))
            decided = {key: True for key, (plain, ours) in rows.items() if ours > plain * self._margin(key)}
            what = "ms coding alone, as estimated"
        elif rounds == ROUNDS:
            rows = self._agree(lambda key, compressed: compressed)
            decided = {key: ours >= plain * self._margin(key) for key, (plain, ours) in rows.items()}
            what = "ms compressed"
        else:
            return
        changed = {key for key, skipped in decided.items() if self.decided.get(key, skipped) != skipped}
        self._log({key: decided[key] for key in decided.keys() - (self.decided.keys() - changed)}, rows, what)
        self.decided.update(decided)
        for key, skipped in decided.items():
            del self._times[key]
            if skipped:  # what error feedback has would be out of date when the bucket is compressed again
                self.communicator.states.pop(key, None)
        self._again -= decided.keys()
        self._looked |= decided.keys()
        if changed:
            self._next = self.decided.keys() - self._looked - self._times.keys()
            for key in self._next:
                self._calls.pop(key, None)
        if decided:
            self._since = 0
            self.watch.clear()

    def _margin(self, key: Key) -> float:
        """Return the factor for the plain AllReduce's time, by which a decision resists a change."""
        if key not in self.decided:
            return 1.0
        return 1 / MARGIN if self.decided[key] else MARGIN

    def _agree(self, ours: Callable[[Key, float], float]) -> dict[Key, list[float]]:
        """Return by bucket the largest value of all ranks: median of the plain AllReduce, and `ours`."""
        keys, rows = sorted(self._times), []
        for key in keys:
            plain, compressed = (statistics.median(t) for t in zip(*self._times[key], strict=True))
            rows.append([plain, ours(key, compressed)])
        mine = np.array(rows, "<f8").tobytes()
        all_ranks = [np.frombuffer(theirs, "<f8") for theirs in self.communicator.gather(mine, len(mine))]
        agreed = np.maximum.reduce(all_ranks).reshape(-1, 2)
        return dict(zip(keys, agreed.tolist(), strict=True))

    def _log(self, decided: dict[Key, bool], rows: dict[Key, list[float]], what: str) -> None:
        """Log new decisions on rank 0: the buckets that are bypassed, with their times."""
        if not decided or self.communicator.rank != 0:
            return
        times = "; ".join(
            f"bucket {index} ({values:,} values): {plain * 1e3:.1f} ms plain, {ours * 1e3:.1f} {what}"
            for (index, values), (plain, ours) in sorted(rows.items())
            if decided.get((index, values))
        )
        if times:
            LOG.warning(
                "compression does not pay on this network for %d of %d buckets, which go uncompressed from "
                'now on (%s); bypass="never" compresses them all the same',
                sum(bool(decided.get(key)) for key in rows), len(rows), times,
            )  # fmt: skip
        else:
            LOG.info("compression pays for all %d buckets measured", len(rows))
        again = sum(self.decided.get(key, False) and not skipped for key, skipped in decided.items())
        if again:
            LOG.warning("compression pays now for %d buckets, which were uncompressed before", again)

    def leave(self, key: Key) -> None:
        """Take back that a bucket is measured again, because it cannot be."""
        self._again.discard(key)

    def forget(self) -> None:
        """Drop all decisions, because buckets are made anew; `forget_times` has to follow."""
        self.decided.clear()
        self._again, self._next, self._since = set(), set(), 0

    def forget_times(self) -> None:
        """Drop all measured times, because buckets are made anew."""
        self._calls.clear()
        self._times.clear()
        self.watch.clear()

    def state_dict(self) -> dict[Key, bool]:
        """Return a copy of the decisions."""
        return dict(self.decided)

    def resume(self, decided: dict[Key, bool]) -> None:
        """Go on with the decisions of `read_decided`. A mode other than "auto" has nothing to decide."""
        self.forget()
        self.forget_times()
        self.decided = decided if self.mode == "auto" else {}


def read_decided(saved: Saved) -> dict[Key, bool]:
    """Return the decisions that `Bypass.state_dict` returned. Raises ConfigError if `saved` has none."""
    return {key: saved[key].flag() for key in saved.keys(_is_key, "(index, values) of buckets")}


def _is_key(key: Any) -> bool:
    return type(key) is tuple and len(key) == 2 and all(type(part) is int and part >= 0 for part in key)


def check_mode(mode: object) -> None:
    """Raise TypeError unless `mode` is text, and ValueError unless it is a mode."""
    if not isinstance(mode, str):
        raise TypeError(
            f'bypass: expected "auto", "never" or "always", got {mode!r}; "never" compresses every bucket, '
            '"always" none'
        )
    if mode not in get_args(Mode):
        raise ValueError(f'bypass is "auto", "never" or "always", got {mode!r}')


def ring_bytes(size: int, nodes: int) -> int:
    """Return the bytes that one of `nodes` ranks sends in a ring AllReduce of `size` bytes."""
    return 2 * size * (nodes - 1) // nodes
