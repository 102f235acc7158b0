"""A scheme's workers side by side, without a wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from oscar.schemes.base import Message


def lockstep(
    workers: Iterable[Any], combine: Callable[[list[Message]], Any]
) -> tuple[list[np.ndarray], list[Message]]:
    """Run the workers' generators to their end; return what was combined, and the first one's messages.

    All workers have to send equally many.
    """
    running = list(workers)
    totals: list[np.ndarray] = []
    sent: list[Message] = []
    while True:
        messages = []
        for generator in running:
            try:
                messages.append(generator.send(totals[-1]) if totals else next(generator))
            except StopIteration:
                continue
        assert len(messages) in (0, len(running))
        if not messages:
            return totals, sent
        totals.append(combine(messages))
        sent.append(messages[0])
