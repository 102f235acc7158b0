"""`oscar trace`: record the gradients of a training run, and compare methods on a recording."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar.cli.common import add_config, declare, read_config
from oscar.files import check_outputs
from oscar_studies.cli.allreduce import add_outputs, compare

RECORD = """\
  oscar trace record -o lm.npz
  oscar trace record default -o late.npz --warmup 200 --skip-every 9

Trains with the exact float mean. The file takes 4 x iterations x nodes x parameters bytes at most.
"""
REPLAY = """\
  oscar trace replay lm.npz
  oscar trace replay lm.npz coarse --set link.gbps=10

Nodes come from the trace; iterations too, where the configuration asks for more than it holds.
"""


def add_command(commands: Any) -> None:
    """Declare the command and its two actions."""
    parser = declare(
        commands,
        "trace",
        lambda args: parser.error("choose record or replay"),
        short="record gradients, or compare methods on recorded ones",
        example="  oscar trace record -o lm.npz\n  oscar trace replay lm.npz",
    )
    actions = parser.add_subparsers(metavar="ACTION")
    recorder = declare(actions, "record", record, short="record the gradients of a run", example=RECORD)
    add_config(recorder, default="default")
    recorder.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.npz")
    recorder.add_argument(
        "--warmup", type=int, metavar="N", help="iterations to train before recording (workload.warmup)"
    )
    recorder.add_argument(
        "--skip-every", type=int, default=0, metavar="N", help="iterations to train between records"
    )
    replayer = declare(actions, "replay", replay, short="compare methods on a recording", example=REPLAY)
    replayer.add_argument("file", metavar="FILE.npz", type=Path)
    add_config(replayer, default="default")
    add_outputs(replayer)


def record(args: argparse.Namespace) -> int:
    """Record a trace."""
    from oscar.array import sizes_of
    from oscar.cli.progress import Show
    from oscar_studies.recording import warmup_of
    from oscar_studies.workloads import make_workload, trace

    check_outputs([args.output], [Path(args.config)])
    config = read_config(args)
    section = config.workload
    workload = make_workload(section.name, nodes=config.nodes, seed=config.seed, **section.options)
    values = sum(sizes_of(workload.tensor_shapes))
    most = 4 * config.iterations * config.nodes * values
    print(
        f"# {config.iterations} iterations x {config.nodes} nodes x {values:,} values: "
        f"{most / 1e6:,.1f} MB in memory, at most as much in the file",
        flush=True,
    )
    with Show() as show:
        info = trace.record(
            workload,
            config.iterations,
            args.output,
            warmup=warmup_of(config) if args.warmup is None else args.warmup,
            skip_every=args.skip_every,
            progress=lambda done, total: show("training", done, total),
        )
    size = f"{info.path.stat().st_size / 1e6:,.1f} MB"
    print(f"# wrote {info.path}: {info.workload}, {info.nodes} nodes, {info.iterations} iterations, {size}")
    return 0


def replay(args: argparse.Namespace) -> int:
    """Compare methods on a trace."""
    from oscar_studies.workloads.trace import load

    info = load(args.file).info
    config = read_config(args)
    config = config.variant(
        nodes=info.nodes,
        iterations=min(config.iterations, info.iterations),
        workload={"name": info.workload, "trace": str(args.file)},
    )
    return compare(config, args, *(path and Path(path) for path in (args.file, args.config)))
