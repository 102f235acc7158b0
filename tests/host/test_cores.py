"""Threads of a call: how many it takes from whom, and that nobody's number changes a result."""

from __future__ import annotations

import numpy as np
import pytest

from oscar import cores
from oscar.config import Config
from oscar.reducers.cluster import LocalCluster


def test_a_number_comes_from_the_call_the_variable_or_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cores.VARIABLE, raising=False)
    monkeypatch.delenv(cores.LOCAL_RANKS, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(12), raising=False)
    many = 100 * cores.THREAD_VALUES
    assert (cores.processors(), cores.beside_training(), cores.threads_for(many)) == (12, 6, 12)
    monkeypatch.setenv(cores.LOCAL_RANKS, "4")
    assert cores.beside_training() == 1
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64), raising=False)
    assert (cores.processors(), cores.beside_training()) == (cores.MOST_THREADS, 8)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(12), raising=False)
    with cores.at_most(3):
        assert [cores.threads_for(n * cores.THREAD_VALUES) for n in (1, 2, 9)] == [1, 2, 3]
        assert cores.threads_for(many, 2) == 2
    monkeypatch.setenv(cores.VARIABLE, "99")
    assert (cores.processors(), cores.beside_training()) == (cores.MOST_THREADS,) * 2
    for nonsense in ("0", "-2", "many", ""):
        monkeypatch.setenv(cores.VARIABLE, nonsense)
        assert cores.processors() == 12


def test_shares_cover_all_in_units_and_an_error_waits_for_the_others() -> None:
    for items, threads, unit in ((1, 3, 1), (10, 3, 4), (1000, 7, 16), (5, 1, 8)):
        shares = cores.share(lambda thread, first, last: (first, last), items, threads, unit)
        assert [first for first, _ in shares] == [0, *(last for _, last in shares[:-1])]
        assert shares[-1][1] == items
        assert all(first % unit == 0 for first, _ in shares)
    done: list[int] = []

    def work(thread: int, first: int, last: int) -> None:
        if thread == 0:
            raise ValueError("mine")
        done.append(thread)

    with pytest.raises(ValueError, match="mine"):
        cores.share(work, 4, 4)
    assert sorted(done) == [1, 2, 3]


def test_a_configuration_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "THREAD_VALUES", 1000)
    asked: list[int] = []
    known = cores.threads_for
    for module in ("numerics.quantiser", "numerics.steps", "coding.asc.compiled.coder"):
        monkeypatch.setattr(
            f"oscar.{module}.threads_for", lambda *args: asked.append(known(*args)) or asked[-1]
        )
    gradients = [[np.random.default_rng(n).standard_normal(9000).astype(np.float32)] for n in range(2)]
    means = []
    for threads in (1, 3):
        asked.clear()
        run = LocalCluster(Config.model_validate({"nodes": 2, "threads": threads}))
        means.append([run.allreduce(gradients).mean[0] for _ in range(2)])
        assert max(asked) == threads
    assert np.array_equal(*means)
    assert cores.threads_for(1 << 40) == min(cores.MOST_THREADS, cores.processors())  # outside a call, all
