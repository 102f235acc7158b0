"""One rank of `oscar trial flips` between processes: case after case over a new transport each time."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oscar.transports.registry import TRANSPORTS
from oscar_lab.trials._flips import PLAYS, RANKS, Tap, outcome, undisturbed
from oscar_lab.trials._ranks import enter


def main() -> None:
    """Run the cases that the first argument (JSON) describes and write what this rank did in each."""
    task, first = enter()  # this transport starts the library; each case has its own
    with ThreadPoolExecutor(RANKS) as pool:
        for name in task["plays"]:
            undisturbed(pool, PLAYS[name], "threads")  # loads all kernels
    rank, dice = first.rank, random.Random(task["seed"])
    calm: dict[str, Any] = {}
    lines = []
    for _ in range(task["cases"]):
        name, victim, bit = dice.choice(task["plays"]), dice.randrange(RANKS), dice.randrange(8)
        message, byte = dice.random(), dice.random()
        if name not in calm:
            calm[name] = _play(task, name, None)
        did, messages = calm[name]
        case = at = None
        if rank == victim and messages:  # a late rank sends no sign of life
            number = int(message * len(messages))
            at = number, int(byte * messages[number][1]), bit
            case = name, rank, messages[number][0], at
        came, _ = _play(task, name, at)
        lines.append({"case": case, "calm": did, "came": came})
    Path(task["folder"], f"{rank}.json").write_text(json.dumps(lines), encoding="utf-8")
    _together(task["transport"])
    first.close()


def _play(task: dict[str, Any], name: str, at: tuple[int, int, int] | None) -> tuple[Any, list[Any]]:
    """Run a play; return what this rank did and its messages. No rank closes before all are done."""
    transport = TRANSPORTS[task["transport"]]()
    tap = Tap(transport, control=PLAYS[name].control, at=at)
    tap.listen(transport)
    did = outcome(PLAYS[name], transport)
    _together(task["transport"])
    transport.close()
    return did, tap.messages


def _together(transport: str) -> None:
    """Wait for all ranks, by the library itself."""
    if transport == "mpi":
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()
    else:
        from torch import distributed

        distributed.barrier()


if __name__ == "__main__":
    main()
