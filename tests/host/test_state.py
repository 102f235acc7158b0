"""Loaded states are safe for kernels: every field is checked, and nothing is loaded by half."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscar import checkpoint
from oscar.checkpoint import digest
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.reducers.cluster import LocalCluster
from oscar_lab.trials import mutate_states
from oscar_studies.training import Trainer
from support.gradients import laplace

FEEDBACK = {"error_feedback": True}
CONFIGS = {
    "asc": Config.model_validate({"plan": {"name": "splitter", "granule": 16}, "quantiser": FEEDBACK}),
    "no feedback": Config(),
    "value steps": Config.model_validate({"quantiser": {"step": "value", "coarseness": 1.0}}),
    "oscar-sw": Config(method="oscar-sw", scheme={"coded": True}),
    "powersgd": Config(method="powersgd"),
}


def gradients(iteration: int) -> list[list[np.ndarray]]:
    return [laplace(rank, iteration, [(40, 30)]) for rank in range(3)]


def saved(name: str) -> tuple[Any, Any]:
    """Return a cluster that has worked, and its state."""
    cluster = LocalCluster(CONFIGS[name])
    for iteration in range(2):
        cluster.allreduce(gradients(iteration))
    return cluster, cluster.state_dict()


def put(*path: Any, to: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a change of what is at a path."""

    def change(tree: Any) -> None:
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = to(tree[path[-1]])

    return change


NODES = "links", "sums"
ENCODER = *NODES, 0, ("encode", 0, 1), "states", 0
CASES: list[tuple[str, Callable[[Any], None], str]] = [  # of structure, contract/test_methods has all
    (
        "asc",
        put(*ENCODER, "hist", to=lambda hist: hist[:31]),
        r"^state\.links\.sums\[0\]\['encode', 0, 1\]\.states\[0\]\.hist: expected int64 \(32, 16\), got",
    ),
    (
        "asc",
        put(*ENCODER, "hist", to=lambda hist: hist + 4096),
        "rows that sum to at most 65535",
    ),
    ("asc", put(*ENCODER, "hist", to=lambda hist: -hist), "hist: expected values of 0 to 65535, got -"),
    ("asc", put(*ENCODER, "sequence", to=lambda _: 10**400), "sequence: expected an integer of 0 to 65535"),
    ("asc", put(*ENCODER, "sequence", to=lambda _: True), "an integer of 0 to 65535, got True"),
    ("asc", put("scheme", "costs", to=lambda costs: -costs), "costs: expected values of 0 to"),
    ("asc", put("scheme", "steps", "exponents", to=lambda _: [4000]), r"exponents\[0\]: .* of -149 to 116"),
    (
        "asc",
        put("shapes", to=lambda _: [(1 << 50,)]),
        "shapes: expected shapes with at most 1,099,511,627,776",
    ),
    ("asc", put("workers", 2, "residual", to=lambda r: r * np.float32(np.nan)), "residual: expected finite"),
    (
        "no feedback",  # kernels would write what rounding lost into an array of no values
        put("workers", 0, "residual", to=lambda _: np.zeros(1200, np.float32)),
        "residual: expected None without error feedback",
    ),
    (
        "oscar-sw",
        put("scheme", "chosen", "positions", to=lambda p: p + 1200),
        "positions: expected values",
    ),
    ("oscar-sw", put("scheme", "chosen", "positions", to=lambda p: p[::-1]), "expected positions that rise"),
    (
        "value steps",
        put("scheme", "position", "shifts", to=lambda shifts: np.full_like(shifts, 9)),
        r"state\.scheme\.position\.shifts: expected values of -8 to 8",
    ),
    ("powersgd", put("scheme", "factors", 0, to=lambda q: q.T), r"factors\[0\]: expected float32"),
]


@pytest.mark.parametrize(("name", "change", "message"), CASES, ids=[case[2][:40] for case in CASES])
def test_a_state_that_does_not_fit_is_refused_by_its_path(
    name: str, change: Callable[[Any], None], message: str
) -> None:
    cluster, state = saved(name)
    before, damaged = digest(state), copy.deepcopy(state)
    change(damaged)
    with pytest.raises(ConfigError, match=message):
        cluster.load_state_dict(damaged)
    assert digest(cluster.state_dict()) == before


def test_a_scheme_that_refuses_a_part_keeps_the_others() -> None:
    """The last part of a state is wrong: the parts before it must not have been loaded."""
    cluster, state = saved("oscar-sw")
    damaged = copy.deepcopy(state["scheme"])
    damaged["iteration"] += 1
    damaged["chosen"]["age"] = -1
    with pytest.raises(ConfigError, match=r"state\.chosen\.age: expected an integer of 0"):
        cluster.scheme.load_state_dict(damaged)
    assert digest(cluster.scheme.state_dict()) == digest(state["scheme"])


def test_a_checkpoint_of_something_else_is_refused_and_nothing_is_taken_over(tmp_path: Path) -> None:
    config = Config.model_validate(
        {"iterations": 3, "workload": {"name": "numpy-digits"}, "train": {"compute_ms": 1.0}}
    )
    trainer, path = Trainer(config), tmp_path / "state"
    trainer.step()
    trainer.save(path)
    tree, before = checkpoint.load(path), digest(trainer.workload.state_dict())
    changes: list[tuple[Callable[[Any], Any], str]] = [
        (lambda tree: {"a": 1}, r"state\.fingerprint: expected a value, got none"),
        (lambda tree: {**tree, "done": -1}, r"state\.done: expected an integer"),
        (lambda tree: {**tree, "losses": tree["losses"][:0]}, r"state\.losses: expected float64 \(1,\)"),
        (lambda tree: {**tree, "cluster": {"shapes": 3}}, r"cluster\.fingerprint: expected a value"),
        (
            lambda tree: {**tree, "workload": {**tree["workload"], "generators": []}},
            "generators: expected 8 items",
        ),
    ]
    for change, message in changes:
        checkpoint.save(path, change(tree))
        fresh = Trainer(config)
        began = digest(fresh.workload.state_dict())
        with pytest.raises(ConfigError, match=message):
            fresh.resume(path)
        assert digest(fresh.workload.state_dict()) == began
    checkpoint.save(path, tree)
    fresh.resume(path)
    assert digest(fresh.workload.state_dict()) == before


def test_mutated_states_are_refused_whole_or_can_be_worked_with() -> None:
    """A slice of the benchmark, in a process of its own, with a seed of its own, which is printed."""
    parser = argparse.ArgumentParser()
    mutate_states.add_arguments(parser)
    result = mutate_states.run(parser.parse_args(["--count", "300", "--jobs", "1"]))
    assert result["ok"], result["faults"]
    assert result["refused"] > 100
    assert result["worked"] > 10
