"""Judges for test_hunt.py, in a module of their own: worker processes import them by name."""

from __future__ import annotations

import os
import time
from collections import Counter

from oscar_lab.trials._hunt import Chunk, Judge
from oscar_studies.parallel import Tick


def judge(name: str, count: int, tick: Tick) -> Chunk:
    """Judge a chunk; that of index 1 ends its process, that of index 3 hangs."""
    index = int(name.partition("/")[2])
    if index == 1:
        os._exit(3)
    if index == 3:
        time.sleep(60)
    return Chunk(Counter(refused=count), [f"chunk {index}"] * (index == 0), Counter(one=count), 0.1 * index)


def make() -> Judge:
    return judge


def broken() -> Judge:
    raise ValueError("no subjects")
