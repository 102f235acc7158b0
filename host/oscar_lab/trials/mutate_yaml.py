"""Mutated configurations: every one is a valid Config or one ConfigError in one line; no traceback, no hang.

Half are edited as text (bytes, lines, tokens, cuts, splices), half as a tree (keys dropped, renamed, given
again, values of other types and sizes), one to three times. Each is read by `load_config` as every command
does. A valid one must also survive the JSON that results are written in. Workers are processes of their own.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from oscar import yaml_core
from oscar.config import load_config
from oscar.errors import ConfigError
from oscar.tables import Table
from oscar_lab.trials import _hunt
from oscar_lab.trials._hunt import Chunk, Judge, cases, hunt, seed_of
from oscar_studies.parallel import Tick

HANG_SECONDS = 1.0  # of processor time: machines are shared
LONGEST_LINE = 20_000  # characters of an error
CHUNK = 500  # configurations that a worker is given at a time
KEPT_FAULTS = 10
NAMES = ("valid", "refused", "tracebacks", "crashes", "hangs", "faults")
TABLE = Table("count >11", *(f"{name} >11" for name in NAMES), "slowest_ms >11", "seconds >11")

TOKENS = (
    "[", "]", "{", "}", ": ", "- ", ", ", "&a ", "*a", "<<: *a", "!!int ", "!!python/name:os.system ", "? ",
    "|", ">", "%YAML 1.1\n", "---\n", "...\n", "\t", "\n", "\r", "\x00", "\x1b[31m", "\ufeff", "\u202e",
    "\U0001f600", '"\\ud800"', "'", '"', "010", "1_000", "1:30", "yes", "~", ".nan", "-.inf", "1e999", "-1",
    "0x" + "f" * 99, "9" * 5000, "[" * 5000, "{a: " * 300, "- " * 5000, "a" * 3000,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**29, -(10**29), 0.0, -0.0, 1e-308, 1e308, 0.5, "", "a",
    "asc", "fp32", "a\nb", "\x07", "$x$", "é", "ß" * 200, [], [[]], [1, "a", None], {}, {"a": {"b": {}}},
    ["asc"], [{"name": "x", "method": "asc"}] * 2, {"name": "x"}, [0.5] * 50,
)  # fmt: skip


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key or index) of everything in a tree."""
    result, open_ones = [], [tree]
    while open_ones:
        here = open_ones.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            result.append((here, key))
            if isinstance(here[key], (dict, list)):
                open_ones.append(here[key])
    return result


def _edit_tree(r: random.Random, tree: Any, keys: list[str]) -> None:
    places = _places(tree)
    if not places:
        return
    here, key = r.choice(places)
    kind = r.choice(("value", "value", "drop", "move", "number", "key"))
    if kind == "value":
        here[key] = copy.deepcopy(r.choice(VALUES))
    elif kind == "drop":
        del here[key]
    elif kind == "move":  # to another place, in which it may have the wrong type
        other, there = r.choice(places)
        other[there] = copy.deepcopy(here[key])
    elif kind == "number" and isinstance(here[key], (int, float)):
        here[key] = here[key] * r.choice((-1, 0, 0.5, 1e3, 1e12, 1e-12, 1e300))
    elif isinstance(here, dict):  # another key, known elsewhere, misspelt, or no text at all
        names = (r.choice(keys), f"{key}x", str(key)[1:], "", "a\nb", r.choice((1, None, True, 0.5)))
        here[r.choice(names)] = here.pop(key)


def _edit_text(r: random.Random, data: bytearray, other: bytes) -> None:
    at, kind = r.randrange(len(data) + 1), r.randrange(8)
    lines = bytes(data).splitlines(keepends=True)
    if kind == 0:
        data[at:at] = r.choice(TOKENS).encode()
    elif kind == 1:
        data[at : at + r.randrange(9)] = r.randbytes(r.randrange(9))
    elif kind == 2:
        del data[at:]
    elif kind == 3 and data:
        data[at - 1] ^= 1 << r.randrange(8)
    elif kind == 4:
        cut = r.randrange(len(other) + 1)
        data[at:] = other[cut:]
    elif lines:  # a line again, elsewhere, away, or further in
        line = r.choice(lines)
        where = r.randrange(len(lines) + 1)
        if kind == 5:
            lines.insert(where, line)
        elif kind == 6:
            lines.remove(line)
        else:
            lines.insert(where, b" " * r.randrange(4) + line)
        data[:] = b"".join(lines)


def mutate(r: random.Random, sources: list[bytes]) -> bytes:
    """Return one of `sources` with one to three mutations."""
    source, times = r.choice(sources), r.choice((1, 1, 2, 3))
    if r.random() < 0.5:
        data = bytearray(source)
        for _ in range(times):
            _edit_text(r, data, r.choice(sources))
        return bytes(data)
    tree = copy.deepcopy(yaml_core.parse(source.decode()))
    keys = [str(key) for _, key in _places(tree)]
    for _ in range(times):
        _edit_tree(r, tree, keys)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=r.random() < 0.5).encode()


def judge(path: Path) -> tuple[str, str | None]:
    """Return what became of the configuration at `path`, and what is wrong with that, if anything."""
    started = time.process_time()
    try:
        config = load_config(path)
        json.dumps(config.model_dump(mode="json"), allow_nan=False).encode()
        kind, fault = "valid", None
    except ConfigError as error:
        kind, text = "refused", str(error)
        plain = text.isprintable() and len(text) <= LONGEST_LINE and text.startswith(str(path))
        fault = None if plain else f"not one line that names the file: {text[:300]!r}"
    except Exception as error:
        kind, fault = "tracebacks", repr(error)[:300]
    took = time.process_time() - started
    if took > HANG_SECONDS:
        kind, fault = "hangs", f"took {took:.2f} s"
    return kind, fault


def _chunk(sources: list[bytes], name: str, count: int, tick: Tick) -> Chunk:
    chunk = Chunk()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.yaml"
        for _, r in cases(name, count, tick):
            data = mutate(r, sources)
            path.write_bytes(data)
            started = time.process_time()
            kind, fault = judge(path)
            chunk.slowest = max(chunk.slowest, time.process_time() - started)
            chunk.tally[kind] += 1
            if fault:
                chunk.tally["faults"] += 1
                chunk.faults.append({"fault": fault, "text": data.decode(errors="replace")[:4000]})
    return chunk


def _make(sources: list[bytes]) -> Judge:
    return partial(_chunk, sources)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` reads to a parser."""
    _hunt.add_arguments(parser, count=20_000, of="configurations")
    parser.add_argument("--configs", type=Path, default="configs", help="folder of intact ones")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Read `args.count` mutated configurations and print a table; "ok" tells whether nothing was wrong."""
    seed = seed_of(args)
    sources = [path.read_bytes() for path in sorted(args.configs.glob("*.yaml"))]
    if not sources:
        raise ConfigError(f"expected a folder of configurations, got {args.configs}")
    print(f"# mutate_yaml: count {args.count}, seed {seed}, {len(sources)} configurations", flush=True)
    found, seconds = hunt(partial(_make, sources), args.count, seed=seed, size=CHUNK, jobs=args.jobs)
    faults = [*({"fault": how, "text": ""} for how in found.lost), *found.faults][:KEPT_FAULTS]
    result: dict[str, Any] = {"seed": seed, "count": args.count}
    result |= {name: found.tally[name] for name in NAMES}
    result |= {"slowest_ms": round(1e3 * found.slowest, 1), "seconds": round(seconds, 1)}
    print(TABLE.heading, TABLE.line(result), sep="\n")
    for fault in faults:
        print(f"# {fault['fault']}\n{fault['text']!r}")
    return {**result, "fault_texts": faults, "ok": not faults}
