"""The kinds of results that commands write, and how each is printed and drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oscar.errors import ConfigError
from oscar.results import FORMS, Results, read_json


@dataclass(frozen=True)
class ResultsKind:
    """What `oscar COMMAND` writes. keys: what its results hold and no others do; figure: its usual name."""

    command: str
    keys: frozenset[str]
    figure: str
    text: Callable[[Results], str]
    draw: Callable[[Results, Path], None]


def kind_of(path: Path) -> ResultsKind:
    """Return the kind of results in a file; raises ConfigError where it is none of them."""
    content = read_json(path, _commands(), writer="oscar allreduce")
    for kind in kinds():
        if isinstance(content, dict) and kind.keys <= content.keys():
            return kind
    raise ConfigError(f"{path}: expected results of {_commands()}, got something else")


def _commands() -> str:
    return ", ".join(f"`oscar {command}`" for command in FORMS)


def kinds() -> tuple[ResultsKind, ...]:
    """Return all kinds; imported late, since the commands are not all needed at once."""
    from oscar.cli import laboratory
    from oscar.studies import (
        comparison_figure,
        comparison_table,
        contest_figure,
        contest_report,
        scaling,
        training_figure,
        training_results,
    )

    lab = (laboratory.module("cli.lab").kind(),) if laboratory.present() else ()
    return (
        ResultsKind(
            "allreduce", frozenset({"methods", "loss"}), "allreduce.png",
            comparison_table.text_table, comparison_figure.draw,
        ),
        ResultsKind(
            "train", frozenset({"runs", "spread"}), "train.png",
            training_results.text_table, lambda shown, path: training_figure.draw([shown], path),
        ),
        ResultsKind(
            "compare", frozenset({"title", "metric", "rows"}), "compare.png",
            contest_report.text_report, contest_figure.draw,
        ),
        ResultsKind(
            "scale", frozenset({"points", "measured_nodes"}), "scale.png",
            scaling.scale_table, scaling.draw_scale,
        ),
        *lab,
    )  # fmt: skip
