"""Loss of ASC against ideal adaptive coding: coded bits of real frames over the code length of their symbols.

The yardstick sees the same symbols in the same contexts, but updates its counts after every symbol, has
fractions of bits, and pays for no header and no flush. What is left is the price of tables that stand still
for an epoch, of 12-bit frequencies, of 24-bit states and of framing. Frames are partial sums of a ring, as
its links carry them; both sides keep learning over all iterations, and the first ones are not counted.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numba import njit

from oscar.bench._integers import Iteration, add_source, default_model, integers, open_source
from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.asc.encode_kernels import raw_field
from oscar.coding.asc.kernels import PRIORS, WEIGHTS, bit_length, lane_start
from oscar.coding.asc.state import TableState
from oscar.errors import OscarError
from oscar.tables import Row, Table
from oscar.workloads import WORKLOADS, Workload

BAR = 2.5  # percent
HALVE = 4096.0  # counts of a context at which the yardstick halves them


TABLE = Table(
    "model <22", "step >4", "frames >6", "values >9", "ideal_bits:ideal >8.3f", "coded_bits:coded >8.3f",
    "loss_percent:loss % >7.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument(
        "--models", nargs="+", choices=list(WORKLOADS), default=None, help="default: the torch ones, if any"
    )
    parser.add_argument("--iterations", type=int, default=8, help="of training, counted or not")
    parser.add_argument("--learning", type=int, default=3, help="first iterations that are not counted")
    parser.add_argument("--links", nargs="+", type=int, default=[0, 1], help="ranks that send")
    parser.add_argument(
        "--steps", nargs="+", type=int, default=None, help="of the ring; default: first, middle, full sums"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all models, print a row for each step, and return the rows and each model's loss."""
    if not 0 <= args.learning < args.iterations:
        raise ValueError(f"expected learning below {args.iterations} iterations, got {args.learning}")
    models = args.models or [default_model(name) for name in ("cnn", "transformer", "embedding")]
    workloads = [open_source(args, name) for name in (["trace"] if args.trace else dict.fromkeys(models))]
    print(f"# {AscParams()}")
    print(f"# quantiser 8s; links {args.links}; iterations {args.learning}..{args.iterations - 1} counted")
    print("# coded: whole frames; ideal: adaptive code length of the same symbols, per-symbol updates")
    print(TABLE.heading)
    rows: list[Row] = []
    losses: dict[str, float] = {}
    for workload in workloads:
        fresh = measure(workload, args)
        ideal, coded = (
            sum(row[name] * row["values"] for row in fresh) for name in ("ideal_bits", "coded_bits")
        )
        losses[workload.name] = 100 * (coded / ideal - 1)
        rows += fresh
        verdict = "met" if losses[workload.name] <= BAR else "MISSED"
        print(f"# {workload.name}: loss {losses[workload.name]:.2f} %, bar {BAR} %: {verdict}")
    return {"rows": rows, "loss_percent": losses, "bar_percent": BAR}


def measure(workload: Workload, args: argparse.Namespace) -> list[Row]:
    """Code the frames of the chosen links and steps over all iterations; return and print a row per step.

    Bits are per value, loss_percent is what coding loses against the ideal.
    """
    nodes = workload.nodes
    steps = sorted({0, nodes // 2 - 1, nodes - 1} if args.steps is None else set(args.steps))
    if not 0 <= min(steps) <= max(steps) < nodes or not 0 <= min(args.links) <= max(args.links) < nodes:
        raise ValueError(f"links and steps of {nodes} nodes are 0 to {nodes - 1}")
    pairs = {(link, step): _Pair() for link in args.links for step in steps}
    for index, iteration in enumerate(integers(workload, args.iterations)):
        for (link, step), pair in pairs.items():
            values, classes = partial_sum(iteration, link, step)
            pair.code(values, classes, step, counted=index >= args.learning)
    rows = []
    for step in steps:
        mine = [pair for (_, s), pair in pairs.items() if s == step]
        frames, values, ideal, coded = (sum(p.total[i] for p in mine) for i in range(4))
        row = {"model": workload.name, "step": step, "frames": int(frames), "values": int(values)}
        row |= {"ideal_bits": float(ideal / values), "coded_bits": float(coded / values)}
        rows.append(row | {"loss_percent": float(100 * (coded / ideal - 1))})
        print(TABLE.line(rows[-1]), flush=True)
    return rows


def partial_sum(iteration: Iteration, link: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """What rank `link` sends at reduce-scatter `step`, and its classes; step N-1 has the full sums."""
    nodes, count = len(iteration.values), iteration.classes.size
    chunk = (link - step) % nodes
    here = slice(chunk * count // nodes, (chunk + 1) * count // nodes)
    terms = [iteration.values[(link - back) % nodes][here] for back in range(step + 1)]
    return np.add.reduce(terms, dtype=np.int32), iteration.classes[here]


class _Pair:
    """Both ends of a link at one step, and the yardstick beside them."""

    def __init__(self) -> None:
        self.encoder, self.decoder = Encoder(), Decoder()
        self.counts = np.tile(PRIORS / 4, (16, 1))
        self.total = np.zeros(4)  # frames, values, bits of the yardstick, bits of the frames

    def code(self, values: np.ndarray, classes: np.ndarray, step: int, *, counted: bool) -> None:
        """Code one frame; raises OscarError unless it comes back."""
        width = 8 + step.bit_length()
        frame = self.encoder.encode(values, step=step, context=classes, width=width)
        state = self.decoder.states.get(step) or TableState.initial(self.decoder.params)
        escape = 16 if width <= 16 else 32
        block, shift = self.encoder.params.block, int(state.shift[0])
        ideal = code_length(values, classes, state.cmap, shift, escape, block, self.counts)
        if not np.array_equal(self.decoder.decode(frame, step=step, context=classes), values):
            raise OscarError(f"step {step}: expected the values that were coded, got others: this is a bug")
        if counted:
            self.total += 1, values.size, ideal, 8 * len(frame)


@njit(cache=True)
def code_length(x: Any, classes: Any, cmap: Any, shift: int, escape: int, block: int, counts: Any) -> float:
    """Bits of all values, symbol by symbol in decoding order; `counts` [context][symbol] adapt to each."""
    bits, totals = 0.0, counts.sum(axis=1)
    e = np.zeros(12, np.int64)
    for start in range(0, len(x), block):
        n = min(block, len(x) - start)
        for i in range(n):
            lane = i % 12
            j = start + lane_start(n, lane) + i // 12
            q = cmap[np.int64(classes[j]) << 4 | bit_length(e[lane])]
            s, _, raw = raw_field(x[j], shift, escape)
            bits += raw - np.log2(counts[q, s] / totals[q])
            counts[q, s] += 1.0
            totals[q] += 1.0
            if totals[q] >= HALVE:
                counts[q] *= 0.5
                totals[q] *= 0.5
            e[lane] += (np.int64(WEIGHTS[s]) - e[lane]) >> 3
    return bits
