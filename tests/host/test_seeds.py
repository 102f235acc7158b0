"""Random tests take the run's seed and ask for it, so that they are listed and a failure comes back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oscar_sim.seeds import VARIABLE, dice, numbers, told

TESTS = Path(__file__).parents[1]
DRAWS = r"oscar_sim\.seeds|support\.nic_bench"  # imports of what is drawn by the run's seed
ASKS = r"\bseed: int|usefixtures\(\"seed\"\)"
FRESH = r"SystemRandom|import secrets|default_rng\(\)|Random\(\)"


def test_what_draws_asks_for_the_seed() -> None:
    texts = {path.stem: path.read_text() for path in TESTS.glob("*/test_*.py") if path != Path(__file__)}
    assert [n for n, text in texts.items() if re.search(DRAWS, text) and not re.search(ASKS, text)] == []
    assert [n for n, text in texts.items() if re.search(FRESH, text)] == []


def test_a_seed_gives_the_same_again_and_streams_differ(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told() == seed
    assert dice("a").random() == dice("a").random() != dice("b").random()
    assert numbers(1).random() == numbers(1).random() != numbers(2).random()
    first = dice("a").random()
    monkeypatch.setenv(VARIABLE, str(seed + 1))
    assert dice("a").random() != first
