"""Policies in training: groups of tensors, each by its own method; what waits survives regrouping."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from oscar.cli import main
from oscar.config import Config
from oscar.errors import ConfigError, GradientError
from oscar.planning.tuning.apply import groups_of
from oscar.planning.tuning.policy import PolicyFile, load_policy
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.grouped import Group, GroupedCluster
from oscar.state import crc
from oscar_studies.training import Trainer

SHAPES = [(40, 5), (7,), (31, 3), (), (260,)]
NODES = 3
COARSE = {"coarseness": 4.0, "error_feedback": True}
METHODS: list[dict[str, Any]] = [
    {"method": "fp32", "schedule": {"name": "direct"}},
    {"method": "asc", "schedule": {"name": "ring"}, "quantiser": COARSE},
    {"method": "bf16", "schedule": {"name": "ring"}},
    {"method": "topk", "scheme": {"density": 0.5}},
]


def gradients(random: np.random.Generator, *, integers: bool = False) -> list[list[np.ndarray]]:
    found = [[random.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(NODES)]
    return [[np.rint(8 * tensor) for tensor in node] for node in found] if integers else found


def groups(random: np.random.Generator, *methods: dict[str, Any]) -> list[Group]:
    """Return groups of consecutive tensors, cut anywhere, each with one of the methods."""
    cuts = [0, *sorted(random.choice(len(SHAPES) - 1, random.integers(1, 4), replace=False) + 1), len(SHAPES)]
    return [
        Group(tuple(range(first, stop)), Config(nodes=NODES, **methods[random.integers(len(methods))]))
        for first, stop in pairwise(cuts)
    ]


@pytest.mark.parametrize("method", [METHODS[0], METHODS[2]], ids=["fp32", "bf16"])
def test_any_grouping_gives_identical_sums_of_elementwise_methods(method: dict[str, Any], seed: int) -> None:
    random = np.random.default_rng(seed)
    every = gradients(random, integers=True)
    whole = LocalCluster(Config(nodes=NODES, **method)).allreduce(every).mean
    for _ in range(5):
        result = GroupedCluster(groups(random, method)).allreduce(every)
        assert [x.tobytes() for x in result.mean] == [x.tobytes() for x in whole]
        assert sum(part.values for part in result.parts) == result.stats.values


@pytest.mark.filterwarnings("ignore:scheme .*:oscar.errors.CautionWarning")
def test_regrouping_loses_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    cluster = GroupedCluster(groups(random, METHODS[1], METHODS[3]))
    given, applied = [np.zeros(shape) for shape in SHAPES], [np.zeros(shape) for shape in SHAPES]
    for iteration in range(8):
        if iteration in (3, 5):  # twice in a row, too: what waits has not been sent in between
            cluster.regroup(groups(random, METHODS[1], METHODS[3]))
        if iteration == 7:
            cluster.regroup(groups(random, METHODS[1]))
            cluster.regroup([Group(tuple(range(len(SHAPES))), Config(nodes=NODES, **METHODS[0]))])
        every = gradients(random)
        mean = cluster.allreduce(every).mean
        for t in range(len(SHAPES)):
            given[t] += sum(node[t].astype(float) for node in every)
            applied[t] += NODES * mean[t].astype(float)
        if iteration == 2:
            assert any(abs(one - two).max() > 0.1 for one, two in zip(given, applied, strict=True))
    for one, two in zip(given, applied, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-4)


def test_a_call_happens_for_all_groups_or_for_none(seed: int) -> None:
    random = np.random.default_rng(seed)
    cluster = GroupedCluster(
        [Group((0, 1), Config(nodes=NODES, **METHODS[1])), Group((2, 3, 4), Config(nodes=NODES))]
    )
    cluster.allreduce(gradients(random))
    before, bad = crc(cluster.state_dict()), gradients(random)
    bad[1][4][17] = np.nan
    with pytest.raises(GradientError, match="tensor 4"):
        cluster.allreduce(bad)
    cluster.clusters[1].allreduce = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        cluster.allreduce(gradients(random))
    del cluster.clusters[1].allreduce
    assert crc(cluster.state_dict()) == before


def test_a_resumed_run_goes_on_bit_for_bit_and_other_groups_are_refused(seed: int) -> None:
    random = np.random.default_rng(seed)
    made = groups(random, METHODS[1], METHODS[2])
    one, two = GroupedCluster(made), GroupedCluster(made)
    one.allreduce(gradients(random))
    one.regroup(made)  # residuals wait
    two.load_state_dict(one.state_dict())
    for _ in range(2):
        every = gradients(random)
        means = [cluster.allreduce(every).mean for cluster in (one, two)]
        assert [x.tobytes() for x in means[0]] == [x.tobytes() for x in means[1]]
    other = GroupedCluster([Group(tuple(range(len(SHAPES))), Config(nodes=NODES))])
    with pytest.raises(ConfigError, match="groups"):
        other.load_state_dict(one.state_dict())
    assert other.clusters[0].state is None


def test_a_damaged_state_is_refused_before_a_call_needs_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    made = [Group(tuple(range(len(SHAPES))), Config(nodes=NODES, **METHODS[1]))]
    one = GroupedCluster(made)
    one.allreduce(gradients(random))
    one.regroup([Group(made[0].tensors, Config(nodes=NODES, **METHODS[0]))])
    state, before = one.state_dict(), crc(one.state_dict())
    waiting, sizes = state["waiting"], [int(np.prod(shape)) for shape in SHAPES]
    assert sorted(waiting) == list(made[0].tensors)
    two = GroupedCluster(one.groups, sizes)
    for tensor, damaged, said in (
        (9, waiting[0], "numbers of tensors below 5"),
        ("0", waiting[0], "numbers of tensors"),
        (0, waiting[0][:2], "expected 3 items, got 2"),
        (0, [], "expected 3 items"),
        (0, [[[1.0], [1.0, 2.0]]] * NODES, r"float32 \(200,\)"),
        (0, [waiting[0][0][:7]] * NODES, r"expected float32 \(200,\), got float32 \(7,\)"),
        (0, [*waiting[0][:2], np.full(200, np.nan, np.float32)], "NaN"),
    ):
        with pytest.raises(ConfigError, match=said):
            two.load_state_dict({**state, "waiting": {**waiting, tensor: damaged}})
        assert two.waiting == {}
        if damaged is not waiting[0] and len(damaged) != NODES:  # whoever does not know the sizes
            with pytest.raises(ConfigError, match=said):
                GroupedCluster(one.groups).load_state_dict({**state, "waiting": {**waiting, tensor: damaged}})
    two.load_state_dict(state)
    assert crc(two.state_dict()) == before


def policy(path: Path, config: Config, groups_: list[tuple[int, str]]) -> Config:
    """Write a policy for a configuration's workload; return the configuration with it."""
    workload = Trainer(config).workload
    sizes = [int(np.prod(shape)) for shape in workload.tensor_shapes]
    tensors = tuple(zip(workload.tensor_names, sizes, strict=True))[::-1]
    PolicyFile(tensors, tuple(groups_), {}).write(path)
    return config.variant(policy=str(path))


def test_training_takes_a_policy_and_resumes_under_it(tmp_path: Path, seed: int) -> None:
    base = Config(nodes=2, iterations=4, seed=seed % 1000).variant(quantiser=COARSE)
    config = policy(
        tmp_path / "p.yaml", base, [(2, "fp32 direct"), (3, "asc:c=1/2 other ring"), (5, "asc same direct")]
    )
    one = Trainer(config)
    coarse = [group.config.quantiser.coarseness for group in one.cluster.groups]  # type: ignore[union-attr]
    assert coarse == [4.0, 0.5, 4.0]
    for _ in range(2):
        one.step()
    one.save(tmp_path / "state")
    two = Trainer(config)
    two.resume(tmp_path / "state")
    for trainer in (one, two):
        for _ in range(2):
            trainer.step()
    assert one.finish().state_sha256 == two.finish().state_sha256
    with pytest.raises(ConfigError, match="policy: expected none here"):
        LocalCluster(config)


def test_a_policy_for_something_else_is_refused(tmp_path: Path) -> None:
    config = Config(nodes=2)
    path = tmp_path / "p.yaml"
    Trainer(policy(path, config, [(5, "fp32 ring")]))
    tree = yaml.safe_load(path.read_text())
    tensors = [(name, size) for name, size in tree["tensors"]][::-1]
    renamed = [("elsewhere", size) if name == "hidden.weight" else (name, size) for name, size in tensors]
    with pytest.raises(ConfigError, match=r"tensor 3 is hidden\.weight"):
        groups_of(load_policy(path), renamed, config)
    tree["groups"] = [[5, "zlib gather"]]
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(ConfigError, match=r"expected options such as `fp32 ring`.* got 'zlib gather'"):
        groups_of(load_policy(path), tensors, config)
    with pytest.raises(ConfigError, match="ring_every: expected 1 with a policy"):
        Trainer(config.variant(policy=str(path), train={"ring_every": 4}))


def test_a_number_of_a_policy_is_held_to_the_bound_that_is_asked_for() -> None:
    file = PolicyFile((("w", 9),), ((1, "fp32"),), {"turns": 5, "gbps": True})
    assert file.number("turns", 5) == 5.0
    for key, most, said in (("turns", 4, "turns up to 4, got 5"), ("gbps", 9, "says its gbps, got True")):
        with pytest.raises(ConfigError, match=said):
            file.number(key, most)


def test_a_policy_is_predicted_on_another_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, tensors = tmp_path / "p.yaml", (("output", 200_000), ("embedding", 300_000))
    made = {"nodes": 4, "gbps": 0.1, "latency_us": 10.0, "compute_ms": 5.0}
    PolicyFile(tensors, ((1, "bf16 same direct"), (2, "fp32 direct")), made).write(path)
    times = {}
    for gbps in ("0.1", "10"):
        assert main(["predict-policy", str(path), "--gbps", gbps]) in (0, 3)
        found = re.search(r"policy, 2 groups +([0-9.]+) ms", capsys.readouterr().out)
        assert found is not None
        times[gbps] = float(found[1])
    assert times["0.1"] > 5 * times["10"] > 25
    PolicyFile(tensors, ((2, "fp32 direct"),), {"nodes": 4}).write(path)
    assert main(["predict-policy", str(path)]) == 2
    assert f"{path}: expected a policy that says its gbps" in capsys.readouterr().err
    for key in made:
        PolicyFile(tensors, ((2, "fp32 direct"),), made | {key: 1e30}).write(path)
        assert main(["predict-policy", str(path)]) == 2
        assert re.search(rf"error: {path}: expected {key} up to .*, got 1e\+30", capsys.readouterr().err)
    assert main(["predict-policy", str(path), "--gbps", "1e30"]) == 2
    assert "error: --gbps: expected 1e-06 to 1e+09, got 1e+30" in capsys.readouterr().err
