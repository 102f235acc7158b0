"""Checkpoints: every tree comes back bit for bit, every damaged file is refused, every workload resumes."""

from __future__ import annotations

import io
import json
import math
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from needs import needs
from oscar import checkpoint
from oscar.coding.arrays import load_array
from oscar.errors import ConfigError
from oscar.state import Saved
from oscar_studies.workloads import Workload, exact_mean, make_workload, trace


class Colour(IntEnum):
    RED = 3


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 130), 1 << 130)
    | st.floats()
    | st.text()
    | st.binary()
    | st.just(Colour.RED)
)
keys = st.recursive(
    st.text() | st.integers() | st.just(Colour.RED), lambda inner: st.tuples(inner, inner), max_leaves=3
)
tensors = st.sampled_from(["<f4", "<f8", ">f4", "i1", "<i8", "<u2", "?"]).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=0, min_side=0, max_side=4))
)
trees = st.recursive(
    leaves | tensors | st.just(np.float32(0.1)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


def same(one: Any, two: Any) -> bool:
    """Whether two trees are equal in structure, types and bits; an IntEnum equals its number."""
    if isinstance(one, (np.ndarray, np.generic)):
        kind = np.ndarray if isinstance(one, np.ndarray) else np.generic
        return (
            isinstance(two, kind)
            and one.shape == two.shape
            and one.dtype.newbyteorder("=") == two.dtype
            and one.astype(two.dtype).tobytes() == two.tobytes()
        )
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float) and isinstance(two, float) and math.isnan(one):
        return math.isnan(two)
    return bool(one == two) and (isinstance(one, IntEnum) or type(one) is type(two))


@settings(max_examples=120)
@given(trees)
def test_a_tree_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "tree.ckpt"
    checkpoint.save(path, tree)
    loaded = checkpoint.load(path)
    assert same(tree, loaded)
    assert checkpoint.digest(loaded) == checkpoint.digest(tree)


@pytest.mark.parametrize("alien", [{1, 2}, object(), np.array(["a"]), np.array([None]), 1j])
def test_what_cannot_be_saved_is_refused_and_leaves_no_file(tmp_path: Path, alien: Any) -> None:
    with pytest.raises(TypeError, match="expected a tree of dict"):
        checkpoint.save(tmp_path / "a", {"x": [alien]})
    assert not list(tmp_path.iterdir())


def test_every_damaged_byte_and_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    checkpoint.save(path, {"w": np.arange(7), "step": 3})
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(ConfigError, match=r"run\.ckpt: expected a checkpoint of `oscar train`"):
            checkpoint.load(path)
        path.write_bytes(whole[:at])
        with pytest.raises(ConfigError, match=r"run\.ckpt: expected a checkpoint"):
            checkpoint.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ConfigError, match="damaged or cut short"):
        checkpoint.load(path)
    path.write_bytes(whole)
    assert checkpoint.load(path)["step"] == 3


def test_foreign_and_missing_files_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "foreign.npz", a=np.arange(3))
    with pytest.raises(ConfigError, match=r"foreign\.npz: .* a file of another kind"):
        checkpoint.load(tmp_path / "foreign.npz")
    with pytest.raises(ConfigError, match=r"none: expected a checkpoint that can be read"):
        checkpoint.load(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot write there"):
        checkpoint.save(tmp_path / "no" / "folder", {})


@pytest.mark.parametrize(
    "shape", [[-1], [-1, 2], [-2, -2], [True, 7], [7.0], ["7"], [8], [6], [1 << 62, 4], [10**30]], ids=str
)
def test_a_shape_that_was_changed_is_refused(shape: list[Any]) -> None:
    text, arrays = checkpoint.flatten({"a": np.arange(7, dtype=np.float32)})
    crafted = text.replace("[7]", json.dumps(shape))
    assert crafted != text
    with pytest.raises(ValueError, match=r"expected (a shape of integers|.* values of <f4)"):
        checkpoint.rebuild(crafted, arrays)


def test_an_array_file_with_a_negative_size_is_refused(tmp_path: Path) -> None:
    """NumPy takes -1 for what is left of the file."""
    whole = io.BytesIO()
    np.save(whole, np.arange(6.0))
    (tmp_path / "a.npy").write_bytes(whole.getvalue().replace(b"(6,), }", b"(-1,),}"))
    with pytest.raises(ConfigError, match=r"expected an array written by np\.save, got the shape \[-1\]"):
        load_array(tmp_path / "a.npy")


def test_a_death_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ckpt"
    checkpoint.save(path, 1)

    def die(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.os, "fsync", die)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(path, 2)
    assert checkpoint.load(path) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_fingerprint_that_differs_is_refused_with_the_dotted_key() -> None:
    saved = Saved({"run": {"a": {"b": 1, "c": [1]}, "d": 2}}, "file")
    saved.fits("run", {"a": {"b": 1, "c": [1]}, "d": 2})
    with pytest.raises(ConfigError, match=r"^file\.run\.a\.b: state was saved under 1, this is 3"):
        saved.fits("run", {"a": {"b": 3, "c": [2]}, "d": 3})
    with pytest.raises(ConfigError, match=r"file\.run: expected keys that are of a, got the key 'd'"):
        saved.fits("run", {"a": saved.value["run"]["a"]})


SMALL = {"vocabulary": 300, "dimension": 8, "hidden": 16, "outputs": 100, "batch": 16, "text_bytes": 200_000}
WORKLOADS: dict[str, dict[str, Any]] = {
    "numpy-lm": SMALL,  # Adam
    "numpy-digits": {},  # momentum
    "logistic": {"features_log2": 12, "samples": 200},  # duals of the nodes
    "cnn": {"batch": 4},
    "transformer": {"d": 32, "layers": 1, "length": 16, "batch": 2, "text_bytes": 200_000},  # with a warm-up
    "embedding": SMALL,
}


def open_small(name: str, folder: Path) -> Workload:
    if name == "trace":
        path = folder / "lm.npz"
        if not path.exists():
            trace.record(make_workload("numpy-lm", nodes=2, seed=0, **SMALL), 6, path)
        return trace.load(path)
    if name in ("cnn", "transformer", "embedding"):
        needs("torch")
    return make_workload(name, nodes=2, seed=1, **WORKLOADS[name])


def advance(workload: Workload, iterations: int) -> list[float]:
    losses = []
    for _ in range(iterations):
        workload.apply(exact_mean(workload.gradients()))
        losses.append(workload.loss)
    return losses


@pytest.mark.parametrize("name", [*WORKLOADS, "trace"])
def test_a_resumed_workload_goes_on_bit_for_bit(tmp_path: Path, name: str) -> None:
    """The other workload has trained on, to other moments and batches, before it loads the state."""
    first, second = open_small(name, tmp_path), open_small(name, tmp_path)
    advance(first, 2)
    checkpoint.save(tmp_path / "state", first.state_dict())
    expected, state = advance(first, 3), first.state_dict()
    advance(second, 3)
    second.load_state_dict(checkpoint.load(tmp_path / "state"))
    assert advance(second, 3) == expected
    assert checkpoint.digest(second.state_dict()) == checkpoint.digest(state)
    assert second.evaluate() == first.evaluate()


def test_a_saved_state_is_a_copy_and_fits_its_workload_only(tmp_path: Path) -> None:
    workload = open_small("numpy-lm", tmp_path)
    advance(workload, 1)
    state = workload.state_dict()
    kept = checkpoint.digest(state)
    advance(workload, 1)
    assert checkpoint.digest(state) == kept
    other = make_workload("numpy-lm", nodes=3, seed=1, **SMALL)
    with pytest.raises(ConfigError, match="workload state: expected nodes 3, got 2"):
        other.load_state_dict(state)
