"""A rank of `oscar bench small_call`: calls of few values in turns with Gloo's."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from oscar.config import Config
from oscar.files import write_json
from oscar.reducers.communicator import Communicator
from oscar.transports.tcp import TcpTransport

WARM = 20  # calls that compile, and agree on steps
SIGMA = 0.01  # of the gradients


def main() -> None:
    """Time calls of few values on one rank as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", required=True)
    parser.add_argument("--schedule", required=True)
    parser.add_argument("--group", type=int)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--values", type=int, nargs="+", required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    schedule = {"name": args.schedule, "group": args.group}
    config = Config.model_validate(
        {"nodes": distributed.get_world_size(), "method": args.method, "schedule": schedule}
    )
    table = []
    with Communicator(config, TcpTransport()) as communicator:
        for values in args.values:
            drawn = np.random.default_rng(rank).normal(0, SIGMA, values).astype(np.float32)
            table.append({"values": values, **measure(communicator, drawn, args.turns)})
            communicator.reset()
        distributed.barrier()
    if rank == 0:
        write_json(args.json, {"table": table})
    distributed.destroy_process_group()


def measure(communicator: Communicator, gradient: np.ndarray, turns: int) -> dict[str, Any]:
    """Return the times of calls and of Gloo's AllReduces, in turns; collective."""
    plain = torch.from_numpy(gradient.copy())

    def ours() -> None:
        communicator.allreduce([gradient])

    def gloo() -> None:
        distributed.all_reduce(plain)
        plain.mul_(1 / communicator.nodes)

    for _ in range(WARM):
        ours()
        gloo()
    times = [(_timed(ours), _timed(gloo)) for _ in range(turns)]
    begin = time.process_time()
    for _ in range(turns):
        ours()
    cpu_ms = 1e3 * (time.process_time() - begin) / turns
    (call_ms, fastest_ms), (gloo_ms, gloo_fastest_ms) = (
        (1e3 * statistics.median(each), 1e3 * min(each)) for each in zip(*times, strict=True)
    )
    return {
        "call_ms": call_ms,
        "fastest_ms": fastest_ms,
        "cpu_ms": cpu_ms,
        "gloo_ms": gloo_ms,
        "gloo_fastest_ms": gloo_fastest_ms,
        "times": call_ms / gloo_ms,
    }


def _timed(call: Callable[[], None]) -> float:
    distributed.barrier()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
