"""The five kinds of results that commands write, and how each is read, printed and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscar.errors import ConfigError
from oscar.studies.files import read_json

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """What `oscar COMMAND` writes. keys: what its results hold and no others do; figure: its usual name."""

    command: str
    keys: frozenset[str]
    figure: str
    load: Callable[[Path], dict[str, Any]]
    text: Callable[[Results], str]
    draw: Callable[[Results, Path], None]


def kind_of(path: Path) -> Kind:
    """Return the kind of results in a file; raises ConfigError where it is none of them."""
    content = read_json(path, _commands(), writer="oscar allreduce")
    for kind in kinds():
        if isinstance(content, dict) and kind.keys <= content.keys():
            return kind
    raise ConfigError(f"{path}: expected results of {_commands()}, got something else")


def _commands() -> str:
    return ", ".join(f"`oscar {kind.command}`" for kind in kinds())


def kinds() -> tuple[Kind, ...]:
    """Return all kinds; imported late, since the commands are not all needed at once."""
    from oscar.lab import report as lab
    from oscar.studies import contest_figures as figures
    from oscar.studies import contest_report as compare_report
    from oscar.studies import figure, files, scaling, table
    from oscar.studies import training_results as results

    return (
        Kind(
            "allreduce", frozenset({"methods", "loss"}), "allreduce.png",
            files.load_results, table.text_table, figure.draw,
        ),
        Kind(
            "train", frozenset({"runs", "spread"}), "train.png",
            results.load_results, results.text_table, lambda shown, path: figures.draw([shown], path),
        ),
        Kind(
            "compare", frozenset({"title", "metric", "rows"}), "compare.png",
            lambda path: files.read_results(path, "oscar compare", ("title", "metric", "rows"), None),
            compare_report.text_report, compare_report.draw,
        ),
        Kind(
            "scale", frozenset({"points", "measured_nodes"}), "scale.png",
            lambda path: files.read_results(path, "oscar scale", ("points", "measured_nodes"), None),
            scaling.scale_table, scaling.draw_scale,
        ),
        Kind("lab", frozenset({"cases", "source"}), "lab.png", lab.load_results, lab.text_report, lab.draw),
    )  # fmt: skip
