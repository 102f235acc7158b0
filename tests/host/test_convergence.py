"""OSCAR-SW's defaults train where fp32 does; the paper's form does not, and says so."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from needs import needs
from oscar_lab.trials import convergence

needs("torch")


def run(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    convergence.add_arguments(parser)
    return convergence.run(parser.parse_args(words))


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")
def test_the_default_converges_with_momentum_and_the_papers_form_says_that_it_may_not() -> None:
    """The case of the report: a small perceptron, SGD at .1 with momentum .9, 120 steps, two ranks."""
    words = ["--models", "mlp", "--optimisers", "sgd", "--iterations", "120", "--seeds", "2"]
    result = run(*words, "--band-seeds", "3", "--methods", "oscar-sw", "oscar-sw, paper")
    fp32, methods = result["band"]["mlp sgd"]["mean"], result["methods"]
    safe, paper = methods["oscar-sw"], methods["oscar-sw, paper"]
    assert result["ok"]
    assert safe["cases"]["mlp sgd"]["caution"] is None
    assert max(safe["cases"]["mlp sgd"]["losses"]) < 1.3 * fp32
    assert min(paper["cases"]["mlp sgd"]["losses"]) > 2 * fp32
    assert "may diverge" in paper["cases"]["mlp sgd"]["caution"]
