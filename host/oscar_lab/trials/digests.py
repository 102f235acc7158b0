"""Digests of what every method, schedule, option and policy computes: equal before and after a restructuring.

A case has two digests: of all bits (means, sums, frames, statistics, saved arrays), and of modelled times.
Another revision is measured by this same file, as a program, with that revision's `host` in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from oscar import shipped
from oscar.cli import main
from oscar.coding.index import INDEX_CODECS, make_index
from oscar.coding.registry import codec_names, make_codec
from oscar.collective.schedules import SCHEDULES
from oscar.config import Config
from oscar.numerics.plans import PLANS
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.reducers.grouped import Group, GroupedCluster
from oscar.schemes.registry import scheme_class, scheme_names
from oscar.transports.threads import local_transports

SHAPES = [(40, 17), (23,), (), (31, 3)]
CODECS = (  # in this order: a case's number chooses its plan
    "fp32", "bf16", "fp16", "int16", "int32", "int8", "atalanta", "atalanta-dp", "rans0", "zstd",
    "constriction", "mxfp8", "mxfp6", "mxfp4", "fp8-rows", "bf16-lossless", "fp32-lossless", "asc",
    "asc-paper",
)  # fmt: skip
NODES = 1, 2, 3, 5
CALLS = 4
TIMES = (
    "time",
    "seconds",
    "overlap",
    "rtl",
    "gbps",
    "speed",
    "clock",
)  # of keys of results that depend on time
STATS = (
    "values",
    "plan",
    "iteration",
    "exact",
    "identical",
    "clipped",
    "clipped_energy",
    "reset",
    "exchange_bytes",
)


class Digest:
    """The two digests of a case: `add` takes bits, `time` takes seconds."""

    def __init__(self) -> None:
        self._both = [hashlib.sha256(), hashlib.sha256()]

    def add(self, *every: Any) -> None:
        """Add arrays, numbers, texts, and lists and dictionaries of them."""
        for one in every:
            self._both[0].update(_bytes(one))

    def time(self, seconds: float) -> None:
        """Add a modelled time, to 9 digits."""
        self._both[1].update(f"{seconds:.9g} ".encode())

    def line(self) -> list[str]:
        """Return both digests, 16 hexadecimal digits each."""
        return [result.hexdigest()[:16] for result in self._both]


Case = Callable[[Digest], None]
Cases = Iterator[tuple[str, Case]]


def _bytes(tree: Any) -> bytes:
    if isinstance(tree, np.ndarray) and tree.dtype.names:
        return b"".join(_bytes(tree[name]) for name in tree.dtype.names)
    if isinstance(tree, (np.ndarray, np.generic)):
        return f"{tree.dtype} {tree.shape} ".encode() + np.ascontiguousarray(tree).tobytes()
    if isinstance(tree, dict):
        return b"".join(_bytes(key) + _bytes(tree[key]) for key in sorted(tree, key=str))
    if isinstance(tree, (list, tuple)):
        return b"[" + b"".join(_bytes(one) for one in tree) + b"]"
    return repr(tree).encode() + b" "


def _arrays(tree: Any) -> list[bytes]:
    """Return all arrays of a saved state as a sorted list, as their layout may change."""
    if isinstance(tree, dict):
        return sorted(one for part in tree.values() for one in _arrays(part))
    if isinstance(tree, (list, tuple)):
        return sorted(one for part in tree for one in _arrays(part))
    return [_bytes(tree)] if isinstance(tree, np.ndarray) else []


def gradients(nodes: int, call: int, *, sparse: bool = False) -> list[list[np.ndarray]]:
    """Return gradients [node][tensor], float32, like those of a training; sparse: mostly zeros."""
    result = []
    for node in range(nodes):
        random = np.random.default_rng([nodes, call, node])
        tensors = [np.asarray(random.laplace(0, 0.02, shape), np.float32) for shape in SHAPES]
        if sparse:
            tensors = [np.asarray(np.where(random.random(x.shape) < 0.1, x, 0), np.float32) for x in tensors]
        result.append(tensors)
    return result


def _told(result: Any, digest: Digest) -> None:
    digest.add(*result.mean, result.sums, [getattr(result.stats, name) for name in STATS])
    digest.add(result.stats.frames.rows)
    digest.time(result.stats.time_s)


def _calls(
    how: dict[str, Any], nodes: int, digest: Digest, *, sparse: bool = False, resumed: bool = False
) -> None:
    """Add CALLS calls of a cluster; resumed: the second half by another cluster, which loads the state."""
    config = Config.model_validate({"nodes": nodes} | how)
    cluster = LocalCluster(config)
    for call in range(CALLS):
        if resumed and call == CALLS // 2:
            state = cluster.state_dict()
            cluster = LocalCluster(config)
            cluster.load_state_dict(state)
        _told(cluster.allreduce(gradients(nodes, call, sparse=sparse)), digest)
    if resumed:
        digest.add(*_arrays(cluster.state_dict()))


def _clusters(every: dict[str, Any], nodes: Sequence[int] = NODES, **how: Any) -> Cases:
    for name, config in every.items():
        for number in nodes:
            yield f"{name}/n{number}", partial(_calls, config, number, **how)


def schedules() -> Cases:
    """Every codec by every schedule; plans, sub-frames and error feedback change with the case."""
    every: dict[str, dict[str, Any]] = {}
    if missing := set(codec_names()) - set(CODECS):
        raise ValueError(
            f"expected all codecs in CODECS, {', '.join(sorted(missing))} is not there: add it last"
        )
    for number, (codec, schedule) in enumerate(product(CODECS, SCHEDULES)):
        plan, sub, feedback = list(PLANS)[number % len(PLANS)], 1 + number % 3, number % 2 == 1
        how = {"method": codec, "plan": {"name": plan, "granule": 32}}
        how |= {"schedule": {"name": schedule, "subframes": sub}}
        how |= {"quantiser": {"error_feedback": feedback}} if make_codec(codec).domain == "int" else {}
        every[f"{codec}/{schedule}/{plan}/sub{sub}"] = how
    return _clusters(every)


OPTIONS: dict[str, dict[str, Any]] = {
    **{f"context-{name}": {"asc": {"context": name}} for name in ("class", "none")},
    **{f"block-{log2}": {"asc": {"block_log2": log2}} for log2 in (0, 10, 12)},
    "no-sent-rows": {"asc": {"sent_rows": False}},
    **{f"bits-{bits}": {"quantiser": {"bits": bits}} for bits in (8, 9, 16)},
    **{f"coarseness-{coarse}": {"quantiser": {"coarseness": coarse}} for coarse in (0.01, 1.0, 8.0)},
    "tree": {"schedule": {"name": "hierarchical", "group": 1}},
    "slow": {"link": {"gbps": 1.0}},
}


def options() -> Cases:
    """Options of the coder, the quantiser and the link."""
    return _clusters(OPTIONS)


def _variants(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the options of a scheme, each of them once at another value."""
    yield "default", {}
    kind = scheme_class(name).Options
    defaults = kind()
    words = {
        "exchange": ("balanced", "doubling", "all-gather", "blocks", "dense"),
        "partition": ("range", "interleave", "learnt", "released"),
        "grain": ("value", "row"),
        "controller": ("released",),
        "values": ("int8", "asc"),
        **dict.fromkeys(("index", "push", "pull"), (*INDEX_CODECS, "or", "gather")),
        "norm": ("l2", "max"),
        "cells": ("sketch", "values"),
    }
    for option in (one.name for one in fields(kind)):
        value = getattr(defaults, option)
        if isinstance(value, bool):
            changed: tuple[Any, ...] = (not value,)
        elif isinstance(value, int):
            changed = (value + 1,)
        elif isinstance(value, float):
            changed = (value / 2,) if value else (0.5,)
        else:
            changed = tuple(word for word in words.get(option, ()) if word != value)
        for other in changed:
            yield f"{option}={other}", {option: other}


def schemes() -> Cases:
    """Every scheme, with each of its options at another value; gradients with many zeros."""
    every = {
        f"{name}/{variant}": {"method": name, "scheme": given}
        for name in scheme_names()
        for variant, given in _variants(name)
    }
    return _clusters(every, nodes=(1, 3), sparse=True)


def states() -> Cases:
    """Every method, its state saved and loaded half-way."""
    return _clusters({name: {"method": name} for name in (*CODECS, *scheme_names())}, resumed=True)


def _grouped(number: int, nodes: int, digest: Digest) -> None:
    fine = {"error_feedback": True}
    methods: list[dict[str, Any]] = [
        {"method": "fp32", "schedule": {"name": "direct"}},
        {"method": "asc", "schedule": {"name": "ring"}, "quantiser": fine | {"coarseness": 4.0}},
        {"method": "topk", "scheme": {"density": 0.5}},
        {"method": "bf16", "schedule": {"name": "ring"}},
        {"method": "asc", "schedule": {"name": "direct"}, "quantiser": fine},
    ]
    cuts: list[list[tuple[int, ...]]]
    cuts = [[(0, 1), (2, 3)], [(0,), (1, 2, 3)], [(0, 1, 2, 3)], [(0,), (1,), (2,), (3,)]]

    def groups(shift: int) -> list[Group]:
        chosen = cuts[(number + shift) % len(cuts)]
        return [
            Group(
                tensors,
                Config.model_validate({"nodes": nodes} | methods[(number + at + shift) % len(methods)]),
            )
            for at, tensors in enumerate(chosen)
        ]

    cluster = GroupedCluster(groups(0))
    for call in range(2 * CALLS):
        if call in (3, 5):
            cluster.regroup(groups(call))
        if call == 6:
            state, cluster = cluster.state_dict(), GroupedCluster(groups(5))
            cluster.load_state_dict(state)
        result = cluster.allreduce(gradients(nodes, call))
        digest.add(*result.mean, result.sums, [part.frames.rows for part in result.parts])
        digest.time(result.stats.time_s)


def policies() -> Cases:
    """Groups of tensors, each by a method of its own; regrouped twice, saved and loaded once."""
    for number in range(20):
        for nodes in (2, 3, 5):
            yield f"{number}/n{nodes}", partial(_grouped, number, nodes)


def _ranks(how: dict[str, Any], nodes: int, digest: Digest) -> None:
    config = Config.model_validate({"nodes": nodes} | how)

    def rank(transport: Any) -> list[Any]:
        communicator, own = Communicator(config, transport), transport.rank
        return [communicator.allreduce(gradients(nodes, call, sparse=True)[own]) for call in range(CALLS)]

    with ThreadPoolExecutor(nodes) as pool:
        for result in (one for calls in pool.map(rank, local_transports(nodes)) for one in calls):
            digest.add(*result.mean, result.sums, result.stats.sent_bytes, result.stats.frames.rows)


def ranks() -> Cases:
    """Every method, and ASC by every schedule, between ranks over threads."""
    cases: dict[str, dict[str, Any]] = {name: {"method": name} for name in (*CODECS, *scheme_names())}
    cases |= {f"asc-{name}": {"schedule": {"name": name, "subframes": 2}} for name in SCHEDULES}
    for name, how in cases.items():
        for nodes in NODES:
            yield f"{name}/n{nodes}", partial(_ranks, how, nodes)


def _index(name: str, share: float, digest: Digest) -> None:
    encoder, decoder = make_index(name), make_index(name)
    random = np.random.default_rng(1)
    popular = random.random(5000) ** 4 * share * 3
    classes = np.asarray(np.minimum(15, popular * 20), np.uint8)
    for _ in range(CALLS):
        positions = np.flatnonzero(random.random(5000) < popular)
        stream = encoder.encode(positions, 5000, classes)
        digest.add(stream, decoder.decode(stream, 5000, classes))


def indices() -> Cases:
    """Every index codec: streams and what they decode to."""
    for name in INDEX_CODECS:
        for share in (0.0, 0.01, 0.1, 0.5):
            yield f"{name}/{share}", partial(_index, name, share)


def _started(words: list[str], digest: Digest) -> None:
    """Run a command into a folder of its own; add the results that do not depend on time."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(io.StringIO()):
            digest.add(main([*words, "--set", f"output={folder}"]))
        path = Path(folder) / {"allreduce": "results.json", "train": "train.json"}[words[0]]
        results = json.loads(path.read_text(encoding="utf-8"))
    digest.add(*(_timeless(results.get(key)) for key in ("methods", "loss", "evaluation", "rows")))


def _timeless(tree: Any) -> Any:
    if isinstance(tree, dict):
        kept = {key: one for key, one in tree.items() if not any(word in key for word in TIMES)}
        return {key: _timeless(one) for key, one in kept.items() if not key.endswith("_s")}
    return [_timeless(one) for one in tree] if isinstance(tree, list) else tree


def commands() -> Cases:
    """`oscar allreduce` of every shipped configuration, `oscar train` by some methods."""
    short = ["--set", "nodes=3", "--set", "iterations=2"]
    for path in sorted(shipped.folder().glob("*.yaml")):
        if not path.stem.startswith("compare"):
            yield f"allreduce/{path.stem}", partial(_started, ["allreduce", str(path), *short])
    for method in ("asc", "fp32", "topk", "zen", "oscar-sw", "powersgd"):
        changes = *short[:2], "--set", "iterations=12", "--set", "train.ring_every=1"
        yield f"train/{method}", partial(_started, ["train", *changes, "--set", f"method={method}"])


PARTS = {
    part.__name__: part for part in (schedules, options, schemes, states, policies, ranks, indices, commands)
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write all digests here")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with digests written before")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a digest of each part's digests; "ok" tells whether all bits are those of `--against`."""
    print("# part, cases, refused, digest of the bits, digest of the times")
    result: dict[str, list[str]] = {}
    for part in args.only:
        lines, refused = {}, 0
        for name, case in PARTS[part]():
            lines[f"{part}/{name}"], here = _measure(case)
            refused += here
        result |= lines
        whole = [hashlib.sha256(repr([line[at] for line in lines.values()]).encode()) for at in (0, 1)]
        print(f"{part:10} {len(lines):5} {refused:4}", *(one.hexdigest()[:16] for one in whole), flush=True)
    if args.write is not None:
        text = "".join(f"{name} {' '.join(line)}\n" for name, line in result.items())
        args.write.write_text(
            "# case, SHA-256 of the bits, of the times; 16 digits\n" + text, encoding="utf-8"
        )
    return {"ok": args.against is None or _equal(result, args.against), "digests": result}


def _measure(case: Case) -> tuple[list[str], bool]:
    """Return a case's digests, and whether it was refused: that is a result, too."""
    digest = Digest()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case(digest)
    except Exception as error:
        digest.add(type(error).__name__)
        return digest.line(), True
    return digest.line(), False


def _equal(result: dict[str, list[str]], path: Path) -> bool:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    before = {line[0]: line[1:] for line in lines}
    shared = [name for name in result if name in before]
    for name in shared:
        if result[name] != before[name]:
            print(f"# differs: {name}: " + ("times" if result[name][0] == before[name][0] else "bits"))
    bits, times = (sum(result[name][at] == before[name][at] for name in shared) for at in (0, 1))
    print(f"# of {len(shared)} shared cases (of {len(result)}) equal in bits: {bits}, in times: {times}")
    return bits == len(shared)


if __name__ == "__main__":  # another revision's `oscar` may have no laboratory
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    raise SystemExit(not run(parser.parse_args())["ok"])
