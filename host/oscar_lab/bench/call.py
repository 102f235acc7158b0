"""Where the time of one AllReduce goes, stage by stage: a whole call of a cluster, and of one rank of four.

A profile of the call by functions, whose own time goes to the stage that their module belongs to. What NumPy,
zlib and other libraries take goes to the function here that called them. Processor time of one thread counts,
so waits do not; kernels are compiled in calls before. A profile takes time, too: calls without one are timed
in turn with those. GB/s are of the float32 gradient.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import oscar
from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.tables import Row, Table
from oscar.transports.threads import local_transports

HOUSE = f"{Path(oscar.__file__).parent}{os.sep}"
REST = "rest"
CRC = "isal_zlib.crc32"  # of a library: it has a name and no file
SIGMA = 0.01  # of the gradients
WARM = 2  # calls that compile and touch pages
# The first that fits: a part of "module:function", below the package.
STAGES = (
    ("collective/local.py:run", "rest"),
    (CRC, "CRC-32"),
    ("coding/frame.py", "frames: header and copy"),
    ("coding/codec.py", "frames: check of the width"),
    ("integers.py:_extremes", "frames: check of the width"),
    ("integers.py:extremes", "frames: check of the width"),
    ("coding/", "coder"),
    ("numerics/tensors.py", "check for NaN and Inf"),
    ("kernels.py:all_finite", "check for NaN and Inf"),
    ("steps.py", "mean, steps, position"),
    ("sum_kernels.py", "mean, steps, position"),
    ("meanwhile.py", "mean, steps, position"),
    ("position.py", "mean, steps, position"),
    ("integers.py:sum_of_squares", "mean, steps, position"),
    ("integers.py:_dot", "mean, steps, position"),
    ("quantiser", "quantise"),
    ("saturation.py", "quantise"),
    ("plans.py:_block_costs", "plan"),
    ("plans.py", "plan order and back"),
    ("collective/node.py", "add"),
    ("integers.py", "cluster: check of the sums"),
    ("reducers/local_wire.py", "cluster: check of the sums"),
    ("state.py", "rank: digest of the state"),
    ("transports/", "rank: transport"),
    ("reducers/party.py", "rank: transport"),
)
TABLE = Table(
    "who <8", "stage <28", "ns:ns/value >9.3f", "gbps:GB/s >8.1f", "share: share >7.1%",
)  # fmt: skip
Profile = dict[Any, Any]
Timed = tuple[float, dict[str, float]]  # seconds of a call, and of each stage of one that was profiled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--values", type=int, default=10_000_000, help="of a gradient")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--method", default="asc", help="a codec")
    parser.add_argument("--bits", type=int, default=8, help="of the quantiser")
    parser.add_argument("--rounding", default="nearest", help="nearest or stochastic")
    parser.add_argument("--feedback", action="store_true", help="with error feedback")
    parser.add_argument("--schedule", default="network", help="by name, as in a configuration")
    parser.add_argument("--plan", default="interleave", help="equal, splitter, interleave or snake")
    parser.add_argument("--turns", type=int, default=5, help="calls; the fastest counts")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Profile calls of a cluster and of rank 0 in a thread; print the table, and return it."""
    if min(args.turns, args.values, args.nodes) < 1:
        raise ValueError(
            f"expected 1 turn, value and node at least, got {args.turns}, {args.values}, {args.nodes}"
        )
    config = Config.model_validate(
        {
            "nodes": args.nodes,
            "method": args.method,
            "quantiser": {
                "bits": args.bits, "rounding": args.rounding, "error_feedback": args.feedback
            },
            "schedule": {"name": args.schedule},
            "plan": {"name": args.plan},
        }
    )  # fmt: skip
    random = np.random.default_rng(0)
    gradients = [[_normal(random, args.values)] for _ in range(args.nodes)]
    print(
        f"# {args.nodes} x {args.values:,} values, {args.method}, {args.bits} bits, {args.rounding}, "
        f"{args.schedule}, {args.plan}; fastest of {args.turns} calls; CPU time of one thread"
    )
    print(TABLE.heading)
    cluster = LocalCluster(config)
    for _ in range(WARM):
        cluster.allreduce(gradients)
    calls = [_both(lambda: cluster.allreduce(gradients)) for _ in range(args.turns)]
    rows = _rows("cluster", calls, args.values * args.nodes)
    rows += _rows("rank", _rank(config, gradients, args.turns), args.values)
    return {"options": {key: value for key, value in vars(args).items() if key != "json"}, "table": rows}


def _normal(random: np.random.Generator, values: int) -> np.ndarray:
    drawn = random.standard_normal(values, dtype=np.float32)
    drawn *= np.float32(SIGMA)
    return drawn


def _rank(config: Config, gradients: Sequence[Sequence[np.ndarray]], turns: int) -> list[Timed]:
    """Return what `_both` does for rank 0, while the other ranks run in threads beside it."""
    result: list[Timed] = []

    def work(rank: int, transport: Any) -> None:
        communicator = Communicator(config, transport)
        for _ in range(WARM):
            communicator.allreduce(gradients[rank])
        for _ in range(turns):
            timed = _both(lambda: communicator.allreduce(gradients[rank]), profiled=rank == 0)
            if rank == 0:
                result.append(timed)

    transports = local_transports(config.nodes)
    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(transports)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return result


def _both(call: Callable[[], Any], *, profiled: bool = True) -> Timed:
    """Return the seconds of a call, and of each stage of another; profiled: whether that one is."""
    began = time.thread_time()
    call()
    seconds, profile = time.thread_time() - began, cProfile.Profile(time.thread_time)
    if not profiled:
        call()
        return seconds, {}
    profile.enable()
    try:
        call()
    finally:
        profile.disable()
    return seconds, stages_of(pstats.Stats(profile).stats)  # type: ignore[attr-defined]


def stages_of(profile: Profile) -> dict[str, float]:
    """Return the seconds of each stage from pstats' table; together they are the call."""
    known: dict[Any, dict[str, float]] = {}

    def shares(function: Any) -> dict[str, float]:
        """Return what part of a function's own time each stage has: all is its own, or its callers'."""
        if function not in known:
            known[function] = {REST: 1.0}  # for one that calls itself
            file, _, name = function
            if file.startswith(HOUSE) or CRC in name:
                known[function] = {_stage(f"{file.removeprefix(HOUSE)}:{name}".replace(os.sep, "/")): 1.0}
            elif weights := {caller: entry[3] for caller, entry in profile[function][4].items() if entry[3]}:
                whole, result = sum(weights.values()), defaultdict[str, float](float)
                for caller, weight in weights.items():
                    for stage, share in shares(caller).items():
                        result[stage] += share * weight / whole
                known[function] = result
        return known[function]

    seconds: dict[str, float] = defaultdict(float)
    for function, (_, _, own, _, _) in profile.items():
        for stage, share in shares(function).items():
            seconds[stage] += own * share
    return dict(seconds)


def _stage(place: str) -> str:
    return next((stage for part, stage in STAGES if part in place), REST)


def _rows(who: str, calls: Sequence[Timed], values: int) -> list[Row]:
    seconds = min((stages for _, stages in calls), key=lambda stages: sum(stages.values()))
    whole, plain = sum(seconds.values()), min(took for took, _ in calls)
    rows: list[Row] = []
    ends = [("whole call", whole), ("the same without profile", plain)]
    for stage, took in [*sorted(seconds.items(), key=lambda item: -item[1]), *ends]:
        ns = 1e9 * took / values
        row = {"who": who, "stage": stage, "ns": ns, "gbps": 4 / ns if ns else None, "share": took / whole}
        print(TABLE.line(row), flush=True)
        rows.append(row)
    return rows
