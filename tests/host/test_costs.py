"""What coding costs this machine: straight lines, measured once, kept with processor and version."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscar.coding import costs
from oscar.coding.costs import Cost, kept
from oscar.coding.registry import asc_codec, make_codec
from oscar.collective.ring import Ring
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.files import waiting_lock
from oscar.planning.costs import cost_on, method_cost
from oscar.planning.predict import predict
from oscar.reducers.cluster import LocalCluster
from oscar.timeline.link import LinkModel
from support.gradients import laplace

SIZES = 1000, 5000
SECONDS = st.floats(0, 100)
COST = Cost(1e-9, 2e-6, 0.5, 24)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a process that has measured nothing; return where the file will be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(costs, "_here", {})
    return tmp_path / "oscar" / "costs.json"


def asked(monkeypatch: pytest.MonkeyPatch, cost: Cost = COST) -> tuple[Cost, bool]:
    """Ask as a new process would; return the cost, and whether it was measured."""
    monkeypatch.setattr(costs, "_here", {})
    runs = []
    found = kept("a thing", ["part"], lambda: runs.append(1) or {"part": cost})
    again = kept("a thing", ["part"], lambda: pytest.fail("measured twice in one process"))
    assert again == found
    return found["part"], bool(runs)


WRITER = """
import sys
from oscar.coding.costs import Cost, kept
for number in range(20):
    kept(f"{sys.argv[1]} {number}", ["part"], lambda: {"part": Cost(1e-9, 2e-6)})
"""


def test_processes_that_write_at_once_lose_nothing(cache: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in "abcd"]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    (own,) = json.loads(cache.read_text()).values()
    assert sorted(own) == sorted(f"{name} {number}" for name in "abcd" for number in range(20))


def test_a_writer_that_is_stopped_keeps_nobody(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "LOCK_S", 0.05)
    cache.parent.mkdir()
    with waiting_lock(cache.with_name(costs.LOCK), 1.0):
        assert asked(monkeypatch) == (COST, True)
    assert not cache.exists()
    asked(monkeypatch)
    assert asked(monkeypatch) == (COST, False)


# A line.


@given(st.tuples(SECONDS, SECONDS), st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)))
def test_a_cost_never_falls_with_the_values(seconds: tuple[float, float], sent: tuple[int, int]) -> None:
    cost = Cost.through(SIZES, seconds, sent)
    for of in (cost.seconds, cost.bytes):
        points = [of(values) for values in (0, 1, 1000, 5000, 10**7)]
        assert points == sorted(points)
        assert points[0] >= 0


def test_a_cost_goes_through_what_was_measured() -> None:
    cost = Cost.through(SIZES, (0.003, 0.011), (524, 2524))
    assert [cost.seconds(size) for size in SIZES] == pytest.approx([0.003, 0.011])
    assert [cost.bytes(size) for size in SIZES] == pytest.approx([524, 2524])
    assert cost.share(0.5).seconds(2000) == pytest.approx(cost.seconds(1000))
    assert cost.share(0).seconds(2000) == cost.share(0).bytes(2000) == 0


@pytest.mark.parametrize(
    "wrong", [(-1, 0), (0, float("nan")), (0, 0, -1), (0, 0, 0, float("inf")), (True, 0)]
)
def test_what_is_no_cost_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"(_s|_bytes): expected (seconds|bytes)"):
        Cost(*wrong)


# Kept.


def test_a_measurement_is_kept_for_the_next_process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch) == (COST, True)
    assert asked(monkeypatch, Cost(9, 9)) == (COST, False)
    assert {file.name for file in cache.parent.iterdir()} == {cache.name, costs.LOCK}


@pytest.mark.parametrize("what", ["__version__", "processor", "installed"])
def test_another_machine_measures_anew_beside_the_first(
    what: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch)
    with monkeypatch.context() as other:
        other.setattr(costs, what, "9.9" if what == "__version__" else lambda *_: "another")
        assert asked(monkeypatch, Cost(9, 9)) == (Cost(9, 9), True)
        assert asked(monkeypatch) == (Cost(9, 9), False)
    assert asked(monkeypatch) == (COST, False)  # a home that two machines share


def spoilt(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def spoil(path: Path) -> None:
        tree = json.loads(path.read_text())
        change(tree[costs.machine()])
        path.write_text(json.dumps(tree))

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(b"\xff\x00"),
        lambda path: path.write_text("[1, 2]"),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text(json.dumps({costs.machine(): [3]})),
        spoilt(lambda own: own.update({"a thing": None})),
        spoilt(lambda own: own["a thing"].update(part=[1, 2, 3, 4, 5])),
        spoilt(lambda own: own["a thing"].update(part=["1", 2, 3, 4])),
        spoilt(lambda own: own["a thing"].update(part=[-1, 2, 3, 4])),
        spoilt(lambda own: own["a thing"].pop("part")),
    ],
)
def test_a_file_that_is_broken_is_measured_anew(
    spoil: Callable[[Path], object], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch)
    spoil(cache)
    assert asked(monkeypatch) == (COST, True)
    assert asked(monkeypatch) == (COST, False)


@pytest.mark.parametrize("where", ["/proc/nowhere", "/dev/null"])
def test_where_nothing_can_be_written_each_process_measures(
    where: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", where)
    assert asked(monkeypatch) == asked(monkeypatch) == (COST, True)


def test_a_user_without_a_home_has_each_process_measure(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert asked(monkeypatch) == asked(monkeypatch) == (COST, True)


# Of codecs and methods.


def test_a_frame_has_the_bytes_of_its_codec(cache: Path) -> None:
    cost = make_codec("int16").cost()
    assert cost.encode.per_value_bytes == pytest.approx(2)
    assert cost.encode.per_value_s > 0
    assert cost.decode.per_value_s > 0
    assert cost.decode.bytes(1000) == 0
    assert make_codec("fp32").cost().encode.per_value_bytes == pytest.approx(4)


def test_codecs_of_one_name_and_other_options_are_told_apart(cache: Path) -> None:
    config = Config.model_validate({"asc": {"context": "none"}})
    for codec in (make_codec("asc"), asc_codec(config.asc_params())):
        codec.cost()
    (own,) = json.loads(cache.read_text()).values()
    assert len(own) == 2


@pytest.mark.parametrize(
    ("method", "options"),
    [("zstd", {}), ("bf16", {}), ("qsgd", {}), ("oscar-sw", {"coded": True})],
)
def test_a_method_costs_the_bytes_that_it_sends(method: str, options: dict[str, Any], cache: Path) -> None:
    tree = {"method": method, "scheme": options, "nodes": 3, "schedule": {"name": "ring"}}
    config = Config.model_validate(tree)
    cost = method_cost(config)
    shape, cluster = (256, 128), LocalCluster(config)
    for iteration in range(3):
        stats = cluster.allreduce([laplace(node, iteration, [shape]) for node in range(3)]).stats
    assert stats.frames.bytes / 4 == pytest.approx(cost.scheme.bytes(256 * 128), rel=0.1)
    assert (cost.frame is None) is (method == "qsgd")
    assert cost.coding_s(1000, 3) < cost.coding_s(10**6, 3)
    assert cost.coding_s(10**6, 1) == cost.scheme.seconds(10**6)  # alone: no frames
    assert method_cost(config.variant(seed=7)) == cost  # kept for all seeds


@pytest.mark.parametrize("method", ["oktopk", "clt-k"])
def test_methods_whose_ranks_get_messages_of_their_own_have_a_cost(method: str, cache: Path) -> None:
    few, many = (
        method_cost(Config(method=method, nodes=3, scheme={"density": density})) for density in (0.01, 0.2)
    )
    assert 0 < few.bits_per_value < many.bits_per_value < 32


def test_a_sparse_method_is_measured_on_given_gradients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = Config.model_validate({"method": "zen", "nodes": 3})
    rows, shapes = 400, [(400, 16), (50,)]

    def drawn(hit: float) -> list[list[list[np.ndarray]]]:
        """Gradients of which a share of the rows is not zero, two iterations of three nodes."""
        kept = [[rng.random(shape[0]) < hit for shape in shapes] for _ in range(6)]
        own = [
            [
                np.where(k.reshape(-1, *[1] * (len(s) - 1)), rng.normal(size=s), 0)
                for k, s in zip(one, shapes, strict=True)
            ]
            for one in kept
        ]
        return [[[t.astype(np.float32) for t in one] for one in own[at : at + 3]] for at in (0, 3)]

    gradients = drawn(0.05)
    cost, dense = cost_on(config, gradients), cost_on(config, drawn(0.5))
    assert 3 * cost.per_value_bytes < dense.per_value_bytes
    cluster = LocalCluster(config)
    sent = []
    for iteration in range(8):
        values = [[tensor.copy() for tensor in own] for own in gradients[iteration % 2]]
        stats = cluster.allreduce(values).stats
        sent.append(stats.exchange_bytes + stats.frames.bytes)
    size = rows * 16 + 50
    per_turn = [cost.per_value_bytes * size * 4 / one for one in sent[-2:]]
    assert any(ratio == pytest.approx(1, rel=0.02) for ratio in per_turn), (per_turn, sent)
    with pytest.raises(ConfigError, match="expected zen with exact values, got coded ones"):
        cost_on(Config.model_validate({**config.model_dump(), "scheme": {"values": "asc"}}), gradients)


def test_large_rings_take_the_cost_of_eight(cache: Path) -> None:
    eight, many = (method_cost(Config(method="terngrad", nodes=nodes)) for nodes in (8, 64))
    assert eight == many
    assert method_cost(Config(method="terngrad", nodes=2)) != eight


def test_options_that_do_not_go_together_are_refused(cache: Path) -> None:
    with pytest.raises(ConfigError, match="set schedule to"):
        method_cost(Config.model_validate({"method": "bf16", "schedule": {"name": "boomerang"}}))


def test_what_is_computed_around_a_ring_may_be_too_long() -> None:
    link = LinkModel.of(gbps=1)
    free = predict(10**6, Ring(4), link, 4.0)
    slow = predict(10**6, Ring(4), link, 4.0, around=Cost(1e-7, 1e-3))
    assert slow.time_s == pytest.approx(free.time_s + 0.101)
    assert free.pays
    assert not slow.pays
    assert slow.reason.startswith("the method computes too long: ")
