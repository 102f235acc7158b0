"""`oscar schedule scale`: the modelled time of all schedules against the number of ranks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar.cli.common import amount, check_values, declare
from oscar.files import check_outputs


def add_link(parser: argparse.ArgumentParser) -> None:
    """Add the options of a switch, of the codec before it and of the gradient."""
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


def link_of(args: argparse.Namespace) -> Any:
    """Return the link model of these options."""
    from oscar.timeline.link import LinkModel

    codec = None if args.codec_gvalues is None else args.codec_gvalues * 1e9
    return LinkModel(args.gbps * 1e9, args.latency_us * 1e-6, codec)


def add_scale(parts: Any) -> None:
    """Declare the part."""
    part = declare(
        parts,
        "scale",
        _scale,
        short="model the time of all schedules against the number of ranks",
        example="  oscar schedule scale --values 288k --bits 1.25 --doubling 0.55 -o scale.png\n",
    )
    add_link(part)
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


def _scale(args: argparse.Namespace) -> int:
    from oscar.cli.progress import Show
    from oscar.planning.schedule_scaling import draw_points, points_table, schedule_points
    from oscar.results import write_results

    picture = args.output or Path("schedules.png")
    out = args.json or picture.with_suffix(".json")
    check_values(args)
    check_outputs([out, picture], [])
    sizes = {"bits": args.bits, "doubling": args.doubling}
    with Show("sizes of networks") as show:
        found = schedule_points(
            args.nodes, args.values, link_of(args), subframes=args.subframes, progress=show, **sizes
        )
    print(points_table(found))
    write_results(out, found)
    draw_points(found, picture)
    print(f"# wrote {out}, {picture}")
    return 0
