"""One rank of a run in which a fault strikes one rank: started by transport_faults, which reads its lines."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

from oscar.checkpoint import digest
from oscar.collective.actions import SENDS, Op
from oscar.collective.local import damaged
from oscar.collective.schedules import make_schedule
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.base import STATE_TAG, Transport
from oscar_lab.lab import network
from oscar_lab.trials._ranks import LINGER_S, config_of, enter, laplace, leave, say

ITERATIONS = 5  # faults strike in the first three; the last ones find them


def load_kernels(config: Config) -> None:
    """Use all kernels once, so that loading and compiling them does not count against deadlines."""
    cluster = LocalCluster(config)
    for _ in range(2):  # the second one has a residual
        cluster.allreduce([[np.linspace(-1, 1, 300, dtype=np.float32)]] * 2)


def main() -> None:
    """Run the rank that the first argument (JSON) describes and exit with its status."""
    case, transport = enter()
    struck = transport.rank == case["victim"]
    config = config_of(schedule=case["schedule"], seed=int(struck and case["kind"] == "config"))
    load_kernels(config)
    other = {"oscar": "0.0"} if struck and case["kind"] == "version" else {}
    acting: Any = Striker(transport, case) if struck else transport
    try:
        communicator = Communicator(config, acting, timeout_s=case["timeout_s"], extra=other)
    except ConfigError as error:
        _tell(transport, case, error)
        time.sleep(LINGER_S)
        transport.close()
        sys.exit(2)
    _reduce(communicator, transport, case)


def _reduce(communicator: Communicator, transport: Transport, case: dict[str, Any]) -> None:
    for iteration in range(ITERATIONS):
        given = laplace([transport.rank, iteration], [(case["values"],)])
        before, state = given[0].tobytes(), digest(communicator.state_dict())
        try:
            communicator.allreduce(given)
        except Exception as error:
            untouched = given[0].tobytes() == before and digest(communicator.state_dict()) == state
            _tell(transport, case, error, iteration=iteration, untouched=untouched)
            leave(transport, error)
    transport.close()


def _tell(transport: Transport, case: dict[str, Any], error: Exception, **more: Any) -> None:
    where = {name: getattr(error, name, None) for name in ("peer", "step", "chunk")}
    line = {"rank": transport.rank, "type": type(error).__name__, "text": str(error), "at": time.monotonic()}
    say({**line, **where, **more}, case.get("said"))


class Striker:
    """The given transport, except that a fault strikes at one point of one AllReduce.

    case: "kind" (kill, stop, corrupt, raise or cut), "iteration", and "point" in 0 .. 1 of its frames.
    """

    def __init__(self, transport: Transport, case: dict[str, Any]) -> None:
        self.transport, self.case, self.kind = transport, case, case["kind"]
        schedule = make_schedule(case["schedule"], transport.nodes, subframes=2)
        actions = schedule.actions(transport.rank)
        moves = sum(action.op in (Op.POST_RECV, Op.WAIT, *SENDS) for action in actions)
        self.left = case["iteration"] * moves + int(case["point"] * moves)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def post_recv(self, peer: int, tag: int, cap: int) -> None:
        self._strike(tag)
        self.transport.post_recv(peer, tag, cap)

    def wait(self, peer: int, tag: int, *args: Any, **more: Any) -> memoryview:
        self._strike(tag)
        return self.transport.wait(peer, tag, *args, **more)

    def post_send(self, peer: int, tag: int, frame: bytes) -> None:
        self._strike(tag)
        if self.left < 0 and self.kind == "corrupt" and tag != STATE_TAG:
            self.kind, frame = "done", damaged(frame, tag + 1)
        self.transport.post_send(peer, tag, frame)

    def _strike(self, tag: int) -> None:
        self.left -= tag != STATE_TAG  # points are those of frames
        if self.left >= 0 or self.kind not in ("kill", "stop", "raise", "cut"):
            return
        kind, self.kind = self.kind, "done"
        say({"struck": time.monotonic()}, self.case.get("said"))
        if kind == "cut":
            network.cut(self.transport.rank)  # rank r is on host r
            return
        if kind == "raise":
            raise RuntimeError("this rank's own mistake")
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


if __name__ == "__main__":
    main()
