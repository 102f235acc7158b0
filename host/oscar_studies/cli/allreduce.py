"""`oscar allreduce`: compare methods on the gradients of one training run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscar.cli.common import add_config, add_workers, check_workers, declare, read_config
from oscar.files import check_outputs, output_folder
from oscar.results import write_results

if TYPE_CHECKING:
    from oscar.config import Config

EXAMPLE = """\
  oscar allreduce                                    the default experiment
  oscar allreduce coarse --set nodes=4 --set link.gbps=10 --set iterations=8
  oscar allreduce mine.yaml                          your own, from `oscar init mine.yaml`

Trains the configured workload with the configured method, then puts every method of the configuration
through the same gradients. Prints one table and writes results.json, table.md, allreduce.png and
trace.json (open it in ui.perfetto.dev) to the folder `output`.
Exit status 1 when a node differed or a lossless sum was not exact.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands,
        "allreduce",
        run,
        short="compare codecs, schemes and chunk plans on real gradients",
        example=EXAMPLE,
    )
    add_config(parser, default="default")
    add_outputs(parser)


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where results go."""
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the results here as well")
    parser.add_argument(
        "--trace-out", type=Path, metavar="FILE", help="timeline (default: OUTPUT/trace.json)"
    )
    add_workers(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    return compare(read_config(args), args, Path(args.config))


def compare(config: Config, args: argparse.Namespace, *inputs: Path) -> int:
    """Run the comparison and report it everywhere; inputs: files that nothing may be written over."""
    check_outputs([args.json, args.trace_out], inputs)
    check_workers(args)
    with output_folder(config.output) as folder:
        return _compare(config, args, folder)


def _compare(config: Config, args: argparse.Namespace, folder: Path) -> int:
    from oscar.cli.progress import Show
    from oscar.provenance import provenance
    from oscar_studies.comparison import run_experiment
    from oscar_studies.comparison_report import text_table, write_outputs, write_timeline

    with Show() as show:
        results, recording = run_experiment(config, workers=args.workers, progress=show)
    results["provenance"] = provenance()  # the same in both files
    print(text_table(results))
    paths = write_outputs(results, folder)
    if args.json is not None:
        write_results(args.json, results)
        paths.append(args.json)
    if config.nodes > 1:
        paths.append(args.trace_out or folder / "trace.json")
        write_timeline(recording, config, paths[-1])
    print(f"# wrote {', '.join(str(path) for path in paths)}")
    if not results["ok"]:
        print("# FAILED: see the column #wrong")
        return 1
    return 0
