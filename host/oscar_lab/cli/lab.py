"""`oscar lab`: AllReduce methods against each other on a rate-limited network inside this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar.cli.common import add_config, declare, read_config
from oscar.cores import one_blas_thread
from oscar.files import output_folder
from oscar.results import read_results, write_results
from oscar_studies.cli.report import ResultsKind

ALL = "lab"  # the configuration that has all cases of docs/results/lab.md
EXAMPLE = """\
  oscar lab                                   list the cases, and how long they take
  oscar lab lab_short                         as root: sudo .venv/bin/oscar lab ...
  oscar lab all                               everything of configs/lab.yaml
  oscar lab --redraw build/lab/results.json   table and figure once more

Needs root: every host is a network namespace behind a link limited by tbf. A case is refused unless one flow
reaches the goodput that the rate allows, and the bytes counted on each link in each run are those
of its frames (docs/how-to/lab.md). Results are written after each case: one that is refused is named there,
the others go on. Status 1 when a sum was wrong or a case refused.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands, "lab", run, short="measure AllReduce methods on rate-limited links", example=EXAMPLE
    )
    add_config(parser, default=None)
    parser.add_argument("--redraw", type=Path, metavar="RESULTS", help="table and figure of results.json")


def kind() -> ResultsKind:
    """Return how `oscar report` prints and draws the results of this command."""
    from oscar_lab.lab import report

    return ResultsKind("lab", frozenset({"cases", "source"}), "lab.png", report.text_report, report.draw)


def run(args: argparse.Namespace) -> int:
    """Measure what the configuration asks for; return 1 where a sum was wrong or a case refused.

    Without a configuration only list what there is: all cases take hours, and need root.
    """
    one_blas_thread()
    from oscar.errors import ConfigError
    from oscar_lab.lab.network import require_root

    if args.redraw is not None:
        return _redraw(args.redraw)
    if args.config is None:
        return _list()
    args.config = ALL if args.config == "all" else args.config
    require_root()  # before the imports below: they load compiled code, and need a cache
    from oscar_lab.lab.measure import measure
    from oscar_lab.lab.report import text_report, write_report
    from oscar_lab.lab.settings import parse_settings

    config = read_config(args)
    try:
        parse_settings(config)
    except ConfigError as error:
        raise ConfigError(f"{args.config}: {error}") from None
    with output_folder(config.output) as folder:
        file = folder / "results.json"
        results = measure(
            config, lambda line: print(line, flush=True), lambda results: write_results(file, results)
        )
        paths = write_report(results, folder)
    print(text_report(results))
    print(f"# wrote {file}, {', '.join(map(str, paths))}")
    wrong = any(row["wrong"] for case in results["cases"] for row in case["methods"])
    return 1 if wrong or results["refused"] else 0


def _list() -> int:
    from oscar_lab.lab.listing import listing

    print("\n".join(listing()))
    print("# choose one: oscar lab NAME, oscar lab FILE.yaml, or oscar lab all (lab, the longest)")
    return 0


def _redraw(path: Path) -> int:
    from oscar_lab.lab.report import text_report, write_report

    results = read_results(path, "lab")
    write_report(results, path.parent)
    print(text_report(results))
    return 0
