"""The workload seam: gradients are right and repeat, losses fall, and errors are clear."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.array import Array
from oscar.errors import ConfigError, GradientError, MissingExtraError, OscarError
from oscar_studies.workloads import WORKLOADS, Workload, exact_mean, make_workload, numpy_digits, numpy_lm
from oscar_studies.workloads.numpy_training import Adam
from oscar_studies.workloads.options import NumpyDigitsOptions, NumpyLmOptions
from oscar_studies.workloads.text import source_text, windows, word_ids

SMALL_LM = {
    "vocabulary": 300,
    "dimension": 8,
    "hidden": 16,
    "outputs": 100,
    "batch": 16,
    "text_bytes": 200_000,
}
SMALL = {
    "numpy-lm": SMALL_LM,
    "numpy-digits": {},
    "logistic": {"features_log2": 12, "samples": 200},
    "cnn": {"batch": 4},
    "transformer": {"d": 32, "layers": 1, "length": 16, "batch": 2, "text_bytes": 200_000},
    "embedding": {
        "learning_rate": 0.01,
        "vocabulary": 500,
        "dimension": 8,
        "hidden": 16,
        "outputs": 100,
        "batch": 16,
        "text_bytes": 200_000,
    },
}


def small(name: str, *, nodes: int = 3, seed: int = 0) -> Workload:
    if name in ("cnn", "transformer", "embedding"):
        needs("torch")
    return make_workload(name, nodes=nodes, seed=seed, **SMALL[name])


def train(workload: Workload, iterations: int) -> list[float]:
    losses = []
    for _ in range(iterations):
        workload.apply(exact_mean(workload.gradients()))
        losses.append(workload.loss)
    return losses


@pytest.mark.parametrize("name", WORKLOADS)
def test_gradients_have_the_promised_form_and_repeat_for_a_seed(name: str) -> None:
    workload, twin, other = small(name), small(name), small(name, seed=1)
    train(workload, 2)
    train(twin, 2)
    first, second = workload.gradients(), twin.gradients()
    assert len(first) == workload.nodes
    for ours, theirs in zip(first, second, strict=True):
        assert tuple(tensor.shape for tensor in ours) == workload.tensor_shapes
        assert len(ours) == len(workload.tensor_names)
        for tensor, same in zip(ours, theirs, strict=True):
            assert tensor.dtype == np.float32
            assert tensor.flags.c_contiguous
            assert tensor.flags.writeable
            np.testing.assert_array_equal(tensor, same)
    kept = first[0][0].copy()
    workload.gradients()[0][0][...] = 0
    np.testing.assert_array_equal(first[0][0], kept)  # fresh arrays every call
    assert not np.array_equal(first[0][-1], first[1][-1])  # nodes draw different batches
    assert not np.array_equal(small(name).gradients()[0][-1], other.gradients()[0][-1])
    scores = workload.evaluate()
    assert set(scores) >= {"accuracy", "loss"}
    assert 0 <= scores["accuracy"] <= 1
    assert scores == workload.evaluate()


def test_default_workload_learns_in_thirty_iterations() -> None:
    workload = make_workload("numpy-lm", nodes=4, seed=0)
    assert np.isnan(workload.loss)
    before = workload.evaluate()
    losses = train(workload, 30)
    after = workload.evaluate()
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])
    assert after["loss"] < 0.8 * before["loss"]
    assert after["accuracy"] > before["accuracy"] + 0.05
    assert 250_000 < sum(int(np.prod(shape)) for shape in workload.tensor_shapes) < 400_000


@pytest.mark.parametrize(
    ("name", "factor"), [("numpy-digits", 0.8), ("transformer", 0.9), ("embedding", 0.9)]
)
def test_other_workloads_learn(name: str, factor: float) -> None:
    losses = train(small(name, nodes=4), 40)
    assert np.mean(losses[-4:]) < factor * np.mean(losses[:4])


def check_against_differences(
    backward_pass: Callable[..., Iterator[Any]],
    initial: dict[str, Array],
    inputs: Array,
    targets: Array,
) -> None:
    """Compare every tensor's gradient with central differences along a random direction, in float64."""
    rng = np.random.default_rng(5)
    # Biases start at zero; moved, so that no hidden unit sits on the kink of a ReLU.
    weights = [tensor + 0.1 * rng.standard_normal(tensor.shape) for tensor in initial.values()]
    _, *gradients = backward_pass(weights, inputs, targets)
    for index, gradient in enumerate(gradients[::-1]):
        direction = rng.standard_normal(gradient.shape)

        def moved(by: float, index: int = index, direction: Array = direction) -> Sequence[Array]:
            return [w + by * direction if i == index else w for i, w in enumerate(weights)]

        ends = [next(backward_pass(moved(by), inputs, targets)) for by in (1e-6, -1e-6)]
        assert np.sum(gradient * direction) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6), index


def test_language_model_gradient_against_finite_differences() -> None:
    rng = np.random.default_rng(0)
    options = NumpyLmOptions(vocabulary=9, dimension=4, context=3, hidden=6, outputs=7)
    contexts = rng.integers(9, size=(20, 3))  # 60 draws of 9 words: every row is hit more than once
    initial = numpy_lm.initial_weights(options, rng)
    check_against_differences(numpy_lm.backward_pass, initial, contexts, rng.integers(7, size=20))


def test_digits_gradient_against_finite_differences() -> None:
    rng = np.random.default_rng(0)
    initial = numpy_digits.initial_weights(NumpyDigitsOptions(hidden=12), rng)
    pixels = rng.standard_normal((8, 64))
    check_against_differences(numpy_digits.backward_pass, initial, pixels, rng.integers(10, size=8))


def test_adam_against_torch() -> None:
    needs("torch")
    import torch

    rng = np.random.default_rng(0)
    ours = rng.standard_normal(50).astype(np.float32)
    theirs = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    adam, peer = Adam([ours], rate=1e-2), torch.optim.Adam([theirs], lr=1e-2)
    for _ in range(20):
        gradient = rng.standard_normal(50).astype(np.float32)
        adam.step([ours], [gradient])
        theirs.grad = torch.from_numpy(gradient)
        peer.step()
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=2e-6)


def test_a_node_draws_the_same_batches_whatever_the_number_of_nodes() -> None:
    few, many = small("numpy-lm", nodes=3), small("numpy-lm", nodes=64)
    for ours, theirs in zip(few.gradients()[2], many.gradients()[2], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_torch_generator_of_the_caller_is_left_alone() -> None:
    needs("torch")
    import torch

    before = torch.random.get_rng_state()
    small("transformer")
    assert torch.equal(before, torch.random.get_rng_state())


def test_exact_mean_is_rounded_once() -> None:
    tensors = [np.array([value], np.float32) for value in (1e8, 1.0, -1e8, 1.0)]
    (mean,) = exact_mean([[tensor] for tensor in tensors])
    assert mean.dtype == np.float32
    assert mean[0] == 0.5  # float32 sums would lose the first one


def test_apply_refuses_a_mean_of_another_form() -> None:
    workload = small("numpy-lm")
    mean = exact_mean(workload.gradients())
    with pytest.raises(GradientError, match=r"expected 5 tensors, got 4"):
        workload.apply(mean[:-1])
    mean[1] = mean[1].T
    with pytest.raises(GradientError, match=r"hidden.weight: expected shape \(48, 16\), got \(16, 48\)"):
        workload.apply(mean)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        (
            "numpy_lm",
            {},
            r"unknown workload 'numpy_lm' \(did you mean 'numpy-lm'\?\); valid ones: numpy-lm, ",
        ),
        ("numpy-lm", {"nodes": 0}, "nodes: expected a whole number from 1, got 0"),
        ("numpy-lm", {"seed": -1}, "seed: expected a whole number from 0, got -1"),
        (
            "numpy-lm",
            {"dimensions": 3},
            r"no option 'dimensions' \(did you mean 'dimension'\?\); valid ones: vocabulary, ",
        ),
        ("transformer", {"width": 3}, "transformer has no option 'width'; valid ones: d, layers, "),
        ("transformer", {"d": 100}, "option d: expected a whole number from 32, a multiple of 32, got 100"),
        ("cnn", {"batch": 1.5}, "option batch: expected a whole number from 1, got 1.5"),
        ("cnn", {"learning_rate": 0}, "option learning_rate: expected a finite number above 0, got 0"),
        ("cnn", {"noise": float("nan")}, "option noise: expected a finite number of at least 0, got nan"),
    ],
)
def test_wrong_names_and_options_are_refused(name: str, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_workload(name, **{"nodes": 2, "seed": 0, **arguments})


def test_importing_the_registry_imports_no_extra() -> None:
    code = "import sys, oscar_studies.workloads; sys.exit(bool({'torch', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "package"), [("transformer", "torch"), ("cnn", "torch"), ("numpy-digits", "sklearn")]
)
def test_a_missing_package_is_reported_with_its_extra(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (package, "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, module, None)  # makes the import fail
    monkeypatch.delitem(sys.modules, "oscar_studies.workloads.torch_models", raising=False)
    with pytest.raises(MissingExtraError, match=r"make torch"):
        make_workload(name, nodes=2, seed=0)


def test_source_text_order_limit_and_what_it_skips(tmp_path: Path) -> None:
    contents = {
        "b.py": b"b\r\n",
        "a.py": b"a\n",
        "deep/c.py": b"c \xff\n",
        "a.txt": b"no",
        "test/d.py": b"no",
        "site-packages/e.py": b"no",
        "_sysconfigdata_x.py": b"no",
    }
    for name, data in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "ab.py").symlink_to(tmp_path / "nowhere.py")  # cannot be read
    assert source_text(1000, str(tmp_path)) == "a\nb\nc \ufffd\n"
    assert source_text(3, str(tmp_path)) == "a\nb"


def test_a_python_without_sources_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OscarError, match=r"expected Python sources .* found none"):
        source_text(1000, str(tmp_path / "python311.zip"))


def test_words_are_ranked_and_split_and_protected() -> None:
    training, held_out = word_ids(300, 200_000)
    assert training.size == pytest.approx(19 * held_out.size, rel=0.01)
    counts = np.bincount(training, minlength=300)
    assert counts[1] > counts[10] > counts[200] > 0
    with pytest.raises(ValueError, match="read-only"):
        training[0] = 1
    with pytest.raises(OscarError, match="at least 10 symbols, got 4"):
        windows(training[:4], count=1, length=10, rng=np.random.default_rng(0))
