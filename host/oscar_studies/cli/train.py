"""`oscar train`: a whole training with one compressed AllReduce, several seeds side by side."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscar.cli.common import add_config, add_workers, check_workers, declare, read_config
from oscar.cores import one_blas_thread
from oscar.files import check_outputs, output_folder

if TYPE_CHECKING:
    from oscar.config import Config

EXAMPLE = """\
  oscar train
  oscar train --resume    # after a kill: goes on from the last checkpoint, bit for bit
  oscar train --seeds 0 1 2 --set method=fp32 --set schedule.name=ring \\
    --set train.ring_every=1 --set output=build/fp32
  oscar train --seeds 0 1 2 --beside build/fp32/train.json

Trains the configured workload with the mean that the configured method gives, one method a run.
Prints a line per seed (held-out loss and accuracy, bits a value, MB sent, modelled time), mean and spread,
and writes train.json and train.png (loss against iterations, bytes, modelled time) to the folder `output`.
Exit status 1 when a sum that should be exact was not, 4 when a seed diverged.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(commands, "train", run, short="train with a compressed AllReduce", example=EXAMPLE)
    add_config(parser, default="train")
    parser.add_argument(
        "--seeds", type=int, nargs="+", metavar="S", help="train once with each (default: the seed of CONFIG)"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="default: OUTPUT/checkpoint; every seed adds .seedS"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the existing checkpoints")
    parser.add_argument(
        "--beside",
        type=Path,
        nargs="+",
        default=[],
        metavar="JSON",
        help="more train.json files to draw in the figure",
    )
    add_workers(parser)


def run(args: argparse.Namespace) -> int:
    """Train, print, write; return the exit status."""
    one_blas_thread()
    config = read_config(args)
    check_workers(args)
    if args.seeds is not None and min(args.seeds) < 0:
        raise ValueError(f"--seeds: expected numbers of 0 and more, got {min(args.seeds)}")
    others = [_drawable(path) for path in args.beside]
    with output_folder(config.output) as folder:
        return _train(config, args, folder, others)


def _drawable(path: Path) -> dict[str, Any]:
    """Return the results of another training, drawn once: damaged ones are refused before a training."""
    from oscar.results import read_results, shown
    from oscar_studies.training_results import draw

    results = read_results(path, "train")
    with shown(path, "train"), tempfile.TemporaryDirectory() as folder:
        draw([results], Path(folder) / "train.png")
    return results


def _train(config: Config, args: argparse.Namespace, folder: Path, others: list[dict[str, Any]]) -> int:
    from oscar.checkpoint import load
    from oscar.cli.progress import Show
    from oscar.results import write_results
    from oscar_studies.training import checkpoint_path, train_seeds
    from oscar_studies.training_results import draw, make_results, text_table

    seeds, path = args.seeds or [config.seed], args.checkpoint or folder / "checkpoint"
    outputs = [folder / "train.json", folder / "train.png", path]
    check_outputs(outputs, [Path(args.config), *args.beside])
    for seed in seeds:
        saved = checkpoint_path(path, seed)
        if args.resume and saved is not None:
            if saved.exists():
                load(saved)  # a damaged one is refused here, before processes start
            what = f"goes on from {saved}" if saved.exists() else f"starts anew, there is no {saved}"
            print(f"# seed {seed} {what}", flush=True)
    with Show() as show:
        runs = train_seeds(config, seeds, path=path, resume=args.resume, workers=args.workers, progress=show)
    results = make_results(config, runs)
    print(text_table(results))
    written = [folder / "train.json", folder / "train.png"]
    write_results(written[0], results)
    draw([*others, results], written[1])
    print(f"# wrote {', '.join(str(item) for item in written)}")
    lost = [row["seed"] for row in results["rows"] if row["diverged"]]
    if lost:
        print(f"# DIVERGED: seed {', '.join(map(str, lost))}: loss or gradients are no numbers any more")
        return 4
    return 0
