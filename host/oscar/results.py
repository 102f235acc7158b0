"""Results files: the JSON that a command writes, with a line for each key and each row; and reading it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscar.errors import ConfigError, MissingExtraError
from oscar.files import write_text
from oscar.provenance import provenance

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """What results of a command hold: these keys at least, and the number of their schema, if it has one."""

    needed: tuple[str, ...]
    schema: int | None = None


FORMS = {  # by command
    "allreduce": Form(("config", "quantiser", "model", "nodes", "methods", "loss", "nic"), 3),
    "train": Form(("config", "clock", "model", "rows", "mean", "spread", "runs"), 2),
    "compare": Form(("title", "metric", "rows")),
    "scale": Form(("points", "measured_nodes")),
    "lab": Form(("source", "values", "machine", "cases"), 1),
}


def write_results(path: Path, results: Results) -> None:
    """Write results, and where they come from, to `path`, whole or not at all; raises ConfigError.

    A `provenance` that they have stays, as of runs of other revisions.
    """
    lines = []
    for key, value in finite({"provenance": provenance(), **results}).items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(json.dumps(row) for row in value)
            text = f"[\n  {rows}\n ]"
        lines.append(f"{json.dumps(key)}: {text}")
    write_text(path, "{\n " + ",\n ".join(lines) + "\n}\n")


def finite(tree: Any) -> Any:
    """Return `tree` with null for NaN and the infinities, which JSON does not have."""
    if isinstance(tree, Mapping):
        return {key: finite(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def read_json(path: Path, source: str, *, writer: str) -> Any:
    """Return the JSON in a file of results of `source`; raises ConfigError, which names the `writer`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `{writer} CONFIG` writes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected results of {source}, got {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name}, which is no number in JSON")


@contextmanager
def shown(path: Path, name: str) -> Iterator[None]:
    """Turn what goes wrong while results of `oscar NAME` are shown into a ConfigError that names their file.

    `read_results` looks at the outermost keys alone: what lies deeper is foreign where it is first missed.
    """
    try:
        yield
    except MissingExtraError:
        raise
    except ConfigError as error:
        raise error if str(path) in str(error) else ConfigError(f"{path}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else f"others ({error})"
        raise ConfigError(
            f"{path}: expected results as `oscar {name}` of this version writes them, {what}; run it again"
        ) from error


def read_results(path: Path, name: str) -> dict[str, Any]:
    """Return the results that `oscar NAME` wrote; raises ConfigError on anything else."""
    form, command = FORMS[name], f"oscar {name}"
    results = read_json(path, f"`{command}`", writer=command)
    if isinstance(results, dict) and results.get("schema", form.schema) != form.schema:
        raise ConfigError(
            f"{path}: written as schema {results.get('schema')!r}, this version reads {form.schema}; "
            f"run `{command}` again"
        )
    wanted = form.needed if form.schema is None else [*form.needed, "schema"]
    missing = [key for key in wanted if not isinstance(results, dict) or key not in results]
    if missing:
        raise ConfigError(f"{path}: expected results of `{command}`, {', '.join(missing)} is missing")
    return dict(results)
