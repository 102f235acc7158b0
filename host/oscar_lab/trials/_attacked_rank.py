"""A rank that meets others and reduces, over and over, or a stranger that calls them: started by attacks."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.line import head_of
from oscar.transports.proofs import HELLO, NONCE_BYTES, PROOF_BYTES
from oscar.transports.tcp import StoreTransport
from oscar_lab.trials._ranks import laplace, say

VALUES, CALLS = 20_000, 3
HUGE_BYTES = 12 << 30
SMALL_MESSAGES = 5000
UNUSED_TAG = 32_000  # of frames of a schedule larger than any here
FILES = {"few files": 40, "no files": 1}  # that rank 0 may open beside those that are open
LATE_S = 0.3  # by which a meeting lasts, while strangers call
CALL_PAUSE_S = 0.0005  # at most 2,000 calls of strangers a second: the attacker shares the cores
TEXTS = 5  # errors that are reported in full
GO, STOP = b"go", b"stop"


def main() -> None:
    """Do what the case in the first argument (JSON) says."""
    from torch.distributed import TCPStore

    case: dict[str, Any] = json.loads(sys.argv[1])
    rank, ranks = int(os.environ["RANK"]), case["ranks"]
    wait = timedelta(seconds=case["seconds"] + 120)
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*place, ranks + 1, is_master=rank == 0, timeout=wait)
    if rank == ranks:
        stranger(case, store)
    else:
        say(attacked(case, store, rank), case["said"])
    store.add("ended", 1)
    while rank == 0 and store.add("ended", 0) <= ranks:  # rank 0 serves the store
        time.sleep(0.01)


def meetings(store: Any, rank: int, seconds: float) -> Iterator[tuple[int, Any]]:
    """Yield number and store of each meeting; rank 0 decides which is the last."""
    from torch.distributed import PrefixStore

    end, number = time.monotonic() + seconds, 0
    while True:
        if rank == 0:
            store.set(f"meeting {number}", GO if time.monotonic() < end else STOP)
        if store.get(f"meeting {number}") == STOP:
            return
        yield number, PrefixStore(f"of meeting {number}", store)
        number += 1


# --------------------------------------------------------------------------------------- who is attacked


def attacked(case: dict[str, Any], store: Any, rank: int) -> dict[str, Any]:
    """Meet and reduce until the time is over; return what a row of the table needs."""
    cluster = LocalCluster(Config())
    gradients = [laplace([each], [(VALUES,)]) for each in range(case["ranks"])]
    due = [cluster.allreduce(gradients).mean[0] for _ in range(CALLS)]
    row: dict[str, Any] = dict.fromkeys(("meetings", "calls", "errors", "wrong"), 0)
    row |= {"slowest_s": 0.0, "first_mb": 0.0, "texts": []}
    for _, place in meetings(store, rank, case["seconds"]):
        if rank:
            time.sleep(LATE_S)
        begin = time.monotonic()
        try:
            one_meeting(case, place, rank, gradients[rank], due, row)
        except OscarError as error:
            row["errors"] += 1
            text = f"{type(error).__name__}: {error}"
            if len(row["texts"]) < TEXTS and text not in row["texts"]:
                row["texts"].append(text)
            row["slowest_s"] = max(row["slowest_s"], time.monotonic() - begin)
        row["first_mb"] = row["first_mb"] or memory_mb("VmRSS")
    return row | {"most_mb": memory_mb("VmHWM")}


def one_meeting(
    case: dict[str, Any],
    store: Any,
    rank: int,
    gradient: list[np.ndarray],
    due: list[np.ndarray],
    row: dict[str, Any],
) -> None:
    """Meet and reduce once, counting into `row`."""
    begin, timeout_s, ranks = time.monotonic(), case["timeout_s"], case["ranks"]
    with few_files(FILES.get(case["kind"], 0) if rank == 0 else 0):
        transport = StoreTransport(store, rank, ranks, timeout_s=timeout_s)
    row["meetings"] += 1
    with Communicator(Config(), transport, timeout_s=timeout_s) as communicator:
        for call in range(CALLS):
            row["slowest_s"] = max(row["slowest_s"], time.monotonic() - begin)
            begin = time.monotonic()
            if call and rank == ranks - 1:
                betray(case["kind"], transport)
            mean = communicator.allreduce(gradient).mean[0]
            row["calls"] += 1
            row["wrong"] += mean.tobytes() != due[call].tobytes()
        transport.part(time.monotonic() + timeout_s)


def betray(kind: str, transport: StoreTransport) -> None:
    """Send to all other ranks what none of them awaits."""
    for peer in range(transport.rank):
        if kind == "head":
            transport._lines.send(peer, UNUSED_TAG, (head_of(HUGE_BYTES, UNUSED_TAG), bytes(1 << 20)))
        for _ in range(SMALL_MESSAGES if kind == "many" else 0):
            transport._lines.send(peer, UNUSED_TAG, (head_of(0, UNUSED_TAG),))


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Let this process open `more` files beside those that are open; 0: as many as it may."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if more:
        opened = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory_mb(name: str) -> float:
    """Return a line of /proc/self/status in MB: VmRSS, resident now, or VmHWM, at most so far."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(f"{name}:"))


# ------------------------------------------------------------------------------------------- who attacks


def stranger(case: dict[str, Any], store: Any) -> None:
    """Call all ranks of each meeting for as long as they listen."""
    words = HELLO.pack(bytes(NONCE_BYTES), case["ranks"] - 1) + bytes(PROOF_BYTES)
    held: deque[socket.socket] = deque()
    for _, place in meetings(store, case["ranks"], case["seconds"]):
        listening = range(case["ranks"]) if case["kind"] not in ("head", "many") else ()
        ports = {rank: json.loads(place.get(f"at {rank}")).get("port", 0) for rank in listening}
        while ports:
            for rank, port in [*ports.items()]:
                try:
                    held.append(socket.create_connection(("127.0.0.1", port), 1.0))
                    if case["kind"] == "forged":
                        held[-1].sendall(words)
                except OSError:  # it listens no more
                    del ports[rank]
                time.sleep(CALL_PAUSE_S)
            if case["kind"] == "slow":
                for number, each in enumerate(held):
                    with suppress(OSError):  # it was sent away
                        each.send(words[number % 20 :][:1])
            while len(held) > case["callers"]:
                held.popleft().close()


if __name__ == "__main__":
    main()
