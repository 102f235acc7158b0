"""AllReduce, direct, with NICs of so many engines, clock rates and block sizes (docs/measuring.md).

Real gradients, coded with blocks of that size; every frame's rows are counted, and its blocks are dealt to
engines as the RTL does (`oscar.timeline.engines`). `--values`: rows repeat up to so many values, and chunks
are cut into frames that a NIC takes. fp32's best is the faster of ring and direct, without a codec. "faster
up to": the highest link rate at which coding is faster than that. A board's driver counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams, Decoder, Encoder, max_frame
from oscar.coding.asc.compiled import CompiledCoder
from oscar.coding.asc.params import LANES
from oscar.coding.asc.slots import cells_of, raw_rows
from oscar.coding.codec import Codec
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.frames import KEY, Frames, Key
from oscar.collective.schedules import make_schedule
from oscar.config import Config
from oscar.planning.predict import last_rate, last_text
from oscar.reducers.cluster import LocalCluster
from oscar.tables import Row, Table
from oscar.timeline.equal import assumed_frames, equal_time
from oscar.timeline.link import LinkModel, Pipeline
from oscar.timeline.nic import NicFile, load_nic
from oscar.timeline.replay import time_of
from oscar.workloads import WORKLOADS, exact_mean, make_workload

MOST = (1 << 18) - 1  # values of a NIC's frame
RAW = ("ring", "direct")  # by which fp32 goes
TABLE = Table(
    "model <12", "values >10,d", "block >5", "bits:bits/val >8.3f", "engines >7", "mhz:MHz >5g",
    "gbps:Gb/s >5g", "time_us:time us >9.1f", "over_ring:x ring >7.2f", "over_fp32:x best >7.2f",
    "pays_to:faster up to >12",
)  # fmt: skip


@dataclass(frozen=True)
class Coded:
    """A frame as it was coded: classes of its rows, which are in raw blocks; values, bytes."""

    classes: Array
    raw: Array
    count: int
    size: int


class _Noting(CompiledCoder):
    """Notes what it encodes."""

    def __init__(self, params: AscParams) -> None:
        super().__init__(params, 1)
        self.frames: list[Coded] = []
        self.values: list[tuple[Array, Array]] = []

    def encode(self, values: Array, classes: Array | None, width: int, state: Any) -> bytes | memoryview:
        """See Coder.encode."""
        payload = super().encode(values, classes, width, state)
        rows = self._room["classes"][0][: -(-values.size // LANES)].copy()
        raw = raw_rows(self._payload, self._head, values.size)
        self.frames.append(Coded(rows, raw, values.size, len(payload) + HEADER_BYTES))
        if classes is not None:
            self.values.append((values.astype(np.int16), classes.astype(np.uint8)))
        return payload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--models", nargs="+", default=["numpy-lm"], choices=list(WORKLOADS))
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--values", type=int, help="of a model (default: as many as it has)")
    parser.add_argument("--block-log2", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--engines", nargs="+", type=int, default=[8, 16, 26, 32, 48, 64])
    parser.add_argument("--mhz", nargs="+", type=float, default=[200.0, 223.0, 250.0, 300.0])
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
    total, coded = measured(model, args.nodes, AscParams(sent_rows=False, block_log2=log2), args)
    values = args.values or total
    subframes = -(-values // (args.nodes * MOST))
    schedule = make_schedule("direct", args.nodes, subframes=subframes)
    frames = stretched(assumed_frames(schedule, values), coded, args.nodes)
    bits, nic = 8 * frames.bytes / frames.values, load_nic()
    for engines, mhz in product(args.engines, args.mhz):
        driver = None if args.no_driver or nic.driver is None else nic.driver.model(mhz)
        link = LinkModel(
            latency_s=args.latency_us * 1e-6, engines=pipeline(nic, engines, mhz, 1 << log2), driver=driver
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
                "model": model, "values": values, "block": 1 << log2, "bits": bits, "engines": engines,
                "mhz": mhz, "gbps": gbps, "time_us": time_s * 1e6, "over_ring": ring / time_s,
                "over_fp32": best / time_s, "faster_up_to_gbps": last, "pays_to": last_text(last),
            }  # fmt: skip


def measured(
    model: str, nodes: int, params: AscParams, args: argparse.Namespace
) -> tuple[int, tuple[list[Coded], list[Coded]]]:
    """Return how many values a model has, and what was coded last: workers' values, sums."""
    coder = _Noting(params)
    total = _train(model, nodes, coder, args.iterations, args.seed)
    pushes = nodes * (nodes - 1)
    return total, (coder.frames[:pushes], coder.frames[pushes:])


def pushed(model: str, nodes: int, seed: int) -> list[tuple[Array, Array]]:
    """Return values and position classes of all frames that the direct schedule codes; the sums come last."""
    coder = _Noting(AscParams(sent_rows=False))
    _train(model, nodes, coder, 4, seed)
    return coder.values


def _train(model: str, nodes: int, coder: _Noting, iterations: int, seed: int) -> int:
    """Train; return the values of a gradient. The coder has the frames of the last AllReduce."""
    codec = Codec(
        "asc", "int", True, lambda: Encoder(coder.params, coder=coder),
        lambda: Decoder(coder.params, coder=coder), partial(max_frame, coder.params), uses_context=True,
        decodes_into=True,
    )  # fmt: skip
    workload = make_workload(model, nodes=nodes, seed=seed)
    config = {"nodes": nodes, "schedule": {"name": "direct"}, "quantiser": {"bits": 12}}
    cluster = LocalCluster(Config.model_validate(config), codec=codec)
    for _ in range(iterations):
        coder.frames.clear()
        coder.values.clear()
        gradients = workload.gradients()
        cluster.allreduce(gradients)
        workload.apply(exact_mean(gradients))
    return sum(tensor.size for tensor in gradients[0])


def stretched(frames: Frames, coded: tuple[list[Coded], list[Coded]], nodes: int) -> Frames:
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


def pipeline(nic: NicFile, engines: int, mhz: float, block: int) -> Pipeline:
    """Return the NIC with other engines and another clock."""
    clocks = {name: (each * nic.engines / engines, *once) for name, (each, *once) in nic.clocks.items()}
    changed = {"engines": engines, "mhz": mhz, "block": block, "clocks": clocks}
    found = nic.model_copy(update=changed).model()
    assert isinstance(found, Pipeline)
    return found
