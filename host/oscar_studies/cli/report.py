"""`oscar report`: table, figure and page again, from results alone, for each kind of results."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscar.cli.common import declare
from oscar.errors import ConfigError
from oscar.files import check_outputs, write_text
from oscar.results import FORMS, Results, read_json, read_results, shown

EXAMPLE = """\
  oscar report build/allreduce/results.json
  oscar report build/train/train.json --html train.html     one page that holds everything
  oscar report a/results.json b/results.json --markdown

Takes the JSON of allreduce, train, compare, scale or lab. A page of --html needs no other file, no network.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands,
        "report",
        run,
        short="print the table of earlier results, draw their figure, or make a page of them",
        example=EXAMPLE,
        compiles=False,
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE.png", help="default: its usual name, beside the JSON"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE.html", help="write one self-contained page as well"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print Markdown instead (results of allreduce)"
    )


def run(args: argparse.Namespace) -> int:
    """Print and draw; nothing is run again."""
    from oscar_studies.cli.html import page
    from oscar_studies.comparison_report import markdown_table

    for name, path in (("--figure", args.figure), ("--html", args.html)):
        if path is not None and len(args.results) > 1:
            raise ValueError(f"{name} names one file; give one RESULTS.json with it")
    check_outputs([args.figure, args.html], args.results)
    for path in args.results:
        kind = kind_of(path)
        results = read_results(path, kind.command)
        if args.markdown and kind.command != "allreduce":
            raise ValueError(
                f"--markdown takes results of oscar allreduce, {path} is of oscar {kind.command}"
            )
        wrote = [args.figure or path.with_name(kind.figure)]
        check_outputs(wrote)
        with shown(path, kind.command):
            print(markdown_table(results) if args.markdown else kind.text(results))
            made = None if args.html is None else page(kind, results, path)
            kind.draw(results, wrote[0])
        if made is not None:
            write_text(args.html, made)
            wrote.append(args.html)
        if not args.markdown:
            print(f"# wrote {', '.join(map(str, wrote))}")
    return 0


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
    """Return all kinds, also what `kind` returns in modules of other commands.

    Imported late, since the commands are not all needed at once.
    """
    from oscar.cli import installed
    from oscar_studies import comparison_report, contest_report, scaling, training_results

    others = (module.kind() for module in installed.modules() if hasattr(module, "kind"))
    return (
        ResultsKind(
            "allreduce", frozenset({"methods", "loss"}), "allreduce.png",
            comparison_report.text_table, comparison_report.draw,
        ),
        ResultsKind(
            "train", frozenset({"runs", "spread"}), "train.png",
            training_results.text_table, lambda shown, path: training_results.draw([shown], path),
        ),
        ResultsKind(
            "compare", frozenset({"title", "metric", "rows"}), "compare.png",
            contest_report.text_report, contest_report.draw,
        ),
        ResultsKind(
            "scale", frozenset({"points", "measured_nodes"}), "scale.png",
            scaling.scale_table, scaling.draw_scale,
        ),
        *others,
    )  # fmt: skip
