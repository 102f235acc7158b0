"""Whether compression pays: measured against the plain AllReduce, decided alike on all ranks."""

from __future__ import annotations

import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from oscar.planning.costs import method_cost
from oscar.reducers.communicator import Communicator
from oscar.state import Saved
from oscar.transports.gloo import load_torch

Mode = Literal["auto", "never", "always"]
Key = tuple[int, int]  # index and values of a bucket
T = TypeVar("T")

ROUNDS = 3  # measured calls of each bucket; the medians count
FIRST = 1  # of them: after it, the plain AllReduce is held against what coding takes at the least
LOG = logging.getLogger("oscar.ddp")


class Bypass:
    """Which buckets go uncompressed.

    mode: "auto" measures each bucket's first calls (the first of all, which compiles and settles steps, does
    not count), "never" and "always" do not. group: a private one (oscar.transports.gloo), for the measured
    AllReduces, whose results nobody uses. communicator: what ranks decide by goes over it, under its
    checksums. `estimate` returns the seconds that coding so many values takes at the least; None where nobody
    knows.
    """

    def __init__(self, mode: Mode, group: Any, communicator: Communicator) -> None:
        check_mode(mode)
        self._torch, _ = load_torch()
        self.mode, self.group, self.communicator = mode, group, communicator
        self.estimate = _estimate(communicator)
        self.decided: dict[Key, bool] = {}  # whether the bucket goes uncompressed
        self._calls: dict[Key, int] = defaultdict(int)
        self._times: dict[Key, list[tuple[float, float]]] = defaultdict(list)

    def skips(self, key: Key) -> bool:
        """Whether this bucket goes uncompressed."""
        return self.mode == "always" or self.decided.get(key, False)

    def measures(self, key: Key) -> bool:
        """Whether this bucket's coming call has to be a `measured` one."""
        return self.mode == "auto" and key not in self.decided

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
            decided = {key: True for key, (plain, ours) in rows.items() if ours > plain}
            self._say(decided, rows, "ms coding alone, as estimated")
        elif rounds == ROUNDS:
            rows = self._agree(lambda key, compressed: compressed)
            decided = {key: ours >= plain for key, (plain, ours) in rows.items()}
            self._say(decided, rows, "ms compressed")
        else:
            return
        self.decided.update(decided)
        for key in decided:
            del self._times[key]

    def _agree(self, ours: Callable[[Key, float], float]) -> dict[Key, list[float]]:
        """Return by bucket the largest of all ranks: median of the plain AllReduce, and `ours`."""
        keys, rows = sorted(self._times), []
        for key in keys:
            plain, compressed = (statistics.median(t) for t in zip(*self._times[key], strict=True))
            rows.append([plain, ours(key, compressed)])
        mine = np.array(rows, "<f8").tobytes()
        every = [np.frombuffer(theirs, "<f8") for theirs in self.communicator.gather(mine, len(mine))]
        agreed = np.maximum.reduce(every).reshape(-1, 2)
        return dict(zip(keys, agreed.tolist(), strict=True))

    def _say(self, decided: dict[Key, bool], rows: dict[Key, list[float]], what: str) -> None:
        """Log new decisions on rank 0: the buckets that are bypassed, with their times."""
        if decided and self.communicator.rank == 0:
            _say({key: row for key, row in rows.items() if decided.get(key)}, len(rows), what)

    def forget_times(self) -> None:
        """Begin to measure anew, for buckets that are."""
        self._calls.clear()
        self._times.clear()

    def state_dict(self) -> dict[Key, bool]:
        """Return what has been decided."""
        return dict(self.decided)

    def resume(self, decided: dict[Key, bool]) -> None:
        """Go on from what `read_decided` returned; a mode other than "auto" has nothing to decide."""
        self.forget_times()
        self.decided = decided if self.mode == "auto" else {}


def read_decided(saved: Saved) -> dict[Key, bool]:
    """Return what `Bypass.state_dict` returned; raises ConfigError where it is none."""
    return {key: saved[key].flag() for key in saved.keys(_is_key, "(index, values) of buckets")}


def _is_key(key: Any) -> bool:
    return type(key) is tuple and len(key) == 2 and all(type(part) is int and part >= 0 for part in key)


def check_mode(mode: str) -> None:
    """Raise ValueError unless `mode` is one."""
    if mode not in get_args(Mode):
        raise ValueError(f'bypass is "auto", "never" or "always", got {mode!r}')


def _estimate(communicator: Communicator) -> Callable[[int], float]:
    """Return what coding so many values takes at the least; 0 on another NIC than the compiled one."""
    config, nodes = communicator.config, communicator.nodes
    if config.nic != "compiled":  # measuring a simulated one takes minutes; ranks may have different ones
        return lambda values: 0.0
    return lambda values: method_cost(config).coding_s(values, nodes)


def _say(bypassed: dict[Key, list[float]], buckets: int, what: str) -> None:
    if not bypassed:
        LOG.info("compression pays for all %d buckets measured", buckets)
        return
    each = "; ".join(
        f"bucket {index} ({values:,} values): {plain * 1e3:.1f} ms plain, {ours * 1e3:.1f} {what}"
        for (index, values), (plain, ours) in sorted(bypassed.items())
    )
    LOG.warning(
        "compression does not pay on this network for %d of %d buckets, which go uncompressed from now on "
        '(%s); bypass="never" compresses them all the same',
        len(bypassed),
        buckets,
        each,
    )


def ring_bytes(size: int, nodes: int) -> int:
    """Return the bytes that one of `nodes` ranks sends in a ring AllReduce of `size` bytes."""
    return 2 * size * (nodes - 1) // nodes
