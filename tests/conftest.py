"""Fixtures of all tests."""

from __future__ import annotations

import pytest

from oscar_sim.seeds import VARIABLE, told


def pytest_configure() -> None:
    told()  # one seed for all processes of a run


@pytest.fixture(autouse=True)
def seed() -> int:
    """The run's seed, new in each run; a test that fails shows how to set it."""
    print(f"{VARIABLE}={told()}")
    return told()
