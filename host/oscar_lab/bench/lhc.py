"""Lossless sums of sparse integers: bits per value of LHC, of OSCAR-SW's lossless form, and of plain lanes.

All see the same gradients through the same quantiser, and each sum is compared with that of the integers.
Two forms of LHC are measured. The published one sends an index and a peeled sketch, sized from the index, or
lanes where these are cheaper. The other sends the non-zeros one after the other, without a sketch. OSCAR-SW's
split form has one stage or two. Lanes are as wide as any integer may need, or as this iteration's largest
one. The model trains with the exact mean.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.base import Message
from oscar.schemes.widths import Ladder
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, default_model, open_source
from oscar_studies.workloads import WORKLOADS, Workload, exact_mean

BAR = 1.1  # times fewer bytes than LHC, with the same integers
BITS = 8
FEEDBACK = 1.0  # coarseness from which error feedback is on
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lhc": ("lhc", {}),
    "lhc_values": ("lhc", {"cells": "values"}),
    "split_sketch": ("oscar-sw-lossless", {"cells": "sketch"}),
    "split_1": ("oscar-sw-lossless", {"stages": 1}),
    "split": ("oscar-sw-lossless", {}),
}


TABLE = Table(
    "model <12", "nodes >5", "coarseness:c >6g", "zeros >6.3f", "lanes >7.3f", "lanes_fit:fitting >7.3f",
    *(f"{name} >12.3f" for name in VARIANTS), "gain >6.2f", "gain_values:values >6.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument("--models", nargs="+", choices=list(WORKLOADS), default=None)
    parser.add_argument("--coarseness", nargs="+", type=float, default=[0.125, 1.0, 2.0, 4.0])
    parser.add_argument("--iterations", type=int, default=20, help="of training, counted or not")
    parser.add_argument("--learning", type=int, default=4, help="first iterations that are not counted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all models, print a row for each coarseness; ok: the bar holds for coarseness 1 and more.

    Where no such coarseness was asked for, ok is None.
    """
    if not 0 <= args.learning < args.iterations:
        raise ValueError(f"expected learning below {args.iterations} iterations, got {args.learning}")
    models = args.models or list(dict.fromkeys([default_model("cnn"), "numpy-lm"]))
    print(
        f"# {BITS}-bit integers, error feedback from coarseness {FEEDBACK:g}; bits per value, headers counted"
    )
    print(
        f"# iterations {args.learning}..{args.iterations - 1} counted; gain: lhc / split, lhc_values / split"
    )
    print(TABLE.heading)
    rows: list[Row] = []
    for name in ["trace"] if args.trace else models:
        rows += measure(open_source(args, name), args)
    judged = [row["gain"] >= BAR for row in rows if row["coarseness"] >= 1]
    met = all(judged) if judged else None
    verdict = {True: "met", False: "MISSED", None: "not measured"}[met]
    print(f"# gain over lhc at least {BAR} from coarseness 1 on: {verdict}")
    return {"rows": rows, "bar": BAR, "ok": met}


def measure(workload: Workload, args: argparse.Namespace) -> list[Row]:
    """Run all variants at all coarsenesses beside one training; return and print a row for each."""
    points = {c: _Point(workload.nodes, c) for c in args.coarseness}
    for iteration in range(args.iterations):
        gradients = workload.gradients()
        for point in points.values():
            point.allreduce(gradients, counted=iteration >= args.learning)
        workload.apply(exact_mean(gradients))
    rows = [point.row(workload.name) for point in points.values()]
    for row in rows:
        print(TABLE.line(row, **row["bits"]), flush=True)
    return rows


class _Point:
    """All variants at one coarseness, and what they have sent so far."""

    def __init__(self, nodes: int, coarseness: float) -> None:
        self.nodes, self.coarseness = nodes, coarseness
        self.ladder = Ladder.of(nodes, (1 << (BITS - 1)) - 1)
        options = {"coarseness": coarseness, "bits": BITS, "error_feedback": coarseness >= FEEDBACK}
        self.clusters = {
            label: LocalCluster(
                Config.model_validate({"method": name, "nodes": nodes, "scheme": own | options})
            )
            for label, (name, own) in VARIANTS.items()
        }
        self.bits: dict[str, list[float]] = {label: [] for label in VARIANTS}
        self.time_us: dict[str, list[float]] = {label: [] for label in VARIANTS}
        self.lanes: list[tuple[float, float, float]] = []
        self.unpeeled = 0

    def allreduce(self, gradients: list[list[np.ndarray]], *, counted: bool) -> None:
        """Let every variant reduce the same gradients; raises OscarError where one is not exact."""
        for label, cluster in self.clusters.items():
            result = cluster.allreduce(gradients)
            if not result.stats.exact:
                raise OscarError(f"{label} at coarseness {self.coarseness}: sums differ: this is a bug")
            if counted:
                self.bits[label].append(result.stats.bits_per_value)
                self.time_us[label].append(1e6 * result.stats.time_s)
        if counted:
            self.lanes.append(self._lanes(self.clusters["lhc"]))
            self.unpeeled += getattr(self.clusters["lhc"].scheme, "unpeeled", 0)

    def _lanes(self, cluster: LocalCluster) -> tuple[float, float, float]:
        """Return the share of zeros in the sums, and bits per value of wide lanes and of fitting ones."""
        integers = [worker.integers for worker in cluster.workers if worker.integers is not None]
        largest = max(int(np.abs(mine).max(initial=0)) for mine in integers)
        wide, fitting = self.ladder.bits[-1], self.ladder.bits[max(1, self.ladder.level(largest))]
        out = [float(np.mean(np.sum(integers, axis=0) == 0))]
        assert cluster.state is not None
        wire = cluster.state.wire
        for bits in (wide, fitting):
            _, traffic = wire.combine([Message("bench", mine, bits=bits) for mine in integers])
            transfers = 2 * (self.nodes - 1) * integers[0].size
            out.append(8 * traffic.sent_bytes / transfers)
        return out[0], out[1], out[2]

    def row(self, model: str) -> Row:
        """Return the means over the counted iterations, in bits per value that crosses a link.

        gain: lhc / split; gain_values: lhc_values / split; time_us: modelled, one message after the other,
        as models of this size are; unpeeled: values that LHC's tables did not give up.
        """
        bits = {label: float(np.mean(result)) for label, result in self.bits.items()}
        zeros, lanes, fitting = np.mean(self.lanes, axis=0).tolist()
        point = {"model": model, "nodes": self.nodes, "coarseness": self.coarseness}
        return point | {
            "zeros": zeros,
            "lanes": lanes,
            "lanes_fit": fitting,
            "bits": bits,
            "time_us": {label: float(np.mean(result)) for label, result in self.time_us.items()},
            "unpeeled": self.unpeeled,
            "gain": bits["lhc"] / bits["split"],
            "gain_values": bits["lhc_values"] / bits["split"],
        }
