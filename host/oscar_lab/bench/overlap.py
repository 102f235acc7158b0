"""What triggers gain: an AllReduce that begins while its values are made, against one behind the other.

Modelled frame by frame (docs/timeline.md, "Sums that begin while values are made"); frames of 3 bits a value,
without a driver, but for the first table. A NIC takes frames in the order in which they come; the model takes
those first that can go on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oscar.collective.schedules import make_schedule
from oscar.studies.plotting import PALETTE, figure
from oscar.tables import Row, Table
from oscar.timeline.equal import assumed_frames
from oscar.timeline.link import LinkModel
from oscar.timeline.nic import load_nic
from oscar.timeline.replay import replay
from oscar_lab.rivals.by_frame import Production, allreduce, sums_s

BITS, HEADER = 3, 20
SHARES = 0.5, 1.0, 2.0  # production over communication
PIECES = 1, 2, 3, 4, 6, 8
TABLE = Table(
    "goal <5", "link <6", "schedule <8", "nodes >5", "values >9,d", "pieces >6", "order <8", "share:P:C >5g",
    "alone_us:alone us >9.1f", "listed:list >6.2f", "triggered:trigger >7.2f", "ideal >6.2f",
)  # fmt: skip

DRIVERS = Table(
    "values >9,d", "pieces >6", "registers >9.1f", "list >7.1f", "triggered >9.1f", "ideal >7.1f"
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--figure", type=Path, metavar="PNG", help="draw speed-up by production there")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the tables; return their rows."""
    rows: list[Row] = []
    print("# c: us by registers, a list, one whose values load meanwhile, without a driver; direct, 8 nodes")
    print(DRIVERS.heading)
    for row in _drivers():
        rows.append(row)
        print(DRIVERS.line(row), flush=True)
    print("# times as fast as production and communication one after the other")
    print(TABLE.heading)
    for row in (*_sums(args.nodes), *_whole(args.nodes), *_best()):
        rows.append(row)
        print(TABLE.line(row), flush=True)
    every = [row["triggered"] for row in rows if row["goal"] == "g"]
    mean = float(np.exp(np.mean(np.log(every)))) if every else None
    print(f"# g: geometric mean of triggered {mean:.2f}")
    if args.figure:
        _draw(args.figure)
    return {"rows": rows, "mean": mean}


def links() -> dict[str, LinkModel]:
    """Return what is modelled: a lane of a value a clock, and the NICs that come with the package."""
    lane = LinkModel.of(gbps=8, latency_us=2.5, codec_gvalues=0.2, codec_latency_us=0.75)
    return {
        "lane": lane,
        "ecp5": LinkModel(bandwidth_bps=10e9, coder=load_nic(None, 10.0).model()),
        "u55c": LinkModel(bandwidth_bps=100e9, coder=load_nic(None, 100.0).model()),
    }


def gains(
    schedule: Any, values: int, link: LinkModel, share: float, order: str, *, sums: bool = False
) -> dict[str, float]:
    """Return what a list and triggers gain over production and communication in sequence.

    share: production over communication. sums: until they are whole, not until all ranks have them.
    """
    frames = assumed_frames(schedule, values, BITS, header_bytes=HEADER)

    def seconds(production: Production | None) -> float:
        graph = allreduce(schedule, frames, link, production=production)
        return sums_s(graph) if sums else graph.run().total_s

    alone = seconds(None)
    found = {"alone_us": alone * 1e6, "ideal": (share + 1) / max(share, 1.0)}
    for name, triggered in (("listed", False), ("triggered", True)):
        took = seconds(Production(share * alone, order, triggered))
        found[name] = (share + 1) * alone / took
    return found


def _row(
    goal: str, name: str, schedule: str, nodes: int, values: int, pieces: int, order: str, **own: Any
) -> Row:
    return {
        "goal": goal, "link": name, "schedule": schedule, "nodes": nodes, "values": values, "pieces": pieces,
        "order": order, **own,
    }  # fmt: skip


def _sums(nodes: Sequence[int]) -> Iterator[Row]:
    """d: T3's case, a reduce-scatter by a ring, in the order in which it needs values."""
    for name, link in links().items():
        for count in (n for n in nodes if n > 2):
            for share in SHARES:
                own = gains(
                    make_schedule("ring", count, subframes=4), count << 15, link, share, "rotated", sums=True
                )
                yield _row("d", name, "ring", count, count << 15, 4, "rotated", share=share, **own)


def _whole(nodes: Sequence[int]) -> Iterator[Row]:
    """g: a whole AllReduce, direct, in pieces."""
    link = links()["lane"]
    for count in nodes:
        for share in SHARES:
            own = gains(make_schedule("direct", count, subframes=4), count << 14, link, share, "pieces")
            yield _row("g", "lane", "direct", count, count << 14, 4, "pieces", share=share, **own)


def _best() -> Iterator[Row]:
    """e, f: the best number of pieces against sequence at its best; production as long as that."""
    for goal, values, name in (("e", 1 << 20, "ecp5"), ("e", 1 << 20, "u55c"), ("f", 1 << 18, "ecp5")):
        link, nodes = links()[name], 8
        found = {}
        for pieces in PIECES:
            schedule = make_schedule("direct", nodes, subframes=pieces)
            frames = assumed_frames(schedule, values, BITS, header_bytes=HEADER)
            found[pieces] = schedule, frames, allreduce(schedule, frames, link).run().total_s
        alone = min(seconds for *_, seconds in found.values())
        took = {
            (triggered, pieces): allreduce(
                schedule, frames, link, production=Production(alone, "pieces", triggered)
            ).run().total_s
            for pieces, (schedule, frames, _) in found.items() for triggered in (False, True)
        }  # fmt: skip
        listed, triggered = (min(t for key, t in took.items() if key[0] is kind) for kind in (False, True))
        pieces = min((t, p) for (kind, p), t in took.items() if kind)[1]
        own = {
            "alone_us": alone * 1e6,
            "ideal": 2.0,
            "listed": 2 * alone / listed,
            "triggered": 2 * alone / triggered,
        }
        yield _row(goal, name, "direct", nodes, values, pieces, "pieces", share=1.0, **own)


def _drivers() -> Iterator[Row]:
    """c: registers, a list, and one whose values load while it runs, by the driver of the NIC's file."""
    nic = load_nic(None, 100.0)
    driver = nic.driver_model()
    assert driver is not None
    registers, loader = (
        replace(driver, listing=None),
        replace(driver, listing=None, command_s=0.0, notice_s=0.0, read_s=0.0),
    )
    for values in (1 << 18, 288_440):
        for pieces in (1, 4):
            schedule = make_schedule("direct", 8, subframes=pieces)
            frames = assumed_frames(schedule, values, BITS, header_bytes=HEADER)
            listed = driver.listed(schedule, values)
            assert listed is not None
            load_s = values * driver.load_s
            times = {
                name: extra + replay(schedule, frames, LinkModel(coder=nic.model(), driver=one)).total_s
                for name, one, extra in (
                    ("registers", registers, 0.0),
                    ("list", None, listed.before_s + listed.after_s),
                    ("triggered", loader, listed.before_s - load_s + listed.after_s),
                    ("ideal", None, 0.0),
                )
            }
            yield {"goal": "c", "values": values, "pieces": pieces, **{n: t * 1e6 for n, t in times.items()}}


def _draw(path: Path) -> None:
    """Draw the gain by production over communication: direct, 8 nodes, 2^20 values, in pieces."""
    shares = np.geomspace(0.25, 4, 9)
    schedule, link = make_schedule("direct", 8, subframes=4), links()["ecp5"]
    found = [gains(schedule, 1 << 20, link, float(share), "pieces") for share in shares]
    with figure(
        path, height=3.6, title="Direct, 8 nodes, 2^20 values in 4 pieces, ECP5 with 2 units, 10 Gb/s"
    ) as drawn:
        axes = drawn.subplots()
        for index, name in enumerate(("ideal", "triggered", "listed")):
            axes.plot(
                shares, [one[name] for one in found], "o-", markersize=3, color=PALETTE[index], label=name
            )
        axes.set_xscale("log")
        axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1:4", "1:2", "1:1", "2:1", "4:1"])
        axes.set_xlabel("production : communication")
        axes.set_title("times as fast as one after the other")
        axes.grid()
        axes.legend()
