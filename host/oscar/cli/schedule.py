"""`oscar schedule`: who sends what to whom, as data: list, make, check, draw and export schedules."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from oscar.cli.common import amount, check_values, declare
from oscar.errors import ConfigError, did_you_mean
from oscar.files import check_outputs, write_text

MOST_PER_RANK = 8  # chunks of a rank that the solver is given
MANY = 128  # ranks: to follow more may take longer than one waits without a word
NOTHING_WRITTEN = 3  # exit status
EXAMPLE = """\
  oscar schedule list --nodes 8                        the built-in ones
  oscar schedule synth net.yaml -o s.json              make one for a network
  oscar schedule check s.json                          what it is, and whether it keeps the rules
  oscar schedule draw s.json --topology net.yaml       routes over their timeline
  oscar schedule draw direct --nodes 8                 built-in ones go by name, wherever a file may stand
  oscar schedule scale --values 288k -o scale.png      time of all of them at 2 to 1,024 ranks
  oscar schedule export s.json --msccl -o s.xml        for runtimes that read MSCCL's XML
  oscar allreduce --set schedule.name=file --set schedule.file=s.json

A schedule says for every rank what it sends, receives, adds and codes, in order
(docs/reference/schedules.md). Files are JSON with a digest: one that was changed, or breaks a rule, is
refused before the first frame.
"""
SYNTH = """\
  oscar schedule synth net.yaml -o s.json --values 25M --limit 60
  oscar schedule synth net.yaml -o s.json --bits 4 7      frames of one worker: 4 bits/value, of all: 7

TOPOLOGY is a YAML file with the keys of the section `topology` of a configuration, and `nodes`.
The winner is the fastest in a replay among synthesised and built-in schedules, so never slower than these.
Without -o it is only named. Exit status 3 when -o was given and nothing is written, since a ring or exchange
won: these have no file, and the error says how to run them. Needs the extra `schedule`.
"""


def add_command(commands: Any) -> None:
    """Declare the command and those below it."""
    parser = declare(
        commands,
        "schedule",
        _help,
        short="list, make, check, draw and export schedules",
        example=EXAMPLE,
        compiles=False,
    )
    parser.set_defaults(parser=parser)
    parts = parser.add_subparsers(dest="part", metavar="PART", title="parts")
    part = declare(
        parts, "list", _list, short="list the built-in schedules", example="  oscar schedule list --nodes 8\n"
    )
    part.add_argument("--nodes", type=int, default=8, metavar="N", help="ranks (%(default)s)")
    part.add_argument("--group", type=int, metavar="G", help="ranks of a group: hierarchical, exchange")
    part.add_argument("--slices", type=int, default=1, metavar="S", help="of the switch (%(default)s)")
    _add_synth(parts)
    part = declare(
        parts,
        "check",
        _check,
        short="check a schedule and say what it is",
        example="  oscar schedule check s.json\n",
    )
    _add_schedule(part)
    part = declare(
        parts,
        "draw",
        _draw,
        short="draw a schedule's routes and its timeline",
        example="  oscar schedule draw direct --nodes 8 -o direct.png\n",
    )
    _add_schedule(part)
    part.add_argument(
        "--topology", type=Path, metavar="FILE.yaml", help="the network (default: a switch of --gbps)"
    )
    _add_link(part)
    _add_bits(part)
    part.add_argument("-o", "--output", type=Path, metavar="FILE.png", help="default: schedule.png")
    _add_scale(parts)
    part = declare(
        parts,
        "export",
        _export,
        short="write a schedule for other runtimes",
        example="  oscar schedule export s.json --msccl -o s.xml\n",
    )
    _add_schedule(part)
    part.add_argument(
        "--msccl", action="store_true", required=True, help="write MSCCL's XML, the only format"
    )
    part.add_argument("-o", "--output", type=Path, metavar="FILE.xml", help="default: standard output")


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("schedule", metavar="SCHEDULE", help="a schedule file, or the name of a built-in one")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="ranks: of a built-in one (8); of a file, to check"
    )
    parser.add_argument("--subframes", type=int, default=1, metavar="K", help="per chunk (%(default)s)")
    parser.add_argument("--group", type=int, metavar="G", help="ranks of a group: hierarchical, exchange")
    parser.add_argument("--root", type=int, metavar="R", help="rank that adds, of star alone (0)")
    parser.add_argument("--slices", type=int, metavar="S", help="that add, of switch alone (1)")


def _add_bits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bits", type=float, nargs="+", default=[32.0], metavar="B",
        help="per value: of all frames, or of those of one worker and of all (32)",
    )  # fmt: skip


def _add_synth(parts: Any) -> None:
    part = declare(parts, "synth", _synth, short="make a schedule for a network", example=SYNTH)
    part.add_argument("topology", type=Path, metavar="TOPOLOGY", help="YAML file with the network")
    part.add_argument("-o", "--output", type=Path, metavar="S.json", help="write the schedule here")
    part.add_argument("--name", default="", metavar="TEXT", help="name of the schedule")
    part.add_argument("--values", type=amount, default=1_000_000, metavar="V", help="of the gradient (1M)")
    _add_bits(part)
    part.add_argument("--subframes", type=int, default=1, metavar="K", help="per chunk (%(default)s)")
    part.add_argument(
        "--per-rank", type=int, default=1, metavar="C", help="chunks that a rank owns (%(default)s)"
    )
    part.add_argument(
        "--limit", type=float, default=60.0, metavar="S", help="seconds to search (%(default)g)"
    )
    part.add_argument(
        "--floats", action="store_true", help="sums are floats: leave out integer-only schedules"
    )


def _add_link(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gbps", type=float, default=100.0, metavar="G", help="rate of every port (%(default)s)"
    )
    parser.add_argument(
        "--latency-us", type=float, default=2.0, metavar="US", help="latency of a hop (%(default)s)"
    )
    parser.add_argument("--values", type=amount, default=1_000_000, metavar="V", help="of the gradient (1M)")
    parser.add_argument(
        "--codec-gvalues", type=float, metavar="G", help="10^9 values/s (default: coding takes no time)"
    )


def _add_scale(parts: Any) -> None:
    part = declare(
        parts,
        "scale",
        _scale,
        short="model the time of all schedules against the number of ranks",
        example="  oscar schedule scale --values 288k --bits 1.25 --doubling 0.55 -o scale.png\n",
    )
    _add_link(part)
    part.add_argument("--nodes", type=int, nargs="+", metavar="N", default=[2**k for k in range(1, 11)])
    part.add_argument(
        "--bits", type=float, default=1.25, metavar="B", help="per value of one worker's frame (%(default)s)"
    )
    part.add_argument(
        "--doubling", type=float, default=0.55, metavar="B",
        help="more for each doubling of the workers that a frame sums (%(default)s)",
    )  # fmt: skip
    part.add_argument("--subframes", type=int, default=1, metavar="K", help="per chunk (%(default)s)")
    part.add_argument("--json", type=Path, metavar="OUT", help="default: beside the picture")
    part.add_argument("-o", "--output", type=Path, metavar="FILE.png", help="default: schedules.png")


def _help(args: argparse.Namespace) -> int:
    args.parser.print_help()
    return 2


def _list(args: argparse.Namespace) -> int:
    from oscar.collective.schedules import SCHEDULES, make_schedule
    from oscar.collective.trees import Switch
    from oscar.tables import Table

    slices = _slices(args)
    table = Table(
        "name <13", "chunks >7", "frames:frames a rank >14", "hops >6", "terms:most terms >11", "floats >7"
    )
    print(table.heading)
    for name in (*SCHEDULES, Switch.name):
        schedule = make_schedule(name, args.nodes, group=args.group, slices=slices)
        sent = schedule.sends
        frames = str(sent[0]) if len(set(sent)) == 1 else f"{min(sent)} to {max(sent)}"
        print(
            table.line({
                "name": name, "chunks": schedule.chunks, "frames": frames, "hops": schedule.hops,
                "terms": schedule.most_terms, "floats": not schedule.integers,
            })
        )  # fmt: skip
    print(f"# {args.nodes} ranks, and slices of the switch for {Switch.name}, which no host runs")
    print("# hops: frames in sequence. most terms: workers whose values one frame sums")
    print("# floats: whether sums of floats end alike on all ranks; of integers they always do")
    return 0


def _slices(args: argparse.Namespace) -> int:
    """Return --slices, 1 where it is not given; raise ConfigError for less."""
    if args.slices is not None and args.slices < 1:
        raise ConfigError(f"--slices: expected 1 or more, got {args.slices}")
    return args.slices or 1


def refuse_strangers(name: str, options: dict[str, tuple[Any, tuple[str, ...]]]) -> None:
    """Raise ConfigError for an option that is given and is for other schedules than `name`.

    options: of each its value, None where it is not given, and the schedules that have it.
    """
    for option, (value, names) in options.items():
        if value is not None and name not in names:
            raise ConfigError(f"{option} is for {' and '.join(names)} alone, got it with {name}")


def _schedule(args: argparse.Namespace) -> Any:
    """Return the schedule that is named: a built-in one, or one from a file."""
    from oscar.collective.redundant import Redundant
    from oscar.collective.schedule_file import read_schedule
    from oscar.collective.schedules import GROUPED, SCHEDULES, make_schedule
    from oscar.collective.trees import Star, Switch

    names, there = (*SCHEDULES, Switch.name, Redundant.name), Path(args.schedule).exists()
    if not there and args.schedule not in names and (near := did_you_mean(args.schedule, names).strip()):
        raise ConfigError(f"{args.schedule}: no such file, nor schedule; {near}")
    name = "a file" if there or args.schedule not in names else args.schedule
    refuse_strangers(
        name,
        {
            "--group": (args.group, tuple(kind.name for kind in GROUPED)),
            "--root": (args.root, (Star.name,)),
            "--slices": (args.slices, (Switch.name,)),
        },
    )
    slices = _slices(args)
    if args.schedule in names and not there:
        return make_schedule(
            args.schedule, 8 if args.nodes is None else args.nodes,
            subframes=args.subframes, group=args.group, root=args.root or 0, slices=slices,
        )  # fmt: skip
    return read_schedule(args.schedule, nodes=args.nodes, subframes=args.subframes)


def _check(args: argparse.Namespace) -> int:
    from oscar.collective.check import check

    schedule = _schedule(args)
    if schedule.nodes > MANY:
        print(f"# following {schedule.describe()}: some 10 s or more", file=sys.stderr, flush=True)
    check(schedule)
    print(schedule.describe())
    for key, value in getattr(schedule, "made", {}).items():
        seconds = key.endswith("_s")
        print(f"{key.removesuffix('_s')}: {f'{value * 1e6:.2f} us' if seconds else value}")
    if getattr(schedule, "shares", None) is not None:
        print(f"shares: {', '.join(f'{share:.4g}' for share in schedule.shares)}")
    print(f"hops {schedule.hops}, most terms {schedule.most_terms}, digest {schedule.digest}")
    print("keeps all rules: each term once, no deadlock, whole on all ranks")
    return 0


def _export(args: argparse.Namespace) -> int:
    from oscar.collective.msccl import to_msccl

    check_outputs([args.output], [Path(args.schedule)])
    xml = to_msccl(_schedule(args))
    if args.output is None:
        print(xml, end="")
    else:
        write_text(args.output, xml)
        print(f"# wrote {args.output}")
    return 0


def _draw(args: argparse.Namespace) -> int:
    from oscar.planning.schedule_figure import draw_schedule
    from oscar.timeline.equal import assumed_frames
    from oscar.timeline.topology import adding_switch, switch

    output = args.output or Path("schedule.png")
    check_values(args)
    check_outputs([output], [Path(args.schedule), args.topology])
    if args.topology is not None:
        from oscar.config.link import read_topology

        topology = read_topology(args.topology, args.nodes)
        args.nodes = topology.nodes
        schedule = _schedule(args)
    else:
        schedule = _schedule(args)
        hosts, latency_s = schedule.valued, args.latency_us * 1e-6
        topology = switch([args.gbps] * hosts, latency_s)
        if hosts < schedule.nodes:
            topology = adding_switch(hosts, schedule.nodes - hosts, args.gbps, latency_s)
    sizes = frame_sizes(args.bits, args.values, schedule.nodes)
    frames = assumed_frames(schedule, args.values, lambda workers: sizes[workers - 1] * 8 / args.values)
    seconds = draw_schedule(output, schedule, topology, _link(args), frames)
    print(f"{schedule.describe()}: {seconds * 1e6:.2f} us, modelled, on {topology.text}")
    print(f"# wrote {output}")
    return 0


def _synth(args: argparse.Namespace) -> int:
    check_values(args)
    if not 0 <= args.limit < 1e6 or not 1 <= args.per_rank <= MOST_PER_RANK:
        raise ConfigError(
            f"expected --limit of 0 s or more and --per-rank of 1 to {MOST_PER_RANK}, got {args.limit:g} and "
            f"{args.per_rank}: more chunks take the solver too long"
        )
    from oscar.config.link import read_topology
    from oscar.planning.synthesis.problem import RoutingProblem
    from oscar.planning.synthesis.synthesise import synthesise

    check_outputs([args.output], [args.topology])
    topology = read_topology(args.topology)
    sizes = frame_sizes(args.bits, args.values, topology.nodes)
    problem = RoutingProblem.of(topology, sizes, per_rank=args.per_rank, values=args.values)
    result = synthesise(problem, subframes=args.subframes, limit_s=args.limit, integers=not args.floats)
    print(f"# {topology.text}; {args.values:,} values, {' to '.join(f'{b:g}' for b in args.bits)} bits/value")
    for name, seconds in sorted(result.seconds.items(), key=lambda item: item[1]):
        print(f"{name:16} {seconds * 1e6:12.2f} us{'  <- taken' * (name == result.winner)}")
    print(f"{'bound':16} {result.bound_s * 1e6:12.2f} us: no schedule is faster")
    for line in result.said:
        print(f"# {line}")
    return 0 if args.output is None else _write(args, result, topology.text)


def frame_sizes(bits: list[float], values: int, nodes: int) -> list[float]:
    """Return the bytes of the whole gradient as one frame of 1 .. nodes workers.

    bits: per value, of all frames, or of those of one worker and of all; between these they grow with the
    logarithm of the number of workers. Raises ValueError for others.
    """
    from math import isfinite, log

    if len(bits) > 2 or not all(isfinite(b) and b > 0 for b in bits) or values < 1:
        raise ValueError(f"--bits: expected one or two numbers above 0, and values of 1 or more, got {bits}")
    one, whole = bits[0], bits[-1]
    grown = [log(k) / log(nodes) if nodes > 1 else 0.0 for k in range(1, nodes + 1)]
    return [values * (one + (whole - one) * part) / 8 for part in grown]


def _write(args: argparse.Namespace, result: Any, text: str) -> int:
    """Write the winner where it has routes; return the exit status."""
    from oscar.collective.schedule_file import FileSchedule, write_schedule

    if result.routes is None:
        name, group = result.schedule.name, getattr(result.schedule, "group", None)
        words = f"--set schedule.name={name}" + (f" --set schedule.group={group}" if group else "")
        print(
            f"oscar schedule synth: {args.output} is not written: the best, {result.winner}, is built in and "
            f"has no file; run it with {words}",
            file=sys.stderr,
        )
        return NOTHING_WRITTEN
    made = {
        "topology": text[:400], "synthesiser": result.winner,
        "modelled_s": result.seconds[result.winner], "bound_s": result.bound_s,
    }  # fmt: skip
    schedule = FileSchedule(result.routes.nodes, routes=result.routes, title=args.name, made=made)
    write_schedule(args.output, schedule)
    print(f"# wrote {args.output}: run it with --set schedule.name=file --set schedule.file={args.output}")
    return 0


def _link(args: argparse.Namespace) -> Any:
    """Return the link model of the options of `_add_link`."""
    from oscar.timeline.link import LinkModel

    codec = None if args.codec_gvalues is None else args.codec_gvalues * 1e9
    return LinkModel(args.gbps * 1e9, args.latency_us * 1e-6, codec)


def _scale(args: argparse.Namespace) -> int:
    from oscar.cli.progress import Show
    from oscar.planning.schedule_figure import draw_points, points_table, schedule_points
    from oscar.results import write_results

    picture = args.output or Path("schedules.png")
    out = args.json or picture.with_suffix(".json")
    check_values(args)
    check_outputs([out, picture], [])
    sizes = {"bits": args.bits, "doubling": args.doubling}
    with Show("sizes of networks") as show:
        results = schedule_points(
            args.nodes, args.values, _link(args), subframes=args.subframes, progress=show, **sizes
        )
    print(points_table(results))
    write_results(out, results)
    draw_points(results, picture)
    print(f"# wrote {out}, {picture}")
    return 0
