"""Seeds of random tests: new ones in each run, and told, so that a failure can be had again."""

from __future__ import annotations

import os
import secrets

VARIABLE = "OSCAR_SEED"


def fresh() -> int:
    """Return a seed of up to ten digits that nobody chose."""
    return secrets.randbelow(10**10)


def told() -> int:
    """Return the seed in the environment variable OSCAR_SEED, or a fresh one, and print how to set it.

    Raises ValueError when the variable holds no number of 0 or more.
    """
    text = os.environ.get(VARIABLE) or str(fresh())
    if not text.isdecimal():
        raise ValueError(f"expected a number of 0 or more in {VARIABLE}, got {text!r}")
    print(f"{VARIABLE}={text}")
    return int(text)
