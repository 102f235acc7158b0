"""Sparse gradients: bytes of the busiest port by exchange, balance by partition, bits by index codec.

One tensor's gradients, those of an embedding, go through every exchange of sparse sets as floats. The cost of
a message is the bytes that its busiest port sends or receives, frame headers included; costs of messages add
up, as they follow each other. Every exchange's mean is compared with the dense one. OmniReduce appears
with the block that suits it best, and with its own. The model trains with the exact mean.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.collective.frames import AllReduceResult
from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.sparse.partitions import NAMES, Grains, make_partition
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, open_source
from oscar_studies.workloads import exact_mean

BLOCKS = 8, 16, 32, 64, 128, 256
SYSTEMS: dict[str, dict[str, Any]] = {
    "dense ring": {"exchange": "dense"},
    "AGsparse": {"exchange": "all-gather"},
    "SparCML": {"exchange": "doubling"},
    "OmniReduce": {"exchange": "blocks"},
    "OmniReduce 256": {"exchange": "blocks", "block": 256},
    "ranges, COO": {"exchange": "balanced", "partition": "range", "pull": "coo"},
    "Zen, COO pull": {"exchange": "balanced", "pull": "coo"},
    "Zen": {"exchange": "balanced"},
    "Zen, learnt, gaps": {"exchange": "balanced", "partition": "learnt", "push": "gaps"},
}
PEERS = "dense ring", "AGsparse", "SparCML", "OmniReduce"
BARS = {8: (8.0, 2.0, 1.6, 6.0), 16: (6.0, 2.8, 1.9, 5.5)}  # Zen's bytes against those of PEERS, by nodes

PORTS = Table(
    "nodes >5", "grain <6", "system <18", "busiest_kb:busiest kB >11.1f", "mean_kb:mean kB >9.1f",
    "gain:Zen is smaller >15.2f", "bar >5", "time_us:time us >9.1f",
)  # fmt: skip
BALANCE = Table(
    "nodes >5", "grain <6", "partition <11", "push:push max/mean >14.3f", "pull:pull max/mean >14.3f"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument("--model", default="embedding", help="a workload whose first tensor is sparse")
    parser.add_argument("--iterations", type=int, default=12, help="of training before the sample is taken")
    parser.add_argument("--counted", type=int, default=3, help="iterations that are measured")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all exchanges and partitions, print a row for each; ok: all bars hold, None without any."""
    workload = open_source(args, args.model)
    for _ in range(args.iterations):
        workload.apply(exact_mean(workload.gradients()))
    sample: list[list[Array]] = []  # [iteration][node]
    for _ in range(args.counted):
        gradients = workload.gradients()
        sample.append([node[0] for node in gradients])
        workload.apply(exact_mean(gradients))
    shown = np.mean([np.count_nonzero(mine) / mine.size for mine in sample[-1]])
    print(f"# {workload.name}, first tensor {sample[0][0].shape}: density {shown:.4f} a worker")
    ports = [row for grain in ("value", "row") for row in _ports(sample, grain)]
    balance = _balance(sample)
    print(f"\n{BALANCE.heading}")
    for row in balance:
        print(BALANCE.line(row))
    judged = [row["gain"] >= row["bar"] for row in ports if row["bar"] is not None]
    met = all(judged) if judged else None
    print(f"\n# bars: {'not measured' if met is None else 'met' if met else 'MISSED'}")
    return {"ports": ports, "balance": balance, "ok": met}


def busiest(result: AllReduceResult) -> int:
    """Return the bytes of the busiest port, summed over the messages of an AllReduce."""
    nodes = result.stats.nodes
    return sum(
        int(max(one.frames.sent(nodes).max(initial=0), one.frames.received(nodes).max(initial=0)))
        for one in result.stats.moved
    )


def _ports(sample: list[list[Array]], grain: str) -> list[Row]:
    """Return and print a row for every system at a grain; blocks have a grain of their own."""
    rows = []
    for system, options in SYSTEMS.items():
        if system == "OmniReduce":
            rows.append(
                min((_row(sample, system, grain, options | {"block": b}) for b in BLOCKS), key=_bytes)
            )
        else:
            rows.append(_row(sample, system, grain, options))
    zen = next(row["busiest_kb"] for row in rows if row["system"] == "Zen")
    nodes = len(sample[0])
    bars = dict(zip(PEERS, BARS.get(nodes, ()), strict=False)) if grain == "value" else {}
    print(f"\n{PORTS.heading}")
    for row in rows:
        row["gain"], row["bar"] = row["busiest_kb"] / zen, bars.get(row["system"])
        print(PORTS.line(row), flush=True)
    return rows


def _bytes(row: Row) -> float:
    return float(row["busiest_kb"])


def _row(sample: list[list[Array]], system: str, grain: str, options: dict[str, Any]) -> Row:
    nodes = len(sample[0])
    scheme = options | {"grain": grain, "below": 1.0}
    cluster = LocalCluster(Config.model_validate({"method": "zen", "nodes": nodes, "scheme": scheme}))
    port, mean, time_us = [], [], []
    for gradients in sample:
        result = cluster.allreduce([[mine] for mine in gradients])
        _check(system, gradients, result.mean[0])
        port.append(busiest(result) / 1e3)
        mean.append(result.stats.frames.bytes / nodes / 1e3)
        time_us.append(1e6 * result.stats.time_s)
    found = {"busiest_kb": port, "mean_kb": mean, "time_us": time_us}
    return {"nodes": nodes, "grain": grain, "system": system, "options": options} | {
        key: float(np.mean(values)) for key, values in found.items()
    }


def _check(system: str, gradients: list[Array], mean: Array) -> None:
    """Raise OscarError where a mean is not that of a dense sum, to float32's rounding."""
    dense = np.sum(gradients, axis=0, dtype=np.float64) / len(gradients)
    scale = np.abs(gradients).max() * len(gradients)
    if np.abs(mean - dense).max(initial=0.0) > 2**-22 * scale:
        raise OscarError(f"{system}: expected the mean of the dense sum, got another: this is a bug")


def _balance(sample: list[list[Array]]) -> list[Row]:
    """Return the worst worker's fullest push over its mean one, and the fullest pull over the mean one."""
    rows, shape, nodes = [], sample[0][0].shape, len(sample[0])
    for grain, width in (("value", 1), ("row", shape[-1])):
        grains = Grains.of(np.array([0, sample[0][0].size]), [width])
        sets = [[grains.hit(np.ravel(mine)) for mine in gradients] for gradients in sample]
        hits = np.zeros(grains.size, np.int64)
        for mine in (positions for every in sets[:-1] for positions in every):
            hits[mine] += 1
        for name in NAMES:
            partition = make_partition(name, grains.size, nodes, hits=256 * hits)
            push = np.array([[len(part) for part in partition.split(mine)] for mine in sets[-1]])
            union = np.unique(np.concatenate(sets[-1]))
            pull = np.array([len(part) for part in partition.split(union)])
            rows.append(
                {
                    "nodes": nodes,
                    "grain": grain,
                    "partition": name,
                    "push": float((push.max(axis=1) / push.mean(axis=1)).max()),
                    "pull": float(pull.max() / pull.mean()),
                }
            )
    return rows
