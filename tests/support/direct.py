"""Ranks that talk to all others straight, and one that fails: threads call it, processes run it.

python tests/support/direct.py TRANSPORT FAULT SHAPE TIMEOUT_S TOKEN
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from oscar.transports.base import Notice, Transport, TransportError

VICTIM = 0
HALVES = (7, 64 + 7)  # tags
LATE = 0.3  # of the timeout, after which rank 2 begins its second wait


def waits_for(rank: int, nodes: int, shape: str) -> list[int]:
    """Return the ranks whose messages `rank` waits for, in order.

    shape: `direct`, every rank for all others. `chain`: rank 2, no neighbour of the victim's on a ring, waits
    for the victim, and all others wait for rank 2, longer than they would without a sign of life.
    """
    if shape == "direct":
        return [(rank - step) % nodes for step in range(1, nodes)]
    return [VICTIM] if rank == 2 else [2]


def exchange(transport: Transport, shape: str, timeout_s: float, fault: Callable[[], Any] | None) -> None:
    """Send and wait twice; a `fault` is called in the place of the second half."""
    rank, nodes, deadline = transport.rank, transport.nodes, time.monotonic() + timeout_s
    transport.meet(range(nodes))
    sources = waits_for(rank, nodes, shape)
    targets = [peer for peer in range(nodes) if peer != rank and rank in waits_for(peer, nodes, shape)]
    for tag in HALVES:
        for peer in sources:
            transport.post_recv(peer, tag, 100)
    late = shape == "chain" and rank == 2
    for tag in HALVES:
        if fault and tag == HALVES[1]:
            fault()
            return
        time.sleep(LATE * timeout_s if late and tag == HALVES[1] else 0.0)
        for sending in (not late, late):
            for peer in targets if sending else ():
                transport.post_send(peer, tag, bytes(100))
            for peer in () if sending else sources:
                transport.wait(peer, tag, deadline, f"message {tag}")
    transport.flush(deadline)


def outcome(
    transport: Transport, shape: str, timeout_s: float, fault: Callable[[], Any] | None = None
) -> tuple[int, str]:
    """Return the rank that an exchange's error names (-1: there was none), and its text."""
    try:
        exchange(transport, shape, timeout_s, fault)
    except TransportError as error:
        notice = error.notice or Notice(transport.rank, error.peer, 0, 0, str(error))
        transport.abort(notice)
        return notice.peer if notice.peer >= 0 else notice.rank, str(error)
    return -1, ""


def main() -> None:
    """Run one rank; print what it found, as JSON."""
    from oscar.transports.registry import TRANSPORTS

    name, fault, shape, timeout_s = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    transport = TRANSPORTS[name]()
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[fault]
    strike = partial(os.kill, os.getpid(), number) if transport.rank == VICTIM else None
    transport.gather(b"", 1, time.monotonic() + 60, "the start")
    named, text = outcome(transport, shape, timeout_s, strike)
    line = json.dumps({"rank": transport.rank, "named": named, "text": text})
    os.write(1, f"\n{line}\n".encode())
    time.sleep(1.0)  # the others speak, too, before an abort ends the job
    transport.leave(75)


if __name__ == "__main__":
    main()
