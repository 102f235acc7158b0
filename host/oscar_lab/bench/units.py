"""AllReduce, direct, with NICs of so many units, clock rates and block sizes (docs/measuring.md).

Real gradients, coded with blocks of that size; every frame's rows are counted, and its blocks are dealt to
units as the RTL does (`oscar.timeline.units`). `--values`: rows repeat up to so many values, and chunks
are cut into frames that a NIC takes. fp32's best is the faster of ring and direct, without a codec. "faster
up to": the highest link rate at which coding is faster than that. A board's driver counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams
from oscar.coding.asc.params import LANES
from oscar.coding.asc.turns import cells_of
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.frames import KEY, Frames, Key
from oscar.collective.schedules import make_schedule
from oscar.planning.predict import last_rate, last_text
from oscar.studies.integers import CodedFrame, measured
from oscar.tables import Row, Table
from oscar.timeline.equal import assumed_frames, equal_time
from oscar.timeline.link import LinkModel, Pipeline
from oscar.timeline.nic import NicFile, load_nic
from oscar.timeline.replay import time_of
from oscar.workloads import WORKLOADS

MOST = (1 << 18) - 1  # values of a NIC's frame
RAW = ("ring", "direct")  # by which fp32 goes
TABLE = Table(
    "model <12", "values >10,d", "block >5", "bits:bits/val >8.3f", "units >5", "mhz:MHz >5g",
    "gbps:Gb/s >5g", "time_us:time us >9.1f", "over_ring:x ring >7.2f", "over_fp32:x best >7.2f",
    "pays_to:faster up to >12",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--models", nargs="+", default=["numpy-lm"], choices=list(WORKLOADS))
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--values", type=int, help="of a model (default: as many as it has)")
    parser.add_argument("--block-log2", nargs="+", type=int, default=[10, 11])
    parser.add_argument("--units", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--mhz", nargs="+", type=float, default=[178.0, 250.0])
    parser.add_argument("--iterations", type=int, default=6, help="the last one is measured")
    parser.add_argument("--gbps", nargs="+", type=float, default=[100.0])
    parser.add_argument("--latency-us", type=float, default=2.0)
    parser.add_argument("--no-driver", action="store_true", help="the NIC alone, without a board's driver")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the table; return its rows."""
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


def _rows(model: str, log2: int, args: argparse.Namespace) -> Iterator[Row]:
    total, coded = measured(
        model, args.nodes, AscParams(sent_rows=False, block_log2=log2),
        iterations=args.iterations, seed=args.seed,
    )  # fmt: skip
    values = args.values or total
    subframes = -(-values // (args.nodes * MOST))
    schedule = make_schedule("direct", args.nodes, subframes=subframes)
    frames = stretched(assumed_frames(schedule, values), coded, args.nodes)
    bits, nic = 8 * frames.bytes / frames.values, load_nic()
    for units, mhz in product(args.units, args.mhz):
        driver = None if args.no_driver or nic.driver is None else nic.driver.model(mhz)
        link = LinkModel(
            latency_s=args.latency_us * 1e-6, coder=pipeline(nic, units, mhz, 1 << log2), driver=driver
        )

        def times(gbps: float, link: LinkModel = link) -> tuple[float, float, float]:
            """Return the seconds with NICs, of fp32's ring and of its best."""
            at = replace(link, bandwidth_bps=gbps * 1e9)
            ways = (make_schedule(name, args.nodes) for name in RAW)
            ring, direct = (equal_time(way, values, at, coded=False) for way in ways)
            return time_of(schedule, frames, at), ring, min(ring, direct)

        def faster(gbps: float, times: Callable[[float], tuple[float, ...]] = times) -> bool:
            time_s, _, best = times(gbps)
            return time_s <= best

        last, _ = last_rate(faster)
        for gbps in args.gbps:
            time_s, ring, best = times(gbps)
            yield {
                "model": model, "values": values, "block": 1 << log2, "bits": bits, "units": units,
                "mhz": mhz, "gbps": gbps, "time_us": time_s * 1e6, "over_ring": ring / time_s,
                "over_fp32": best / time_s, "faster_up_to_gbps": last, "pays_to": last_text(last),
            }  # fmt: skip


def stretched(frames: Frames, coded: tuple[list[CodedFrame], list[CodedFrame]], nodes: int) -> Frames:
    """Return frames with the rows and bytes a value of those that were coded, in turn."""
    rows, cells = frames.rows.copy(), dict[Key, Array]()
    for row in rows:
        phase, sender, chunk, sub = (int(row[name]) for name in KEY)
        key = phase, sender, chunk, sub
        of = coded[phase]
        one = of[(sender * nodes + chunk + sub) % len(of)]
        count = int(row["count"])
        row["bytes"] = HEADER_BYTES + round((one.size - HEADER_BYTES) * count / one.count)
        if key not in cells:
            rows_of = -(-count // LANES)
            cells[key] = cells_of(np.resize(one.classes, rows_of), count, np.resize(one.raw, rows_of))
    return Frames.of(rows, cells)


def pipeline(nic: NicFile, units: int, mhz: float, block: int) -> Pipeline:
    """Return the NIC with other units and another clock."""
    clocks = {name: (each * nic.units / units, *once) for name, (each, *once) in nic.clocks.items()}
    changed = {"units": units, "mhz": mhz, "block": block, "clocks": clocks}
    found = nic.model_copy(update=changed).model()
    assert isinstance(found, Pipeline)
    return found
