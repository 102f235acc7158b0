"""Searches in worker processes: a worker that dies or hangs is counted, and the others go on."""

from __future__ import annotations

from collections import Counter

import pytest

from oscar_lab.trials._hunt import hunt
from support.judges import broken, make


def test_a_worker_that_dies_or_hangs_is_named_and_the_others_go_on() -> None:
    found, _ = hunt(make, 23, seed=7, size=5, jobs=2, silence_s=3)
    assert found.tally == Counter(refused=13, crashes=1, hangs=1)
    died, hung = sorted(found.lost)
    assert died == "a worker died (status 3) in chunk 7/1"
    assert hung == "a worker hung in chunk 7/3"
    assert (found.cases, found.faults, found.subjects) == (13, ["chunk 0"], Counter(one=13))
    assert found.slowest == pytest.approx(0.4)


def test_what_a_worker_raises_at_its_start_is_raised() -> None:
    with pytest.raises(ValueError, match="no subjects"):
        hunt(broken, 1, seed=7, size=5, jobs=1)
