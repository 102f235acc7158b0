"""Traces: what was trained comes back bit for bit, and nothing else is taken for a trace."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscar.array import Array
from oscar.config import Config
from oscar.errors import ConfigError, GradientError
from oscar_studies.recording import record_training, warmup_of
from oscar_studies.workloads import WORKLOADS, exact_mean, make_workload
from oscar_studies.workloads.trace import TraceInfo, load, record

OPTIONS = {"vocabulary": 50, "dimension": 4, "hidden": 6, "outputs": 20, "batch": 4, "text_bytes": 50_000}


def lm() -> Any:
    return make_workload("numpy-lm", nodes=3, seed=7, **OPTIONS)


def make(folder: Path) -> TraceInfo:
    return record(lm(), 4, folder / "run", warmup=2, skip_every=1)


def test_gradients_are_measured_after_the_warm_up() -> None:
    """Plain training with the float mean comes first, whatever method is configured; a trace has none."""
    section = {"options": OPTIONS, "warmup": 3}
    config = Config.model_validate({"nodes": 3, "seed": 7, "iterations": 1, "workload": section})
    seen: list[tuple[str, int, int]] = []
    recording = record_training(config, progress=lambda *at: seen.append(at))
    assert seen == [("warming up", 1, 3), ("warming up", 2, 3), ("warming up", 3, 3), ("training", 1, 1)]
    workload = lm()
    for _ in range(3):
        workload.apply(exact_mean(workload.gradients()))
    for ours, theirs in zip(recording.gradients[0], workload.gradients(), strict=True):
        for tensor, same in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(tensor, same, strict=True)


def test_a_workload_knows_its_warm_up() -> None:
    for name, entry in WORKLOADS.items():
        assert warmup_of(Config.model_validate({"workload": {"name": name}})) == entry.warmup
    assert WORKLOADS["numpy-lm"].warmup > 0
    assert warmup_of(Config.model_validate({"workload": {"warmup": 0}})) == 0
    assert warmup_of(Config.model_validate({"workload": {"trace": "a.npz"}})) == 0
    for section, words in (
        ({"warmup": -1}, "expected auto or a whole number from 0"),
        ({"warmup": True}, "expected auto or a whole number from 0"),
        ({"warmup": "soon"}, "expected auto or a whole number from 0"),
        ({"warmup": 5, "trace": "a.npz"}, "record the trace with --warmup"),
    ):
        with pytest.raises(ValueError, match=words):
            Config.model_validate({"workload": section})


def test_replay_is_the_recorded_training_bit_for_bit(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    info = record(lm(), 4, tmp_path / "run", warmup=2, skip_every=1, progress=lambda *at: seen.append(at))
    assert info.path == tmp_path / "run.npz"
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]
    assert seen == [(done, 9) for done in range(1, 10)]

    replay, live = load(tmp_path / "run"), lm()
    assert replay.info == info
    assert (replay.name, replay.nodes, replay.iterations, replay.info.seed) == ("trace:numpy-lm", 3, 4, 7)
    assert replay.info.metadata["options"]["vocabulary"] == 50
    assert (replay.tensor_names, replay.tensor_shapes) == (live.tensor_names, live.tensor_shapes)
    for place in range(9):
        expected = live.gradients()
        if place in (2, 4, 6, 8):
            for ours, theirs in zip(replay.gradients(), expected, strict=True):
                for tensor, same in zip(ours, theirs, strict=True):
                    assert tensor.flags.c_contiguous
                    np.testing.assert_array_equal(tensor, same, strict=True)
                    tensor[...] = 0  # callers get copies
            assert replay.loss == live.loss
            replay.apply(exact_mean(expected))
        live.apply(exact_mean(expected))
    with pytest.raises(ConfigError, match=r"run.npz: expected at most 4 iterations.* one more"):
        replay.gradients()
    replay.rewind()
    assert replay.gradients()[0][0].any()
    assert replay.evaluate() == {}
    with pytest.raises(GradientError, match="expected 5 tensors, got 0"):
        replay.apply([])


def changed(key: str, change: Callable[[Array], Any]) -> Callable[[Path], None]:
    """Return a function that rewrites a trace with one array changed, or left out where None comes back."""

    def rewrite(path: Path) -> None:
        with np.load(path) as archive:
            arrays = dict(archive)
        arrays[key] = change(arrays[key])
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})

    return rewrite


def _metadata(**changes: Any) -> Callable[[Path], None]:
    return changed("metadata", lambda old: np.array(json.dumps(json.loads(str(old)) | changes)))


def _poison(tensor: Array) -> Array:
    tensor[2, 1].flat[3] = np.nan
    return tensor


def _npy(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))


def _not_an_array(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata", "text")


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: path.unlink(), "there is no such file"),
        (lambda path: path.write_bytes(b""), "a file that is no .npz"),
        (lambda path: path.write_text("loss: 1"), "a file that is no .npz"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "a file that is no .npz"),
        (_npy, "a single array"),
        (_not_an_array, "'metadata' that is no array"),
        (_flip, "that cannot be read"),
        (changed("metadata", lambda _: None), "a file without 'metadata'"),
        (changed("metadata", lambda _: np.zeros(2)), r"metadata of shape \(2,\) and type float64"),
        (changed("metadata", lambda _: np.array("{")), "metadata that is no JSON"),
        (_metadata(format="other"), "metadata without format 'oscar-trace'"),
        (_metadata(version=9), "trace version 9 instead of 1"),
        (_metadata(nodes="8"), "nodes '8'"),
        (
            _metadata(nodes=4),
            r"float32 of shape \[4 iterations, 4 nodes, ...\], got float32 of shape \[4, 3,",
        ),
        (changed("names", lambda _: np.array(3)), "names of shape"),
        (changed("names", lambda old: np.array([*old, "more"])), "a file without 'gradient_5'"),
        (
            changed("names", lambda _: np.array([None])),
            "'names' that cannot be read",
        ),  # pickled: never opened
        (changed("losses", lambda old: old[:0]), r"losses of shape \(0,\)"),
        (
            changed("losses", lambda old: old[:3]),
            r"embedding: expected float32 of shape \[3 iterations, 3 nodes",
        ),
        (changed("gradient_1", lambda _: None), "a file without 'gradient_1'"),
        (
            changed("gradient_1", lambda old: old.astype("f8")),
            r"hidden.weight: expected float32.* got float64",
        ),
        (changed("gradient_1", lambda old: old[0]), r"hidden.weight: .* got float32 of shape \[3, 24, 6\]"),
        (
            changed("gradient_1", _poison),
            "hidden.weight: expected finite values, got NaN or Inf in iteration 2",
        ),
    ],
)
def test_anything_but_a_trace_is_refused(tmp_path: Path, damage: Callable[[Path], None], text: str) -> None:
    path = make(tmp_path).path
    damage(path)
    with pytest.raises(ConfigError, match=rf"run\.npz: .*{text}"):
        load(path)


class Diverging:
    """A workload whose second iteration is not finite."""

    name, nodes, loss = "diverging", 2, 0.0
    tensor_names: tuple[str, ...] = ("w",)
    tensor_shapes: tuple[tuple[int, ...], ...] = ((3,),)

    def gradients(self) -> list[list[Array]]:
        self.loss += 1
        return [[np.full(3, 1.0 if self.loss < 2 or node == 0 else np.inf, np.float32)] for node in range(2)]

    def apply(self, mean: Sequence[Array]) -> None: ...

    def evaluate(self) -> dict[str, float]:
        return {}


def test_a_failed_recording_leaves_the_old_trace(tmp_path: Path) -> None:
    before = make(tmp_path).path.read_bytes()
    with pytest.raises(GradientError, match="gradient of w on node 1, recorded iteration 1: expected finite"):
        record(Diverging(), 2, tmp_path / "run.npz")
    assert (tmp_path / "run.npz").read_bytes() == before
    assert record(Diverging(), 1, tmp_path / "run.npz").seed is None  # a workload need not tell its seed
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_bad_arguments_are_refused_before_training(tmp_path: Path) -> None:
    valid: dict[str, Any] = {"iterations": 1, "path": tmp_path / "run"}
    wrong: list[dict[str, Any]] = [{"iterations": 0}, {"warmup": -1}, {"skip_every": -1}]
    for arguments in wrong:
        with pytest.raises(ValueError, match=f"expected {next(iter(arguments))} of at least"):
            record(Diverging(), **{**valid, **arguments})
    with pytest.raises(ConfigError, match="expected an existing folder"):
        record(Diverging(), 1, tmp_path / "missing" / "run")
    (tmp_path / "run.npz").mkdir()
    with pytest.raises(ConfigError, match="this is a folder"):
        record(Diverging(), 1, tmp_path / "run")


def test_any_flipped_or_missing_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    path = make(tmp_path).path
    whole, data, rng = load(path), path.read_bytes(), np.random.default_rng(0)
    expected = np.concatenate([tensor.ravel() for node in whole.gradients() for tensor in node])
    for round_ in range(150):
        broken = bytearray(data)
        if round_ % 5:
            broken[rng.integers(len(data))] ^= 1 << rng.integers(8)
        else:
            del broken[rng.integers(len(data)) :]
        path.write_bytes(broken)
        try:
            replay = load(path)
        except ConfigError:
            continue
        values = np.concatenate([tensor.ravel() for node in replay.gradients() for tensor in node])
        np.testing.assert_array_equal(values, expected)
