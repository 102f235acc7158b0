"""Values per clock of a lane of converted RTL on real gradients.

The sums of a ring are taken as its links carry them: step s sends sums of s + 1 workers. Every frame is
compared with the reference. The lane is never kept waiting: sources always have a value, sinks are ready.

    python -m oscar_sim.throughput
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oscar.bench._integers import Iteration, default_model, integers
from oscar.errors import OscarError
from oscar.files import write_json
from oscar.workloads import make_workload
from oscar_hdl.format2.reference import ReferenceCoder
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_sim.lane import Lane, LinkTables
from oscar_sim.lane_order import lane_order
from oscar_sim.nics import MAX_COUNT
from oscar_sim.results_file import prepared

BAR = 0.97  # values per clock
BLOCKS = (8, 24)  # of the two frames whose difference is taken


@dataclass(frozen=True)
class Row:
    """One command; clocks from start to the last word, value and table out; bits: payload bits per value.

    streaming: values per clock from the second value that the lane took to the last; the first waits in a
    register until the tables are loaded.
    """

    model: str
    op: str
    step: int
    values: int
    clocks: int
    values_per_clock: float
    streaming: float
    bits: float
    redos: int
    exact: bool


class _Link:
    """Tables of a link's two ends, and the reference to move them on."""

    def __init__(self, params: LaneParams) -> None:
        self.coder = ReferenceCoder(params.asc)
        self.state = TableState.initial()

    def send(
        self, values: np.ndarray, classes: np.ndarray, width: int
    ) -> tuple[LinkTables, bytes, LinkTables]:
        """Return tables before, payload and tables after the next frame."""
        before = LinkTables.of(self.state)
        payload = self.coder.encode(
            values.astype(np.int32), np.multiply(classes, 16, dtype=np.uint8), width, self.state
        )
        return before, payload, LinkTables.of(self.state)


def _same(after: LinkTables | None, wanted: LinkTables) -> bool:
    return after is not None and after.shift == wanted.shift and np.array_equal(after.hist, wanted.hist)


def measure(lane: Lane, params: LaneParams, model: str, data: list[Iteration], nodes: int) -> list[Row]:
    """Run encode, hop and last hop of every iteration; return rows of the last one."""
    links = {step: _Link(params) for step in range(nodes - 1)}
    rows: list[Row] = []
    for iteration in data:
        rows = []
        count = min(MAX_COUNT, iteration.classes.size)
        order = lane_order(count, params.block)
        classes = iteration.classes[:count]
        own = [values[:count].astype(np.int64) for values in iteration.values]
        sums = np.cumsum(own[:nodes], axis=0)
        sent: dict[int, tuple[LinkTables, bytes, LinkTables]] = {}
        for step in range(nodes - 1):
            sent[step] = links[step].send(sums[step], classes, 8 + step.bit_length())
        for step in range(nodes):
            op = "encode" if step == 0 else "last hop" if step == nodes - 1 else "hop"
            given: dict[str, Any] = {"local": own[step].astype(np.int16)[order]}
            if step > 0:
                before, payload, _ = sent[step - 1]
                given |= {"decoder": before, "payload": payload, "dec_width": 8 + (step - 1).bit_length()}
            if step < nodes - 1:
                given |= {"encoder": sent[step][0], "enc_width": 8 + step.bit_length()}
            done = lane.run(classes[order], **given)
            exact = True
            if step > 0:
                exact = not done.error and np.array_equal(done.values, sums[step].astype(np.int16)[order])
                exact = exact and _same(done.decoder, sent[step - 1][2])
            if step < nodes - 1:
                exact = exact and done.payload == sent[step][1] and _same(done.encoder, sent[step][2])
            size = len(sent[min(step, nodes - 2)][1])
            rows.append(
                Row(
                    model,
                    op,
                    step,
                    count,
                    done.clocks,
                    count / done.clocks,
                    count / done.streaming,
                    8 * size / count,
                    done.redos,
                    exact,
                )
            )
    return rows


def command_clocks(
    lane: Lane, params: LaneParams, blocks: Sequence[int] = BLOCKS
) -> dict[str, tuple[float, float]]:
    """Return for encode, hop and decode what each value and what each frame costs, in clocks.

    The line through two frames of `blocks` full blocks; its second number is what a frame pays once: tables
    loaded, the last block drained, tables out.
    """
    rng = np.random.default_rng(1)
    found: dict[str, list[int]] = {"encode": [], "hop": [], "decode": []}
    for number in blocks:
        count = number * params.block
        order, classes = lane_order(count, params.block), np.zeros(count, np.uint8)
        values = np.rint(rng.laplace(0, 1.2, count)).astype(np.int64)
        link = _Link(params)
        for _ in range(2):  # the second time the tables fit
            before, payload, _ = link.send(values, classes, 8)
        local = {"local": values.astype(np.int16)[order]}
        received = {"decoder": before, "payload": payload, "dec_width": 8}
        for op, given in (
            ("encode", {**local, "encoder": before, "enc_width": 8}),
            ("hop", {**local, **received, "encoder": before, "enc_width": 9}),
            ("decode", {**local, **received}),
        ):
            found[op].append(lane.run(classes, **given).clocks)
    values_more = (blocks[1] - blocks[0]) * params.block
    costs = {}
    for op, (first, last) in found.items():
        each = (last - first) / values_more
        costs[op] = (each, first - each * blocks[0] * params.block)
    return costs


def main(argv: list[str] | None = None) -> int:
    """Print the table; return 1 for a frame that differs (--strict: or a missed bar), 2 if it cannot run."""
    parser = argparse.ArgumentParser(
        prog="python -m oscar_sim.throughput", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--models", nargs="+", default=None, help="workloads (default: the torch ones, if any)"
    )
    parser.add_argument("--nodes", type=int, default=4, help="workers in the ring (%(default)s)")
    parser.add_argument("--iterations", type=int, default=4, help="of training; the last one is shown")
    parser.add_argument("--strict", action="store_true", help=f"fail below {BAR} values per clock")
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args(argv)
    if not 2 <= args.nodes <= 16 or args.iterations < 1:
        parser.error("expected 2 to 16 nodes and at least one iteration")
    models = args.models or list(dict.fromkeys(default_model(m) for m in ("cnn", "transformer", "embedding")))
    from oscar_sim.verilator.lane import VerilatedLane

    params = LaneParams()
    try:
        prepared(args.json)
        workloads = {model: make_workload(model, nodes=args.nodes, seed=0) for model in models}
        lane = VerilatedLane(params)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"# one lane, converted RTL, {params}; 8s, {args.nodes} nodes, iteration {args.iterations - 1}")
    print("# clocks: from start, tables not loaded yet, to the last word, the last value and the tables out;")
    print("# streaming: values per clock from the second value (tables are loaded) to the last")
    print(
        f"{'model':<12} {'op':<9} {'step':>4} {'values':>8} {'clocks':>8} {'val/clock':>9} {'streaming':>9} "
        f"{'bits':>6} exact"
    )
    rows: list[Row] = []
    try:
        for model, workload in workloads.items():
            data = list(integers(workload, args.iterations))
            for row in measure(lane, params, model, data, args.nodes):
                rows.append(row)
                print(
                    f"{row.model:<12} {row.op:<9} {row.step:>4} {row.values:>8} {row.clocks:>8} "
                    f"{row.values_per_clock:>9.4f} {row.streaming:>9.4f} {row.bits:>6.3f} "
                    f"{'yes' if row.exact else 'NO'}"
                )
        costs = command_clocks(lane, params)
    except OscarError as error:  # the lane hangs, or says something it must not
        print(f"error: {error}", file=sys.stderr)
        return 1
    slowest = min(row.streaming for row in rows)
    ok = all(row.exact for row in rows)
    blocks = {op: each * params.block for op, (each, _) in costs.items()}
    said = ", ".join(f"{op} {clocks:.0f} (and {costs[op][1]:.0f} a frame)" for op, clocks in blocks.items())
    print(f"# clocks of a full block of {params.block} values: {said}")
    verdict = "met" if slowest >= BAR else "MISSED"
    print(f"# slowest {slowest:.4f} values per clock while values stream, bar {BAR}: {verdict}")
    if args.json:
        found = {"ok": ok, "slowest": slowest, "block_clocks": blocks, "rows": [asdict(row) for row in rows]}
        write_json(args.json, found)
    return 0 if ok and (slowest >= BAR or not args.strict) else 1


if __name__ == "__main__":
    sys.exit(main())
