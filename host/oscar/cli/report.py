"""`oscar report`: table and figure again, from results alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar.cli.common import declare
from oscar.files import check_outputs

EXAMPLE = """\
  oscar report build/allreduce/results.json
  oscar report a/results.json b/results.json --markdown
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands,
        "report",
        run,
        short="print the table and draw the figure of earlier results",
        example=EXAMPLE,
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE.png", help="default: allreduce.png beside the JSON"
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead")


def run(args: argparse.Namespace) -> int:
    """Print and draw; nothing is run again."""
    from oscar.experiment.figure import draw
    from oscar.experiment.files import load_results
    from oscar.experiment.table import markdown_table, text_table

    if args.figure is not None and len(args.results) > 1:
        raise ValueError("--figure names one file; give one RESULTS.json with it")
    figures = [args.figure or path.with_name("allreduce.png") for path in args.results]
    check_outputs(set(figures), args.results)
    for path, figure in zip(args.results, figures, strict=True):
        results = load_results(path)
        print(markdown_table(results) if args.markdown else text_table(results))
        draw(results, figure)
        if not args.markdown:
            print(f"# wrote {figure}")
    return 0
