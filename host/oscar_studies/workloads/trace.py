"""Record the gradients of a training run, and replay them: the same numbers for every codec and machine.

A trace is a compressed .npz, since an embedding's gradients are mostly zeros: `metadata` (a JSON string),
`names` (one per tensor), `losses` (float64 [iteration], as the workload told them) and `gradient_0`,
`gradient_1`, ... (float32 [iteration, node, *shape of the tensor]).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from oscar.array import Array, sizes_of
from oscar.errors import ConfigError, GradientError
from oscar.files import check_writable, replacing
from oscar.state import Saved
from oscar_studies.workloads.base import Workload, check_identity, check_mean, exact_mean, workload_identity

FORMAT = "oscar-trace"
VERSION = 1


@dataclass(frozen=True)
class TraceInfo:
    """What a trace holds; `shapes` are those of one node's tensors, `parameters` their sum."""

    path: Path
    workload: str
    nodes: int
    seed: int | None
    iterations: int
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    metadata: Mapping[str, Any]

    @property
    def parameters(self) -> int:
        """Values in one node's gradient."""
        return sum(sizes_of(self.shapes))


def record(
    workload: Workload,
    iterations: int,
    path: str | os.PathLike[str],
    *,
    warmup: int = 0,
    skip_every: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> TraceInfo:
    """Train `workload` with the exact float mean and write `iterations` iterations of gradients to `path`.

    `warmup` iterations are trained before the first recorded one, and `skip_every` between recorded ones, so
    that a short trace can span a long training. `progress(done, total)` counts all trained iterations.
    The file appears only when it is whole. It takes 4 x iterations x nodes x parameters bytes at most, and in
    memory.
    Raises ValueError on bad counts, ConfigError when `path` cannot be written, GradientError on NaN or Inf.
    """
    for what, count, least in (
        ("iterations", iterations, 1),
        ("warmup", warmup, 0),
        ("skip_every", skip_every, 0),
    ):
        if count < least:
            raise ValueError(f"expected {what} of at least {least}, got {count}")
    target = _with_suffix(path)
    check_writable(target)  # before the training that would be lost
    gradients = [
        np.empty((iterations, workload.nodes, *shape), np.float32) for shape in workload.tensor_shapes
    ]
    losses = np.empty(iterations)
    total = warmup + iterations + (iterations - 1) * skip_every
    for done in range(total):
        current = workload.gradients()
        place, skipped = divmod(done - warmup, 1 + skip_every)
        if place >= 0 and not skipped:
            _keep(gradients, place, current, workload.tensor_names)
            losses[place] = workload.loss
        workload.apply(exact_mean(current))
        if progress is not None:
            progress(done + 1, total)
    metadata = _metadata(workload, warmup=warmup, skip_every=skip_every)
    _write(target, gradients, losses, names=workload.tensor_names, metadata=metadata)
    return _info(target, metadata, iterations, workload.tensor_names, workload.tensor_shapes)


def _info(
    path: Path, metadata: dict[str, Any], iterations: int, names: tuple[str, ...], shapes: Any
) -> TraceInfo:
    told = {key: metadata[key] for key in ("workload", "nodes", "seed")}
    return TraceInfo(path=path, iterations=iterations, names=names, shapes=shapes, metadata=metadata, **told)


def _with_suffix(path: str | os.PathLike[str]) -> Path:
    """Return `path` with .npz added when missing, as numpy does."""
    target = Path(path)
    return target if target.name.endswith(".npz") else target.with_name(target.name + ".npz")


def _keep(gradients: list[Array], place: int, current: list[list[Array]], names: Sequence[str]) -> None:
    """Copy one iteration's gradients into the record; raises GradientError on NaN or Inf."""
    for node, tensors in enumerate(current):
        for index, tensor in enumerate(tensors):
            if not np.isfinite(tensor).all():
                raise GradientError(
                    f"gradient of {names[index]} on node {node}, recorded iteration {place}: expected finite "
                    "values, got NaN or Inf; the training diverged, lower its learning rate"
                )
            gradients[index][place, node] = tensor


def _metadata(workload: Workload, *, warmup: int, skip_every: int) -> dict[str, Any]:
    """Return what is needed to make the trace again; seed and options where the workload tells them."""
    options = getattr(workload, "options", None)
    return {
        "format": FORMAT,
        "version": VERSION,
        "workload": workload.name,
        "nodes": workload.nodes,
        "seed": getattr(workload, "seed", None),
        "options": asdict(options) if is_dataclass(options) and not isinstance(options, type) else {},
        "warmup": warmup,
        "skip_every": skip_every,
        "python": platform.python_version(),  # the text workloads depend on it
        "numpy": np.__version__,
    }


def _write(
    target: Path, gradients: list[Array], losses: Array, *, names: Sequence[str], metadata: Any
) -> None:
    """Write the trace to `target`."""
    arrays: dict[str, Any] = {f"gradient_{index}": array for index, array in enumerate(gradients)}
    arrays |= {"metadata": np.array(json.dumps(metadata)), "names": np.array(names), "losses": losses}
    with replacing(target) as file:
        np.savez_compressed(file, **arrays)


class TraceWorkload:
    """A Workload that replays a trace; it holds no weights, so `apply` moves nothing.

    `iterations` says how many times `gradients()` can be called before `rewind()`.
    """

    def __init__(self, info: TraceInfo, gradients: Sequence[Array], losses: Array) -> None:
        self.info = info
        self.name = f"trace:{info.workload}"
        self.nodes, self.seed, self.iterations = info.nodes, info.seed, info.iterations
        self.tensor_names, self.tensor_shapes = info.names, info.shapes
        self._gradients, self._losses = gradients, losses
        self.rewind()

    def rewind(self) -> None:
        """Start again at the first recorded iteration."""
        self.position = 0
        self.loss = float("nan")

    def gradients(self) -> list[list[Array]]:
        """See Workload.gradients; raises ConfigError after the last recorded iteration."""
        if self.position >= self.iterations:
            raise ConfigError(
                f"{self.info.path}: expected at most {self.iterations} iterations, all that it holds, "
                "got a request for one more; record a longer one, ask for fewer, or call rewind()"
            )
        place = self.position
        self.position += 1
        self.loss = float(self._losses[place])
        return [[tensor[place, node].copy() for tensor in self._gradients] for node in range(self.nodes)]

    def apply(self, mean: Sequence[Array]) -> None:
        """Check the shapes of `mean` and ignore it; raises GradientError."""
        check_mean(mean, self.tensor_names, self.tensor_shapes)

    def evaluate(self) -> dict[str, float]:
        """Return an empty dict: a trace has no held-out data."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return where in the trace it is."""
        return {"workload": workload_identity(self), "position": self.position, "loss": self.loss}

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError where it is of another workload."""
        saved = Saved.of(state).only("workload", "position", "loss")
        check_identity(self, saved)
        self.position, self.loss = saved["position"].integer(0, self.iterations), saved["loss"].like(0.0)


def load(path: str | os.PathLike[str]) -> TraceWorkload:
    """Return the trace at `path` as a workload; raises ConfigError that names the file on anything else."""
    target = _with_suffix(path)
    if not target.is_file():
        raise ConfigError(f"{target}: expected a trace (.npz), there is no such file; record one first")
    with open(target, "rb") as file:  # opened here: np.load forgets to close a damaged one
        archive = _open(target, file)
        metadata = _read_metadata(target, archive)
        names = _read_names(target, archive)
        gradients = [_read(target, archive, f"gradient_{index}") for index in range(len(names))]
        losses = _read(target, archive, "losses")
    iterations = _check(target, gradients, losses, names=names, nodes=metadata["nodes"])
    shapes = tuple(tensor.shape[2:] for tensor in gradients)
    return TraceWorkload(_info(target, metadata, iterations, names, shapes), gradients, losses)


def _foreign(target: Path, came: str) -> ConfigError:
    return ConfigError(f"{target}: expected a gradient trace, got {came}; record it again")


# The next two catch Exception: numpy parses the header of a member before it knows the checksum, and
# what a damaged one raises is undocumented and wide (SyntaxError, tokenize.TokenError, MemoryError, ...).


def _open(target: Path, file: BinaryIO) -> Any:
    """Return the archive in `file`; raises ConfigError when there is none."""
    try:
        archive = np.load(file, allow_pickle=False)
    except Exception as error:
        raise _foreign(target, f"a file that is no .npz ({error})") from error
    if isinstance(archive, np.ndarray):
        raise _foreign(target, "a single array (.npy)")
    return archive


def _read(target: Path, archive: Any, key: str) -> Array:
    """Return one array of the file; raises ConfigError when it is missing or damaged."""
    if key not in archive.files:
        result = ", ".join(archive.files[:8]) or "nothing"
        raise _foreign(target, f"a file without {key!r} (it has: {result})")
    try:
        array = archive[key]
    except Exception as error:
        raise _foreign(target, f"{key!r} that cannot be read ({error})") from error
    if not isinstance(array, np.ndarray):  # a member without an array's header comes back as bytes
        raise _foreign(target, f"{key!r} that is no array")
    return array


def _read_metadata(target: Path, archive: Any) -> dict[str, Any]:
    """Return the metadata with the keys that replay needs, checked."""
    raw = _read(target, archive, "metadata")
    if raw.shape != () or raw.dtype.kind != "U":
        raise _foreign(target, f"metadata of shape {raw.shape} and type {raw.dtype} instead of one string")
    try:
        metadata = json.loads(str(raw))
    except (ValueError, RecursionError) as error:
        raise _foreign(target, f"metadata that is no JSON ({error})") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise _foreign(target, f"metadata without format {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise _foreign(target, f"trace version {metadata.get('version')!r} instead of {VERSION}")
    workload, nodes, seed = (metadata.get(key) for key in ("workload", "nodes", "seed"))
    whole = isinstance(nodes, int) and not isinstance(nodes, bool) and nodes >= 1
    if not isinstance(workload, str) or not whole or not (seed is None or isinstance(seed, int)):
        raise _foreign(target, f"metadata with workload {workload!r}, nodes {nodes!r}, seed {seed!r}")
    return metadata


def _read_names(target: Path, archive: Any) -> tuple[str, ...]:
    """Return the tensor names."""
    names = _read(target, archive, "names")
    if names.ndim != 1 or names.dtype.kind != "U" or not names.size:
        raise _foreign(target, f"names of shape {names.shape} and type {names.dtype} instead of strings")
    try:
        return tuple(names.tolist())
    except ValueError as error:  # numbers beyond Unicode
        raise _foreign(target, f"names that are no text ({error})") from error


def _check(
    target: Path, gradients: Sequence[Array], losses: Array, *, names: Sequence[str], nodes: int
) -> int:
    """Return the number of iterations; raises ConfigError unless all arrays agree on it and are finite."""
    if losses.ndim != 1 or losses.dtype != np.float64 or not losses.size:
        came = f"losses of shape {losses.shape} and type {losses.dtype}"
        raise _foreign(target, f"{came} instead of float64 [iteration]")
    expected = (losses.size, nodes)
    for name, tensor in zip(names, gradients, strict=True):
        if tensor.dtype != np.float32 or tensor.shape[:2] != expected:
            raise ConfigError(
                f"{target}: {name}: expected float32 of shape [{losses.size} iterations, {nodes} nodes, ...]"
                f", got {tensor.dtype} of shape {list(tensor.shape)}; record it again"
            )
        for place, slab in enumerate(tensor):  # one at a time: the mask of a whole tensor would be large
            if not np.isfinite(slab).all():
                raise ConfigError(
                    f"{target}: {name}: expected finite values, got NaN or Inf in iteration {place}; "
                    "record it again"
                )
    return losses.size
