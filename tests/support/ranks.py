"""Ranks as threads of one process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from oscar.transports.tcp import Lines, TcpTransport

LIMIT_S = 60.0  # for a rank: the machine may be busy


def on_ranks(transports: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Run `work(transport)` on every rank at once; return what each returned or raised. Nothing may hang."""
    results: list[Any] = [None] * len(transports)

    def run(rank: int) -> None:
        try:
            results[rank] = work(transports[rank])
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(transports))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "a rank hangs"
    return results


def tcp_transports(nodes: int) -> list[TcpTransport]:
    """Return ranks of this process with a pair of sockets between each two."""
    connections: list[dict[int, socket.socket]] = [{} for _ in range(nodes)]
    for one, other in combinations(range(nodes), 2):
        connections[one][other], connections[other][one] = socket.socketpair()
    ends = [TcpTransport.__new__(TcpTransport) for _ in range(nodes)]
    for rank, end in enumerate(ends):
        end._lines = Lines(connections[rank])
        end._begin(rank, list(range(nodes)))
    return ends
