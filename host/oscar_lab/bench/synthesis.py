"""Modelled time of schedules made for a network, against those that are not (docs/reference/schedules.md).

Each figure has a bar: groups behind NICs (e), links in a two-way ring (f), equal ports (g), one slow port
whose rank owns less (h), and frames with the sizes that sums have, against equal ones (i). Frames of one
worker have the first number of `--bits` per value, those of all the second; between these sizes grow with
the logarithm of the number of workers. Time is that of ports and latency: coding takes none, frames have no
headers. Needs the extra `schedule`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from functools import partial
from statistics import fmean
from typing import Any

from oscar.collective.schedules import make_schedule
from oscar.collective.trees import Direct
from oscar.planning.synthesis.problem import RoutingProblem
from oscar.planning.synthesis.synthesise import Result, synthesise, time_of
from oscar.tables import Row, Table
from oscar.timeline.choose import auto_shares, settled
from oscar.timeline.equal import assumed_frames
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.replay import replay
from oscar.timeline.topology import Topology, grouped, switch, wires

CASE_E = grouped(2, 4, inside=(200, 1e-6), between=(25, 4e-6))
EQUAL = switch([100] * 4, 2e-6)
SLOW = switch([100, 100, 100, 25], 2e-6)
RING_OF_FOUR = wires(4, {(i, (i + way) % 4): (100, 2e-6) for i in range(4) for way in (1, -1)})
SYNTHESISED = "milp", "greedy"
RINGS = "ring", "boomerang", "duplex"
TIE = 1 + 1e-9
TABLE = Table(
    "figure <6", "what <34", "values >10", "subframes:K >3", "winner <15", "time_us:time us >10.2f",
    "bound_us:bound us >10.2f", "against <15", "other_us:its us >10.2f", "ratio >6.3f", "bar >6.2f", "met >4",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--figures", nargs="+", choices=list(FIGURES), default=list(FIGURES))
    parser.add_argument("--values", nargs="+", type=int, default=[250_000, 2_000_000, 10_000_000])
    parser.add_argument("--bits", nargs=2, type=float, default=[1.25, 2.9], help="of one worker, of all (i)")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of the MILPs, each time")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all rows and print them; each tells whether it meets its bar."""
    print(f"# i: {args.bits[0]:g} bits/value of one worker, {args.bits[1]:g} of all; others: fp32")
    print(TABLE.heading)
    rows: list[Row] = []
    for figure in args.figures:
        for row in FIGURES[figure](args):
            rows.append({"figure": figure, **row})
            print(_line(rows[-1]), flush=True)
    return {"rows": rows, "ok": True}


def _line(row: Row) -> str:
    bound = None if row["bound_s"] is None else 1e6 * row["bound_s"]
    times = {"time_us": 1e6 * row["time_s"], "other_us": 1e6 * row["other_s"]}
    return TABLE.line(row, **times, bound_us="-" if bound is None else bound)


def _row(
    what: str, problem: RoutingProblem, subframes: int, result: tuple[str, float, float | None],
    other: tuple[str, float], bar: float | None = None,
) -> Row:  # fmt: skip
    """Return a row: a schedule found, (name, seconds, bound), against another, (name, seconds)."""
    winner, time_s, bound_s = result
    ratio = other[1] / time_s
    return {
        "what": what, "network": problem.topology.text, "values": problem.values, "subframes": subframes,
        "winner": winner, "time_s": time_s, "bound_s": bound_s, "against": other[0], "other_s": other[1],
        "ratio": ratio, "bar": bar, "met": None if bar is None else ratio >= bar,
    }  # fmt: skip


def _fp32(topology: Topology, values: int, per_rank: int = 1) -> RoutingProblem:
    return RoutingProblem.of(topology, values * FP32_BITS / 8, per_rank=per_rank, values=values)


def _best(result: Result, names: Iterable[str]) -> tuple[str, float]:
    name = min((one for one in names if one in result.seconds), key=result.seconds.__getitem__)
    return name, result.seconds[name]


def _groups(args: argparse.Namespace) -> Iterator[Row]:
    """e: two groups of four behind a NIC each, against the best ring; what was synthesised alone, too."""
    for values in args.values:
        problem = _fp32(CASE_E, values)
        result = synthesise(problem, limit_s=args.limit)
        ring = _best(result, RINGS)
        yield _row("two groups", problem, 1, (*_winner(result), result.bound_s), ring, 1.55)
        made = _best(result, SYNTHESISED)
        yield _row("two groups, synthesised", problem, 1, (*made, result.bound_s), ring)


def _two_way_ring(args: argparse.Namespace) -> Iterator[Row]:
    """f: four ranks with links both ways around, against the ring that takes one way."""
    for values in args.values:
        problem = _fp32(RING_OF_FOUR, values, per_rank=2)
        result = synthesise(problem, limit_s=args.limit)
        ring = "ring", result.seconds["ring"]
        yield _row("two-way ring", problem, 1, (*_winner(result), result.bound_s), ring, 1.45)


def _equal_ports(args: argparse.Namespace) -> Iterator[Row]:
    """g: what was synthesised for four equal ports, against the best that is built in."""
    for values in args.values:
        problem = _fp32(EQUAL, values)
        result = synthesise(problem, limit_s=args.limit)
        other = _best(result, [name for name in result.seconds if name not in SYNTHESISED])
        made = _best(result, SYNTHESISED)
        yield _row("equal ports, synthesised", problem, 1, (*made, result.bound_s), other, 1 / 1.02)


def _slow_port(args: argparse.Namespace) -> Iterator[Row]:
    """h: one of four ports at a quarter of the rate: direct with shares by rates, against other schedules.

    The bar is for 8 sub-frames and more: with fewer, sums wait for whole pushes.
    """
    for values in args.values:
        problem = _fp32(SLOW, values)
        shares = auto_shares(SLOW, FP32_BITS, FP32_BITS, values)
        for subframes in (1, 8, 16):
            _, best = settled(shares, partial(_shared_s, Direct(4, subframes), values))
            for name in ("ring", "direct"):
                other = name, time_of(make_schedule(name, 4, subframes=subframes), problem)
                bar = 1.4 if name == "ring" and subframes >= 8 else None
                yield _row("slow port, shares", problem, subframes, ("direct", best, None), other, bar)


def _shared_s(schedule: Direct, values: int, shares: tuple[float, ...]) -> float:
    bounds = [round(sum(shares[:at]) * values) for at in range(len(shares) + 1)]
    frames = assumed_frames(schedule, bounds, header_bytes=0)
    return replay(schedule, frames, LinkModel(), SLOW, coded=False).total_s


def _real_sizes(args: argparse.Namespace) -> Iterator[Row]:
    """i: case e, the best for real sizes against the best for equal ones, both with real sizes.

    Equal sizes may leave several equally fast. The bar is for the one that `synthesise` takes, the others are
    named in the row: one of them may be as fast with real sizes, but equal ones do not tell.
    """
    one, most = args.bits
    n = CASE_E.nodes
    for values in args.values:
        sizes = [values / 8 * (one + (most - one) * math.log2(k) / math.log2(n)) for k in range(1, n + 1)]
        problem = RoutingProblem.of(CASE_E, sizes, values=values)
        for subframes in (1, 4):
            result = synthesise(problem, subframes=subframes, limit_s=args.limit)
            for text, whole in (("fp32", values * FP32_BITS / 8), ("their mean", fmean(sizes))):
                flat = RoutingProblem.of(CASE_E, whole, values=values)
                equal = synthesise(flat, subframes=subframes, limit_s=args.limit)
                other = equal.winner, time_of(equal.schedule, problem)
                row = _row(
                    f"real sizes, not {text}",
                    problem,
                    subframes,
                    (*_winner(result), result.bound_s),
                    other,
                    1.05,
                )
                yield row | {"as_fast_for_equal_sizes": _ties(equal)}


def _winner(result: Result) -> tuple[str, float]:
    return result.winner, result.seconds[result.winner]


def _ties(result: Result) -> list[str]:
    """Return the names of all candidates that are as fast as the winner."""
    least_s = result.seconds[result.winner]
    return [name for name, seconds in result.seconds.items() if seconds <= TIE * least_s]


FIGURES = {"e": _groups, "f": _two_way_ring, "g": _equal_ports, "h": _slow_port, "i": _real_sizes}
