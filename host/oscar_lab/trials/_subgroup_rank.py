"""One rank of a job whose ranks reduce in sub-groups: started by subgroups, which reads its lines."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar_lab.trials._ranks import laplace, say

VALUES, CALLS = 3000, 2
TIMEOUT_S = 20.0  # of a peer; some ranks come late
LATE_S = 0.02  # at most, to the making of a group
Reduce = Callable[[int, list[int], int], list[np.ndarray]]  # layout, members, round -> means


def gradient(rank: int, turn: int, call: int) -> np.ndarray:
    """Return what global `rank` gives to a call of a round."""
    return laplace([rank, turn, call], [(VALUES,)])[0]


class OverTcp:
    """Groups of torch.distributed, made by all ranks as it asks for, once for each layout."""

    def __init__(self, layouts: list[list[list[int]]], kind: str) -> None:
        from torch import distributed

        distributed.init_process_group("gloo")
        self.rank, self.kind = distributed.get_rank(), kind
        self.groups = {tuple(ranks): distributed.new_group(ranks) for each in layouts for ranks in each}

    def means(self, members: list[int], turn: int) -> list[np.ndarray]:
        """Return the mean of each call of a round over `members`."""
        from oscar.transports.tcp import TcpTransport

        group = self.groups[tuple(members)]
        if self.kind == "state":
            return hooked(group, self.rank, turn)
        return reduced(TcpTransport(group), self.rank, turn)


class OverMpi:
    """Communicators of MPI, made by their members alone."""

    def __init__(self) -> None:
        from oscar.transports.mpi import load_mpi

        self.world = load_mpi().COMM_WORLD
        self.rank = self.world.Get_rank()

    def means(self, members: list[int], turn: int) -> list[np.ndarray]:
        """Return the mean of each call of a round over `members`."""
        from oscar.transports.mpi import MpiTransport

        return reduced(
            MpiTransport(self.world.Create_group(self.world.Get_group().Incl(members))), self.rank, turn
        )


def reduced(transport: Any, rank: int, turn: int) -> list[np.ndarray]:
    """Reduce with a Communicator of its own."""
    try:
        communicator = Communicator(Config(), transport, timeout_s=TIMEOUT_S)
        return [communicator.allreduce([gradient(rank, turn, call)]).mean[0] for call in range(CALLS)]
    finally:
        transport.close()


def hooked(group: Any, rank: int, turn: int) -> list[np.ndarray]:
    """Reduce by DDP's hook, in a model whose gradients are those given."""
    import torch

    from oscar.adapters.torch import OscarState, oscar_hook

    class Given(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(VALUES))

        def forward(self, values: Any) -> Any:
            return (self.weight * values).sum()

    with OscarState(
        Config.model_validate({"transport": {"timeout_s": TIMEOUT_S}}), group, bypass="never"
    ) as state:
        model = torch.nn.parallel.DistributedDataParallel(Given(), process_group=group)
        model.register_comm_hook(state, oscar_hook)
        means = []
        for call in [0, *range(CALLS)]:  # the first backward goes uncompressed
            model.zero_grad()
            model(torch.from_numpy(gradient(rank, turn, call))).backward()
            means.append(model.module.weight.grad.numpy().copy())
        return means[1:]


def expected(members: list[int], turn: int) -> list[np.ndarray]:
    """Return what `means` must be, bit for bit."""
    cluster = LocalCluster(Config())
    return [
        cluster.allreduce([[gradient(rank, turn, call)] for rank in members]).mean[0] for call in range(CALLS)
    ]


def main() -> None:
    """Do what the first argument (JSON) says and say for each round what came of it."""
    case: dict[str, Any] = json.loads(sys.argv[1])
    layouts = case["layouts"]
    job = OverTcp(layouts, case["kind"]) if case["transport"] == "tcp" else OverMpi()
    dice = random.Random(f"{case['seed']} {job.rank}")
    for at in range(case["rounds"] * len(layouts)):
        turn, layout = divmod(at, len(layouts))
        members = next((ranks for ranks in layouts[layout] if job.rank in ranks), None)
        if members is None:
            continue
        time.sleep(dice.uniform(0, LATE_S))
        try:
            came = job.means(members, turn)
        except (OscarError, RuntimeError) as error:
            verdict = f"{type(error).__name__}: {error}"
        else:
            due = expected(members, turn)
            equal = [one.tobytes() == two.tobytes() for one, two in zip(came, due, strict=True)]
            verdict = "right" if all(equal) else "wrong"
        say({"rank": job.rank, "round": turn, "layout": layout, "verdict": verdict}, case["said"])


if __name__ == "__main__":
    main()
