"""What triggers gain: an AllReduce that begins while its values are made, against one behind the other.

Modelled frame by frame (timeline.md, "Sums that begin while values are made"); frames of 3 bits a value,
without a driver, but for the first table. A NIC takes frames in the order in which they come; the model takes
those first that can go on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oscar.collective.frames import Frames
from oscar.collective.schedules import make_schedule
from oscar.errors import ConfigError
from oscar.plotting import PALETTE, figure
from oscar.tables import Row, Table
from oscar.timeline.equal import assumed_frames
from oscar.timeline.link import LinkModel
from oscar.timeline.nic import SHIPPED, load_nic
from oscar.timeline.replay import replay
from oscar_lab.rivals.by_frame import Production, allreduce, sums_s

BITS, HEADER = 3, 20
WRITER = "python -m oscar_sim.allreduce --driver list --json FILE"
MADE = {  # how values are, by the order of a row of make sim
    "plain": "made chunk by chunk",
    "rotated": "made in the order in which they are sent",
    "pieces": "loaded sub-frame by sub-frame",
}
SHARES = 0.5, 1.0, 2.0  # production over communication
PIECES = 1, 2, 3, 4, 6, 8
TABLE = Table(
    "goal <5", "link <6", "schedule <8", "nodes >5", "values >9,d", "pieces >6", "order <8", "share:P:C >5g",
    "alone_us:alone us >9.1f", "listed:list >6.2f", "triggered:trigger >7.2f", "ideal >6.2f",
)  # fmt: skip

DRIVERS = Table(
    "values >9,d", "pieces >6", "registers >9.1f", "list >7.1f", "triggered >9.1f", "asked >7.1f",
    "ideal >7.1f"
)  # fmt: skip
BESIDE = Table(
    "schedule <8", "make:clocks a value >14g", "way <12", "rtl:RTL >7,d", "model >7,.0f", "ratio >6.3f"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument(
        "--rtl", type=Path, nargs="+", metavar="FILE", help=f"of `{WRITER}`: the model beside it"
    )
    parser.add_argument(
        "--figure",
        type=Path,
        metavar="PNG",
        help="draw gains there; with --rtl the NICs",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the tables; return their rows."""
    if args.rtl:
        return _beside(args.rtl, args.figure)
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


def _beside(files: Sequence[Path], picture: Path | None) -> dict[str, Any]:
    """Print clocks of simulated NICs by lists, and what the model says of the same frames; draw the NICs."""
    rows: list[Row] = []
    every: list[dict[str, Any]] = []
    for file in files:
        for told in _told(file):
            try:
                model = _clocks(told)
            except (LookupError, TypeError):
                raise _another(file) from None
            row = {
                "schedule": told["schedule"], "make": told["options"]["make"], "rtl": told["clocks"],
                "way": "in sequence" if told["driver"] == "list" else told["options"]["order"],
                "model": model, "ratio": model / told["clocks"],
            }  # fmt: skip
            rows.append(row)
            every.append(told)
    print(BESIDE.heading)
    for row in rows:
        print(BESIDE.line(row))
    if picture:
        _draw_nics(picture, every)
    return {"rows": rows}


def _another(file: Path) -> ConfigError:
    return ConfigError(f"{file}: expected a table as `{WRITER}` writes it, got another file")


def _told(file: Path) -> list[dict[str, Any]]:
    """Return the rows of AllReduces by a list in a file of make sim; raise ConfigError where it has none."""
    try:
        result = [
            told for told in json.loads(file.read_text(encoding="utf-8"))["rows"]
            if told["iteration"] == 0 and _modelled(told)
        ]  # fmt: skip
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; `{WRITER}` writes one") from None
    except (LookupError, TypeError, ValueError):
        raise _another(file) from None
    if not result:
        raise ConfigError(f"{file}: expected an AllReduce by a list that is modelled; `{WRITER}` runs one")
    return result


def _modelled(told: dict[str, Any]) -> bool:
    """Whether there is a model of a row: of a list in sequence, or triggered as values are made.

    Of pieces it is that of the driver alone, which loads values that are all there, and reads sums meanwhile:
    a rank begins with what it sends first, while those of `Production` all begin with chunk 0.
    """
    options, driver = told["options"], told["driver"]
    if options.get("software"):  # which takes no clocks
        return False
    if driver == "triggered" and options["order"] == "pieces":
        return bool(options["asks"]) and not options["make"]
    return driver in ("list", "triggered") and not options["asks"]


def _clocks(told: dict[str, Any]) -> float:
    """Return the model's clocks of a row of make sim: from the first value made to the end the host sees.

    Where values are made meanwhile they are modelled here; else make sim has told.
    """
    options, clock = told["options"], 1e-8
    if told["driver"] != "triggered" or options["asks"]:
        return float(told["model_clocks"])
    shipped = {nic.units: nic for nic in (load_nic(None, gbps) for gbps in SHIPPED)}
    if options["units"] not in shipped:
        raise ConfigError(f"expected NICs of {', '.join(map(str, shipped))} units, got {options['units']}")
    changed = {"mhz": 1e-6 / clock, "block": 1 << options["block_log2"], "bus_bits": 64 * options["units"]}
    link = LinkModel(
        bandwidth_bps=64 * options["units"] * options["rate"] / clock,
        latency_s=options["latency"] * clock,
        coder=shipped[options["units"]].model_copy(update=changed).model(),
    )
    schedule = make_schedule(told["schedule"], options["nodes"], subframes=options["subframes"])
    made, (_, read, notice) = options["make"] * options["values"], options["host"]
    production = Production(made * clock, options["order"], triggered=True)
    graph = allreduce(schedule, Frames.from_tree(told["moved"]), link, production=production)
    return float(graph.run().total_s / clock + notice + 2 * read)


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
    result = {"alone_us": alone * 1e6, "ideal": (share + 1) / max(share, 1.0)}
    for name, triggered in (("listed", False), ("triggered", True)):
        took = seconds(Production(share * alone, order, triggered))
        result[name] = (share + 1) * alone / took
    return result


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
        result = {}
        for pieces in PIECES:
            schedule = make_schedule("direct", nodes, subframes=pieces)
            frames = assumed_frames(schedule, values, BITS, header_bytes=HEADER)
            result[pieces] = schedule, frames, allreduce(schedule, frames, link).run().total_s
        alone = min(seconds for *_, seconds in result.values())
        took = {
            (triggered, pieces): allreduce(
                schedule, frames, link, production=Production(alone, "pieces", triggered)
            ).run().total_s
            for pieces, (schedule, frames, _) in result.items() for triggered in (False, True)
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
    """c: registers, a list, one whose values load while it runs, and one whose sums are read then, too."""
    nic = load_nic(None, 100.0)
    driver = nic.driver_model()
    assert driver is not None
    registers = replace(driver, listing=None)
    for values in (1 << 18, 288_440):
        for pieces in (1, 4):
            schedule = make_schedule("direct", 8, subframes=pieces)
            frames = assumed_frames(schedule, values, BITS, header_bytes=HEADER)
            asked = driver.listed(schedule, values)
            assert asked is not None
            loader = replace(asked, read_s=0.0, ask_s=0.0)
            load_s = values * driver.load_s + schedule.nodes * pieces * driver.packet_s
            read_s = values * driver.read_s
            times = {
                name: extra + replay(schedule, frames, LinkModel(coder=nic.model(), driver=one)).total_s
                for name, one, extra in (
                    ("registers", registers, 0.0),
                    ("list", None, asked.armed_s + load_s + asked.end_s + read_s),
                    ("triggered", loader, read_s),
                    ("asked", asked, 0.0),
                    ("ideal", None, 0.0),
                )
            }
            yield {"goal": "c", "values": values, "pieces": pieces, **{n: t * 1e6 for n, t in times.items()}}


DRAWN = {"ideal": "ideal", "triggered": "a triggered list", "listed": "a list"}


def _draw(path: Path) -> None:
    """Draw the gain by production over communication: direct, 8 nodes, 2^20 values, in pieces."""
    shares = np.geomspace(0.25, 4, 9)
    schedule, link = make_schedule("direct", 8, subframes=8), links()["ecp5"]
    result = [gains(schedule, 1 << 20, link, float(share), "pieces") for share in shares]
    most = max(one["triggered"] for one in result)
    title = f"Frames that leave as values are made: up to {most:.2f} times as fast"
    with figure(path, height=3.6, title=title) as drawn:
        axes = drawn.subplots()
        for index, (name, label) in enumerate(DRAWN.items()):
            axes.plot(
                shares, [one[name] for one in result], "o-", markersize=3, color=PALETTE[index], label=label
            )
        axes.set_xscale("log")
        axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1:4", "1:2", "1:1", "2:1", "4:1"])
        axes.minorticks_off()
        axes.set_xlabel("time to make values : time to communicate")
        axes.set_title("Times as fast as in sequence: direct, 8 nodes, 2^20 values, ECP5, 10 Gb/s (modelled)")
        axes.grid()
        axes.legend()


def _draw_nics(path: Path, every: Sequence[dict[str, Any]]) -> None:
    """Draw when values were made and frames went by, of each NIC; a panel for each row of make sim."""
    options = every[0]["options"]
    nodes, made = options["nodes"], options["make"] * options["values"]
    title = (
        f"{nodes} NICs of {options['units']} unit in RTL, {every[0]['schedule']}: "
        f"{options['values']:,} values, made in {made:,.0f} clocks"
    )
    kinds = (("values are made", None), ("frames leave", "out"), ("frames come", "in"))
    with figure(path, height=1.0 + 1.7 * len(every), title=title) as drawn:
        panels = np.atleast_1d(drawn.subplots(len(every), sharex=True))
        for axes, told in zip(panels, every, strict=True):
            for place, (label, way) in enumerate(kinds):
                bars = [
                    (node, span["begin"], span["end"])
                    for node, spans in enumerate(told["spans"])
                    for span in (spans if way else [{"begin": 0, "end": made, "way": None}])
                    if span["way"] == way
                ]
                nics, begins, ends = (np.array(column, float) for column in zip(*bars, strict=True))
                axes.barh(
                    nics + 0.27 * (place - 1), ends - begins, 0.25, left=begins, color=PALETTE[place],
                    label=label,
                )  # fmt: skip
            axes.axvline(told["clocks"], color=PALETTE[4], linewidth=1)
            axes.set_yticks(range(nodes), [f"NIC {node}" for node in range(nodes)])
            axes.invert_yaxis()
            triggered = f"triggered, {MADE[told['options']['order']]}"
            way = triggered if told["driver"] == "triggered" else "in sequence"
            axes.set_title(f"{way}: {told['clocks']:,} clocks")
        panels[-1].set_xlabel("clocks; the line is the end that the last host sees")
        panels[-1].legend(loc="right")
