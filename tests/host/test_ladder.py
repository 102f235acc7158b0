"""The network that reads stale sums: its gradients are right, and only what is stale differs."""

from __future__ import annotations

import argparse
import random

import numpy as np
import pytest

from needs import needs
from oscar_lab.bench import ladder

needs("torch")  # brings the digits


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("stale", [False, True])
def test_gradients_are_those_of_finite_differences(stale: bool, depth: int) -> None:
    """At one place each: elsewhere a step may cross the kink of a ReLU, where differences are no gradient."""
    model = ladder.Residual(depth, 8, seed=depth, rate=0.1, stale=stale)
    rng = np.random.default_rng(depth)
    weights = [weight + 0.1 * rng.standard_normal(weight.shape) for weight in model.weights]
    pixels, labels = rng.standard_normal((9, 8, 8)), rng.integers(10, size=9)
    _, *gradients = model._backward_pass(weights, pixels, labels)
    for at, gradient in enumerate(gradients[::-1]):
        direction = rng.standard_normal(gradient.shape)
        ends = []
        for by in (1e-6, -1e-6):
            moved = [w + by * direction if at == k else w for k, w in enumerate(weights)]
            ends.append(next(model._backward_pass(moved, pixels, labels)))
        assert np.sum(gradient * direction) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)


def test_only_the_second_block_and_later_ones_read_what_is_stale(draw: random.Random) -> None:
    pixels = np.random.default_rng(draw.randrange(2**32)).standard_normal((3, 64))
    for depth, same in ((1, True), (2, False)):
        plain, stale = (ladder.Residual(depth, 8, seed=1, rate=0.1, stale=kind) for kind in (False, True))
        ends = [model._forward(model.weights, pixels)[-1] for model in (plain, stale)]
        assert np.array_equal(*ends) == same


def test_the_benchmark_pairs_kinds_by_seed(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    ladder.add_arguments(parser)
    words = ["--blocks", "2", "--steps", "1", "30", "--seeds", "2", "--width", "8", "--rates", "0.02"]
    rows = ladder.run(parser.parse_args(words))["rows"]
    assert len(rows) == 6
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert all(row["more"] == 0 for row in rows if row["kind"] == "plain")
    first = {row["kind"]: row for row in rows if row["steps"] == 1}
    assert first["late"]["loss"] > first["plain"]["loss"]  # nothing has been applied yet
    assert first["ladder"]["time"] == pytest.approx(3 / 4)
