"""Ranks as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

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
