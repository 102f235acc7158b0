"""AllReduce, direct, with NICs of so many units, clock rates and block sizes (docs/explain/measuring.md).

Real gradients, coded with blocks of that size; every frame's rows are counted, and its clocks follow from
coefficients of a NIC with as many units (`oscar.timeline.clocks`). `--values`: rows repeat up to so many
values. "frames": of a
chunk, the best of one, two and three times as many as its values take at least. fp32's best is the faster of
ring and direct, without a codec. "faster up to": the highest link rate at which coding is faster than that,
with its own best cut. A board's driver counts; it and the memory that frames have to fit into are those of
the package's NIC for the fastest of the links.
`--slices`: the same by a switch that adds in so many slices, each a NIC like the ranks', without drivers; the
best of three numbers of frames a chunk, as direct beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams
from oscar.coding.asc.params import LANES
from oscar.coding.asc.turns import cells_of
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.collective.frames import KEY, Frames, Key
from oscar.collective.schedules import make_schedule
from oscar.errors import ConfigError
from oscar.planning.predict import last_rate, last_text
from oscar.tables import Row, Table
from oscar.timeline.equal import assumed_frames, equal_time
from oscar.timeline.link import MOST_VALUES, LinkModel, Pipeline
from oscar.timeline.nic import SHIPPED, load_nic
from oscar.timeline.replay import time_of
from oscar.timeline.topology import adding_switch
from oscar_studies.integers import CodedFrame, measured
from oscar_studies.workloads import WORKLOADS

Coded = tuple[list[CodedFrame], list[CodedFrame]]  # of workers, of sums
UNITS = (1, 2, 4, 8)
NICS = Path(__file__).parent / "nics"  # of other units than the package's have
BOUNDS = {  # of options, least and most
    "nodes": (2, 256), "slices": (1, 256), "values": (1, 10**12), "iterations": (1, 10_000),
    "block_log2": (10, 17), "mhz": (1, 10_000), "gbps": (1e-3, 1e6), "latency_us": (0, 1e6),
}  # fmt: skip
RAW = ("ring", "direct")  # by which fp32 goes
TABLE = Table(
    "model <12", "values >10,d", "block >5", "units >5", "mhz:MHz >5g", "gbps:Gb/s >5g", "frames >6",
    "bits:bits/val >8.3f", "time_us:time us >9.1f", "over_ring:x ring >7.2f", "over_fp32:x best >7.2f",
    "pays_to:faster up to >12",
)  # fmt: skip
SWITCHED = Table(
    "model <12", "values >10,d", "block >5", "units >5", "mhz:MHz >5g", "gbps:Gb/s >5g", "slices >6",
    "direct_us:direct us >9.1f", "time_us:switch us >9.1f", "over_direct:x direct >8.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--models", nargs="+", default=["numpy-lm"], choices=list(WORKLOADS))
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--values", type=int, help="of a model (default: as many as it has)")
    parser.add_argument("--block-log2", nargs="+", type=int, default=[10, 11])
    parser.add_argument("--units", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--mhz", nargs="+", type=float, default=[204.0, 250.0])
    parser.add_argument("--iterations", type=int, default=6, help="the last one is measured")
    parser.add_argument("--gbps", nargs="+", type=float, default=[100.0])
    parser.add_argument("--latency-us", type=float, default=2.0)
    parser.add_argument("--no-driver", action="store_true", help="the NIC alone, without a board's driver")
    parser.add_argument(
        "--slices", nargs="+", type=int, help="of a switch that adds, instead of direct alone"
    )
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the table; return its rows. Raises ValueError for options out of range."""
    _check(args)
    if args.slices:
        return _switched(args)
    driver = "the NIC alone" if args.no_driver else "with a board's driver"
    print(f"# direct, {args.nodes} nodes, {args.latency_us:g} us a hop, quantiser 12s; {driver}")
    print(TABLE.heading)
    rows: list[Row] = []
    for model in args.models:
        for log2 in args.block_log2:
            for row in _rows(model, log2, args):
                rows.append(row)
                print(TABLE.line(row), flush=True)
    return {"rows": rows}


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for the first option out of range."""
    wrong = [units for units in args.units if units not in UNITS]
    if wrong:
        raise ValueError(f"--units: expected 1, 2, 4 or 8, as the RTL has them, got {wrong[0]}")
    for name, (least, most) in BOUNDS.items():
        given = getattr(args, name)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not least <= value <= most:
                option = name.replace("_", "-")
                raise ValueError(f"--{option}: expected {least:,g} to {most:,g}, got {value:g}")


def _rows(model: str, log2: int, args: argparse.Namespace) -> Iterator[Row]:
    total, coded = measured(
        model, args.nodes, AscParams(sent_rows=False, block_log2=log2),
        iterations=args.iterations, seed=args.seed,
    )  # fmt: skip
    values = args.values or total
    nic = load_nic(None, max(args.gbps))
    fewest = -(-values // (args.nodes * nic.frame_values))  # frames fit into memory
    cuts = []
    for subframes in (fewest, *(n for n in (2 * fewest, 3 * fewest) if n <= MAX_SUBFRAMES)):
        schedule = make_schedule("direct", args.nodes, subframes=subframes)
        cuts.append((schedule, stretched(assumed_frames(schedule, values), coded, args.nodes)))
    for units, mhz in product(args.units, args.mhz):
        driver = None if args.no_driver or nic.driver is None else nic.driver.model(mhz, units)
        link = LinkModel(
            latency_s=args.latency_us * 1e-6, coder=pipeline(units, mhz, 1 << log2), driver=driver
        )

        def times(gbps: float, link: LinkModel = link) -> tuple[float, int, float, float]:
            """Return the seconds with NICs and by which cut, of fp32's ring and of its best."""
            at = replace(link, bandwidth_bps=gbps * 1e9)
            ways = (make_schedule(name, args.nodes) for name in RAW)
            ring, direct = (equal_time(way, values, at, coded=False) for way in ways)
            time_s, cut = min((time_of(*one, at), cut) for cut, one in enumerate(cuts))
            return time_s, cut, ring, min(ring, direct)

        def faster(gbps: float, times: Callable[[float], tuple[float, ...]] = times) -> bool:
            time_s, *_, best = times(gbps)
            return time_s <= best

        last, _ = last_rate(faster)
        for gbps in args.gbps:
            time_s, cut, ring, best = times(gbps)
            schedule, frames = cuts[cut]
            yield {
                "model": model, "values": values, "block": 1 << log2, "units": units, "mhz": mhz,
                "gbps": gbps, "frames": schedule.subframes, "bits": 8 * frames.bytes / frames.values,
                "time_us": time_s * 1e6, "over_ring": ring / time_s, "over_fp32": best / time_s,
                "faster_up_to_gbps": last, "pays_to": last_text(last),
            }  # fmt: skip


def _switched(args: argparse.Namespace) -> dict[str, Any]:
    """Print and return times of direct and of a switch's slices."""
    print(f"# {args.nodes} nodes, {args.latency_us:g} us a hop, half of it to a slice; no drivers")
    print(SWITCHED.heading)
    rows: list[Row] = []
    for model, log2 in product(args.models, args.block_log2):
        total, coded = measured(
            model, args.nodes, AscParams(sent_rows=False, block_log2=log2),
            iterations=args.iterations, seed=args.seed,
        )  # fmt: skip
        values = args.values or total
        for chunks in (args.nodes, *args.slices):
            fewest_frames(values, chunks)
        for units, mhz, gbps in product(args.units, args.mhz, args.gbps):
            link = LinkModel(
                bandwidth_bps=gbps * 1e9, latency_s=args.latency_us * 1e-6,
                coder=pipeline(units, mhz, 1 << log2),
            )  # fmt: skip

            direct_s = _least_s(args.nodes, 0, values, coded, link)
            for slices in args.slices:
                time_s = _least_s(args.nodes, slices, values, coded, link)
                row = {
                    "model": model, "values": values, "block": 1 << log2, "units": units, "mhz": mhz,
                    "gbps": gbps, "slices": slices, "direct_us": direct_s * 1e6, "time_us": time_s * 1e6,
                    "over_direct": direct_s / time_s,
                }  # fmt: skip
                rows.append(row)
                print(SWITCHED.line(row), flush=True)
    return {"rows": rows}


def fewest_frames(values: int, chunks: int) -> int:
    """Return how many frames a chunk takes at least; raise ValueError where no schedule has so many."""
    frames = -(-values // (chunks * MOST_VALUES))
    if frames > MAX_SUBFRAMES:
        raise ValueError(
            f"expected {MAX_SUBFRAMES} frames a chunk at most, got {frames}: {values:,} values are cut into "
            f"{chunks}; take fewer, or more slices"
        )
    return frames


def _least_s(nodes: int, slices: int, values: int, coded: Coded, link: LinkModel) -> float:
    """Return the time of direct, or by slices of a switch, with the best of three cuts into frames."""
    name, topology = "direct", None
    if slices:
        wire = link.wired(coded=True)
        name, topology = "switch", adding_switch(nodes, slices, wire.bandwidth_bps / 1e9, link.latency_s)
    result = []
    for times in (1, 2, 4):
        subframes = times * fewest_frames(values, slices or nodes)
        if subframes <= MAX_SUBFRAMES:
            schedule = make_schedule(name, nodes, subframes=subframes, slices=slices)
            frames = stretched(assumed_frames(schedule, values), coded, nodes)
            result.append(time_of(schedule, frames, link, topology))
    return min(result)


def stretched(frames: Frames, coded: Coded, nodes: int) -> Frames:
    """Return frames with the rows and bytes a value of those that were coded, in turn.

    Sub-frames of a chunk have one part of a coded frame after another.
    """
    rows, cells = frames.rows.copy(), dict[Key, Array]()
    for row in rows:
        phase, sender, chunk, sub = (int(row[name]) for name in KEY)
        key = phase, sender, chunk, sub
        of = coded[phase]
        one = of[(sender * nodes + chunk) % len(of)]
        count = int(row["count"])
        row["bytes"] = HEADER_BYTES + round((one.size - HEADER_BYTES) * count / one.count)
        if key not in cells:
            rows_of = -(-count // LANES)
            classes, raw = (
                np.resize(np.roll(part, -sub * rows_of), rows_of) for part in (one.classes, one.raw)
            )
            cells[key] = cells_of(classes, count, raw)
    return Frames.of(rows, cells)


def pipeline(units: int, mhz: float, block: int) -> Pipeline:
    """Return the measured NIC of so many units, with another clock and other blocks."""
    shipped = {nic.units: nic for nic in (load_nic(None, gbps) for gbps in SHIPPED)}
    file = NICS / f"units_{units}.json"
    if units not in shipped and not file.exists():
        raise ConfigError(
            f"--units {units}: expected a NIC that was measured, got none: copy a file of "
            f"oscar/timeline/nics to {file}, set its units and bus_bits, and run "
            f"python -m oscar_sim.step_clocks {file} --write"
        )
    nic = shipped.get(units) or load_nic(str(file))
    result = nic.model_copy(update={"mhz": mhz, "block": block, "bus_bits": 8 * max(16, 8 * units)}).model()
    assert isinstance(result, Pipeline)
    return result
