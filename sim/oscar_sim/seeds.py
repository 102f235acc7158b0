"""Seeds of random tests: new ones in each run, and told, so that a failure can be had again."""

from __future__ import annotations

import os
import random
import secrets

import numpy as np

VARIABLE = "OSCAR_SEED"


def fresh() -> int:
    """Return a seed of up to ten digits that nobody chose."""
    return secrets.randbelow(10**10)


def told() -> int:
    """Return the seed of this run: what OSCAR_SEED holds; a fresh one is put there, for child processes too.

    Raises ValueError when it holds no number of 0 or more.
    """
    text = os.environ.setdefault(VARIABLE, str(fresh()))
    if not text.isdecimal():
        raise ValueError(f"expected a number of 0 or more in {VARIABLE}, got {text!r}")
    return int(text)


def dice(stream: int | str) -> random.Random:
    """Return one of the run's streams of random numbers, the same for the same seed and name."""
    return random.Random(f"{told()} {stream}")


def numbers(stream: int) -> np.random.Generator:
    """Return the same for NumPy."""
    return np.random.default_rng([told(), stream])
