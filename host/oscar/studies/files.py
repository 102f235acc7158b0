"""Results on disk: JSON with one method a line, the Markdown table, the figure, the timeline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.collective.gather import Gather
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.files import write_text
from oscar.studies.comparison import SCHEMA
from oscar.studies.rounds import Training
from oscar.studies.table import markdown_table
from oscar.timeline.perfetto import write_trace
from oscar.timeline.replay import replay

NEEDED = ("config", "quantiser", "model", "nodes", "methods", "loss", "nic")


def results_text(results: Mapping[str, Any]) -> str:
    """Return results as JSON, one line for each key and each method."""
    lines = []
    for key, value in results.items():
        if key == "methods":
            rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in value)
            lines.append(f'"methods": [\n  {rows}\n ]')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def load_results(path: str | Path) -> dict[str, Any]:
    """Return what results.json holds; raises ConfigError on anything else."""
    return read_results(Path(path), "oscar allreduce", NEEDED, SCHEMA)


def read_json(path: Path, source: str, *, writer: str) -> Any:
    """Return the JSON in a file of results of `source`; raises ConfigError, which names the `writer`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `{writer} CONFIG` writes one") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: expected results of {source}, got {error}") from None


def read_results(path: Path, command: str, needed: Sequence[str], schema: object) -> dict[str, Any]:
    """Return the results that `command` wrote; raises ConfigError without `needed` keys or `schema`."""
    results = read_json(path, f"`{command}`", writer=command)
    if isinstance(results, dict) and results.get("schema", schema) != schema:
        raise ConfigError(
            f"{path}: written as schema {results.get('schema')!r}, this version reads {schema}; "
            f"run `{command}` again"
        )
    wanted = needed if schema is None else [*needed, "schema"]
    missing = [key for key in wanted if not isinstance(results, dict) or key not in results]
    if missing:
        raise ConfigError(f"{path}: expected results of `{command}`, {', '.join(missing)} is missing")
    return dict(results)


def write_results(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write results.json, table.md and allreduce.png; return their paths."""
    from oscar.studies.figure import draw

    paths = [folder / name for name in ("results.json", "table.md", "allreduce.png")]
    write_text(paths[0], results_text(results))
    write_text(paths[1], markdown_table(results))
    draw(results, paths[2])
    return paths


def write_timeline(training: Training, config: Config, path: Path) -> None:
    """Write the timeline of the last AllReduce of the training run, for ui.perfetto.dev."""
    from oscar.coding.registry import make_codec

    stats, codec = training.stats[-1], make_codec(config.method)
    spans = replay(
        stats.frame_bytes,
        stats.counts,
        config.link.model(),
        Gather(config.ring.gather, adopt=not codec.lossless, coded=codec.coded),
        spans=True,
    ).spans
    meta = {"config": config.model_dump(mode="json"), "iteration": stats.iteration, "plan": stats.plan}
    meta["clock"] = config.link.clock_text()
    write_trace(path, spans, meta)
