"""The process on one host: takes the lab's commands as lines of JSON, and measures.

`python -m oscar_lab.lab.rank SETUP`, SETUP in JSON. Each line of standard input is a command, each line of
standard output its answer; when the input ends, so does the process.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.checkpoint import digest
from oscar.collective.frames import Frames
from oscar.config import Config
from oscar.numerics.tensors import split
from oscar_lab.lab.calibrate import MESSAGES
from oscar_lab.lab.methods import LabMethod, OscarMethod, ReplayMethod, Seat, make_method
from oscar_lab.lab.settings import MethodSpec

PINGS = 50
ROUNDS = 9


class Rank:
    """State of one rank: its gradients, and the methods of the case."""

    def __init__(self, setup: dict[str, Any]) -> None:
        from oscar.transports.tcp import TcpTransport

        self.transport = TcpTransport()
        self.config = Config.model_validate(setup["config"])
        self.steps = int(setup["steps"])
        self.shapes = [tuple(shape) for shape in setup["shapes"]]
        self.trace = np.load(setup["gradients"], mmap_mode="r")  # [iteration, value]
        self.folder = Path(setup["share"])
        self.methods: dict[str, LabMethod] = {}

    def make(self, methods: list[dict[str, Any]]) -> dict[str, Any]:
        """Make methods anew; collective."""
        seat = Seat(self.config, self.transport)
        specs = [MethodSpec.model_validate(spec) for spec in methods]
        self.methods = {spec.name: make_method(spec, seat) for spec in specs}
        return {}

    def ping(self) -> dict[str, Any]:
        """Return half the median round trip, in seconds, of the smallest message between ranks 0 and 1."""
        times: list[float] = []
        if self.transport.rank > 1:
            return {"latency_s": None}
        other = 1 - self.transport.rank
        deadline = time.monotonic() + 10
        for _ in range(PINGS):
            begin = time.perf_counter()
            self.transport.post_recv(other, 1, 64)
            if self.transport.rank == 0:
                self.transport.post_send(other, 1, bytes(64))
            self.transport.wait(other, 1, deadline)
            if self.transport.rank == 1:
                self.transport.post_send(other, 1, bytes(64))
            times.append(time.perf_counter() - begin)
        self.transport.flush(deadline)
        return {"latency_s": float(np.median(times)) / 2}

    def messages(self, at: float) -> dict[str, Any]:
        """Return the seconds of sending and receiving `MESSAGES` small messages, from `at` on."""
        transport, nodes = self.transport, self.transport.nodes
        left, right = (transport.rank - 1) % nodes, (transport.rank + 1) % nodes
        times: list[float] = []
        time.sleep(max(0.0, at - time.monotonic()))
        deadline = time.monotonic() + 10
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for tag in range(MESSAGES):
                transport.post_recv(left, tag, 64)
            for tag in range(MESSAGES):
                transport.post_send(right, tag, bytes(64))
            for tag in range(MESSAGES):
                transport.wait(left, tag, deadline)
            transport.flush(deadline)
            times.append(time.perf_counter() - begin)
        return {"seconds": float(np.median(times))}

    def load(self, name: str, of: str, frames: Any) -> dict[str, Any]:
        """Give a replay its frames."""
        method, source = self.methods[name], self.methods[of]
        if isinstance(method, ReplayMethod) and isinstance(source, OscarMethod):
            method.load(Frames.from_tree(frames), source.schedule)
        return {}

    def prepare(self, name: str, first: int) -> dict[str, Any]:
        """Give a method the gradients of `steps` iterations, as if they were of one."""
        tensors: list[Array] = []
        for step in range(first, first + self.steps):
            tensors += split(np.array(self.trace[step]), self.shapes)
        self.methods[name].prepare(tensors)
        gc.collect()
        gc.disable()
        return {}

    def run(self, name: str, at: float) -> dict[str, Any]:
        """Reduce from `at` on (monotonic clock, which all hosts share); return times and what was sent."""
        method = self.methods[name]
        time.sleep(max(0.0, at - time.monotonic()))
        begin, used = time.monotonic(), time.process_time()
        method.run()
        end, used = time.monotonic(), time.process_time() - used
        gc.enable()
        sent = method.sent()
        return {
            "late_s": begin - at,
            "end": end,
            "cpu_s": used,
            "payload": sent.payload,
            "messages": sent.messages,
            "frames": None if sent.frames is None else sent.frames.tree(),
        }

    def share(self, name: str) -> dict[str, Any]:
        """Write this rank's part of the sum to a file that the others read."""
        np.save(self.folder / f"{self.transport.rank}.npy", self.methods[name].mine())
        return {}

    def check(self, name: str) -> dict[str, Any]:
        """Return how many results are wrong, and a digest that must be equal on all ranks."""
        method = self.methods[name]
        every = [np.load(self.folder / f"{r}.npy", mmap_mode="r") for r in range(self.transport.nodes)]
        return {"wrong": method.wrong(every), "digest": digest([method.result()])}


def main() -> int:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    rank = Rank(json.loads(sys.argv[1]))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(rank, command.pop("do"))(**command)
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # nothing here is worth a wait for peers that have gone


if __name__ == "__main__":
    sys.exit(main())
