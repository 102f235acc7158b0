"""A process that reduces and then ends without giving anything back: started, or forked, by endings."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.base import Transport
from oscar_lab.trials._ranks import say

VALUES, CALLS = 2000, 2
LATE_S = 0.05  # at most, between two ranks' ends
KEPT: list[Any] = []  # what lives until the interpreter ends


def reduce(what: str, job: int, seed: str) -> None:
    """Make a rank of `what`, reduce, and leave all of it behind; ranks end a little apart.

    In turn all is kept, nothing holds it any more, or the user has ended torch.distributed.
    """
    ending = ("kept", "dropped", "destroyed")[job % 3]
    if what == "mpi communicator":
        from oscar.transports.mpi import MpiTransport, load_mpi

        rank = load_mpi().COMM_WORLD.Get_rank()
        KEPT.append(communicated(MpiTransport()))
    else:
        from torch import distributed

        from oscar.transports.tcp import TcpTransport

        distributed.init_process_group("gloo")
        rank = distributed.get_rank()
        KEPT.append(hooked() if what == "tcp state" else communicated(TcpTransport()))
        if ending == "destroyed":
            distributed.destroy_process_group()
    if ending == "dropped":
        KEPT.clear()
    time.sleep(random.Random(f"{seed} {rank}").uniform(0, LATE_S))


def communicated(transport: Transport) -> Communicator:
    """Return a communicator that has reduced."""
    communicator = Communicator(Config(), transport, timeout_s=60)
    for _ in range(CALLS):
        communicator.allreduce([np.ones(VALUES, np.float32)])
    return communicator


def hooked() -> Any:
    """Return a state of DDP's hook, and its model, that have been through some backwards."""
    import torch

    from oscar.adapters.torch import OscarState, oscar_hook

    state = OscarState(bypass="never")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(VALUES, 1))
    model.register_comm_hook(state, oscar_hook)
    for _ in range(CALLS + 1):  # the first backward goes uncompressed
        model(torch.ones(1, VALUES)).sum().backward()
    return state, model


def fork(case: dict[str, Any]) -> bool:
    """Fork the ranks of case["jobs"] jobs, one job after the other, and say how they ended.

    Packages and kernels are loaded before, once, so that a job takes a fraction of a second. Returns True in
    a child, which has then reduced and ends as any program does.
    """
    import oscar.adapters.torch  # noqa: F401 - for all children

    LocalCluster(Config()).allreduce([[np.ones(VALUES, np.float32)]] * 2)
    for job in range(case["jobs"]):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            where = {"MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(case["ranks"])}
        children = []
        for rank in range(case["ranks"]):
            child = os.fork()
            if not child:
                os.environ.update(where, RANK=str(rank))
                reduce(case["what"], job, f"{case['seed']} {job}")
                return True
            children.append(child)
        ends = [os.waitpid(child, 0)[1] for child in children]
        say({"statuses": [os.waitstatus_to_exitcode(end) for end in ends]}, case["said"])
    return False


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[1])
    if given["transport"] == "tcp":
        fork(given)
    else:
        reduce(given["what"], given["job"], f"{given['seed']} {given['job']}")
