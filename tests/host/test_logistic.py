"""The workload logistic: messages are gradients, the objective comes near saga's, samples are sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscar.array import Array
from oscar.errors import OscarError
from oscar_studies.workloads import exact_mean, logistic, make_workload, ngrams
from oscar_studies.workloads.options import LogisticOptions
from support import saga

SMALL: dict[str, Any] = {"features_log2": 14, "samples": 500, "l1": 2e-4, "coupling": 1.2e-4}


def solved(updates: int, *, nodes: int, seed: int = 0, **options: Any) -> Any:
    workload = make_workload("logistic", nodes=nodes, seed=seed, **options)
    for _ in range(updates):
        workload.apply(exact_mean(workload.gradients()))
    return workload


def dense(samples: ngrams.Samples, size: int) -> Array:
    rows = np.zeros((samples.labels.size, size))
    which = np.repeat(np.arange(samples.labels.size), np.diff(samples.start))
    rows[which, samples.columns] = samples.scale[which]
    return rows


def test_twenty_updates_come_within_one_percent_of_saga(seed: int) -> None:
    workload = solved(20, nodes=4, seed=seed % 1000, **SMALL)
    options = workload.options
    weights = saga.saga(options, passes=150)
    best = logistic.objective(workload.training, weights, options.l1)
    found = workload.evaluate()
    print(best, found)
    assert best < found["objective"] * (1 + 1e-4)  # saga has the optimum, or nearly
    assert found["objective"] < 1.005 * best
    assert found["objective"] < np.log(2)  # what weights of 0 have
    assert 0 < found["non_zeros"] < 1.5 * np.count_nonzero(weights) + 10
    held = workload.held_out  # how well it is told apart is a matter of the text, the library of this Python
    right = held.labels * (dense(held, workload.weights.size) @ workload.weights.astype(np.float64)) > 0
    assert found["accuracy"] == np.mean(right)


def test_the_default_problem_comes_within_one_percent_of_its_optimum() -> None:
    options = LogisticOptions()
    workload = solved(20, nodes=2)
    found = workload.evaluate()
    if workload.training.crc() in saga.OPTIMA:
        best = saga.optimum(options)
    else:  # the sources of another Python: twice as many updates come nearer
        for _ in range(20):
            workload.apply(exact_mean(workload.gradients()))
        best = workload.evaluate()["objective"]
    assert 1 <= found["objective"] / best < 1.01
    assert found["objective"] < np.log(2)  # what weights of 0 have
    assert workload.held_out.labels.size > 500


def test_a_message_is_the_gradient_where_the_node_stands(seed: int) -> None:
    """Without relaxation; x follows from it: coupling (z - x) - u is the message, too."""
    workload = solved(3, nodes=3, seed=seed % 1000, relaxation=1.0, newton=12, conjugate=60, **SMALL)
    coupling, near = workload.options.coupling, workload.weights.astype(np.float64)
    assert near.any()
    for node in range(3):
        (message,), loss = workload.node_gradients(node)
        x = near - (message + workload._duals[node].astype(np.float64)) / coupling
        part = workload._parts[node]
        rows, labels = dense(part.samples, part.features.size), part.samples.labels
        share = 3 / workload.training.labels.size
        wrong = 1 / (1 + np.exp(labels * (rows @ x[part.features])))
        expected = np.zeros(near.size)
        expected[part.features] = rows.T @ (-share * labels * wrong)
        np.testing.assert_allclose(message, expected, rtol=0, atol=3e-4 * np.abs(expected).max())
        margins = labels * (rows @ near[part.features])
        assert loss == pytest.approx(share * np.logaddexp(0, -margins).sum())


def test_the_mean_loss_over_nodes_is_that_of_all_samples() -> None:
    """Nodes have unequal numbers of samples."""
    workload = solved(2, nodes=7, **SMALL)
    workload.gradients()
    total = np.abs(workload.weights).sum(dtype=np.float64)
    at = logistic.objective(workload.training, workload.weights, workload.options.l1)
    assert workload.loss + workload.options.l1 * total == pytest.approx(at)
    assert sum(part.samples.labels.size for part in workload._parts) == workload.training.labels.size
    assert len({part.samples.labels.size for part in workload._parts}) > 1


def test_samples_are_sparse_balanced_and_hashed_alike() -> None:
    training, held_out = ngrams.code_samples(12, 300, 14)
    both = np.concatenate([training.labels, held_out.labels])
    assert sorted(set(both)) == [-1, 1]
    assert both.sum() == 0
    assert both.size == 600
    for samples in (training, held_out):
        lengths = np.diff(samples.start)
        assert samples.start[-1] == samples.columns.size
        assert lengths * samples.scale**2 == pytest.approx(1.0)
        assert lengths.min() > 10
        for first, last in zip(samples.start[:-1], samples.start[1:], strict=True):
            assert (np.diff(samples.columns[first:last]) > 0).all()
        assert 0 <= samples.columns.min() <= samples.columns.max() < 1 << 14
        with pytest.raises(ValueError, match="read-only"):
            samples.columns[0] = 1
    words = ["import", "socket", "import", "socket"]
    found = ngrams._features(words, 14, {})
    assert found.size == 6  # two words, two pairs, two triples
    assert set(ngrams._features(words[:2], 14, {})) < set(found)
    some = training.rows(np.array([5, 2, 2]))
    expected = dense(training, 1 << 14)[[5, 2, 2]]
    np.testing.assert_array_equal(dense(some, 1 << 14), expected)


def test_too_few_sources_are_reported() -> None:
    with pytest.raises(OscarError, match="in files of 100000000 lines, found too few"):
        ngrams.code_samples(100_000_000, 300, 14)
