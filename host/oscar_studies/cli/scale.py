"""`oscar scale`: AllReduce time at up to 1,024 nodes from frames measured at few."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oscar.cli.common import add_config, amount, declare, read_config
from oscar.files import check_outputs, output_folder
from oscar.results import read_results, shown, write_results

EXAMPLE = """\
  oscar scale --results build/allreduce/results.json
  oscar scale --results build/allreduce/results.json --values 25M --nodes 8 64 1024
  oscar scale default                         runs the comparison first

Bits per value at larger rings follow from how they grow along the measured steps. Writes scale.json and
scale.png beside the results.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands,
        "scale",
        run,
        short="model AllReduce time at 8 to 1024 nodes from measured frames",
        example=EXAMPLE,
    )
    add_config(parser, default=None)
    parser.add_argument(
        "--results", type=Path, metavar="RESULTS.json", help="results of an earlier comparison"
    )
    parser.add_argument(
        "--nodes", type=int, nargs="+", metavar="N", default=[8, 16, 32, 64, 128, 256, 512, 1024]
    )
    parser.add_argument("--values", type=amount, metavar="V", help="size of the model (default: as measured)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="default: scale.json beside the results")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE.png", help="default: scale.png beside the results"
    )


def run(args: argparse.Namespace) -> int:
    """Scale measured frames; print, write and draw the result."""
    from oscar.state import MOST_VALUES
    from oscar.timeline.scale import check_nodes

    if (args.config is None) == (args.results is None):
        raise ValueError("give a CONFIG to run, or --results of an earlier comparison")
    check_nodes(args.nodes)
    if args.values is not None and not 1 <= args.values <= MOST_VALUES:
        raise ValueError(
            f"--values: expected a model of at least 1 value and at most {MOST_VALUES:,}, got {args.values}"
        )
    if args.results is not None:
        source: Path = args.results
        return _scale(args, source.parent, source, lambda: read_results(source, "allreduce"))
    config = read_config(args)

    def measure() -> dict[str, Any]:
        from oscar.cli.progress import Show
        from oscar_studies.comparison import run_experiment

        with Show() as show:
            return run_experiment(config, progress=show)[0]

    with output_folder(config.output) as folder:
        return _scale(args, folder, Path(args.config), measure)


def _scale(args: argparse.Namespace, folder: Path, source: Path, measure: Callable[[], Any]) -> int:
    from oscar_studies.scaling import draw_scale, scale_results, scale_table

    out, figure = args.json or folder / "scale.json", args.figure or folder / "scale.png"
    check_outputs([out, figure], [source])
    results, nodes = measure(), sorted(set(args.nodes))
    with shown(source, "allreduce"):
        scaled = scale_results(results, nodes, values=args.values, seed=results["config"]["seed"])
    print(scale_table(scaled))
    write_results(out, scaled)
    draw_scale(scaled, figure)
    print(f"# wrote {out}, {figure}")
    return 0
