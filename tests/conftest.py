"""Fixtures of all tests."""

from __future__ import annotations

import pytest

from oscar_sim.seeds import told


@pytest.fixture
def seed() -> int:
    """A new seed in each run, in the captured output of a test that fails; OSCAR_SEED=... sets it."""
    return told()
