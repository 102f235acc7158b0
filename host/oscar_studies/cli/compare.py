"""`oscar compare`: train every method on the same workload, seeds and budgets; table and Pareto figure."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscar.cli.common import add_config, add_workers, check_workers, declare, read_config
from oscar.cores import one_blas_thread
from oscar.files import output_folder, write_text
from oscar.results import write_results

if TYPE_CHECKING:
    from oscar.config import Config
    from oscar_studies.contest import TrainingTask

EXAMPLE = """\
  oscar compare                          a first look, NumPy alone, some minutes
  oscar compare compare_cnn              every method on the CNN, five seeds
  oscar compare compare_cnn --only fp32 OSCAR-SW    these methods alone
  oscar compare compare_cnn --report     print and draw what finished runs have left

Every finished run is kept in the output folder and not run again, so a comparison may be interrupted, or
given more points and seeds later. Exit status 1: a sum that should be exact was not.
A run that diverged is named in its row.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands,
        "compare",
        run,
        short="train with every method on the same workload and seeds: bytes against accuracy",
        example=EXAMPLE,
    )
    add_config(parser, default="compare_numpy")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="train and show these contenders alone")
    add_workers(parser)
    parser.add_argument("--report", action="store_true", help="train nothing; show the runs that are there")


def run(args: argparse.Namespace) -> int:
    """Train what is missing; write compare.json, compare.txt and compare.png."""
    one_blas_thread()
    from oscar.errors import ConfigError
    from oscar_studies.contest import tasks_of

    seeds = [] if args.seed is None else [f"compare.seeds=[{args.seed}]"]
    config = read_config(args, *seeds)
    tasks = tasks_of(config)
    if args.only:
        known = {task.contender for task in tasks}
        unknown = [name for name in args.only if name not in known]
        if unknown:
            raise ConfigError(f"--only {unknown[0]}: no such contender; there are {', '.join(sorted(known))}")
        tasks = [task for task in tasks if task.contender in args.only]
    check_workers(args)
    # A report beside the run that is writing there shows what is finished.
    with nullcontext(Path(config.output)) if args.report else output_folder(config.output) as folder:
        return _compare(config, args, tasks, folder)


def _compare(config: Config, args: argparse.Namespace, tasks: list[TrainingTask], folder: Path) -> int:
    from oscar.cli.progress import Show
    from oscar.errors import ConfigError
    from oscar.version import __version__
    from oscar_studies.contest import provenances, run_all, summarise
    from oscar_studies.contest_report import draw, text_report

    runs_folder = folder / "runs"
    if args.report:
        tasks = [task for task in tasks if (runs_folder / f"{task.key}.json").exists()]
        if not tasks:
            raise ConfigError(f"{runs_folder}: no finished run of this configuration; leave out --report")
    with Show() as show:
        runs = run_all(tasks, runs_folder, workers=args.workers, progress=show)
    model = f"{config.workload.name}, {runs[0]['values']:,} values, {config.nodes} nodes"
    results: dict[str, Any] = {
        "oscar": __version__,
        "title": f"{model}, {config.iterations} iterations",
        "metric": config.compare.metric,
        "seeds": sorted({task.config.seed for task in tasks}),
        "config": config.model_dump(mode="json"),
        "clock": config.link.clock_text(),  # of communication_s and iteration_s
        "rows": summarise(config, tasks, runs),
        "provenance": provenances(runs),
    }
    text = text_report(results)
    print(text)
    write_text(folder / "compare.txt", text + "\n")
    write_results(folder / "compare.json", results)
    draw(results, folder / "compare.png")
    print(f"# compare.txt, compare.json and compare.png in {folder}")
    return 0
