"""OscarTasks in four processes: one is slow, one is killed; the others train on as one process would."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscar import Config
from oscar.checkpoint import digest
from oscar.errors import CautionWarning, ConfigError
from oscar.reducers.cluster import LocalCluster

pytest.importorskip("torch")

from support.torch_ranks import start

RANKS, TASKS, STEPS = 4, 12, 9
SLOW, UNTIL = 3, 3  # a rank that computes nothing before the others have ended this step
KILLED, AT = 1, 6  # a rank that dies in this step
SAVED = 4  # steps after which the state is saved and loaded again


def model() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 2))


def backward(module: Any, step: int, task: int) -> None:
    import torch

    draw = np.random.default_rng([step, task])
    inputs = torch.from_numpy(draw.normal(size=(5, 6)).astype("f4"))
    module(inputs).square().mean().backward()


def weights(module: Any) -> str:
    return digest([each.detach().numpy() for each in module.parameters()])


def apply(module: Any) -> None:
    import torch

    with torch.no_grad():
        for each in module.parameters():
            each -= 0.1 * each.grad


def main(folder: Path) -> None:
    """One rank: train, and write digests of the weights after each step."""
    import torch

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = train(rank, folder)
    told = [str(each.message) for each in caught if issubclass(each.category, CautionWarning)]
    (folder / f"{rank}.json").write_text(json.dumps({**result, "told": told}))


def train(rank: int, folder: Path) -> dict[str, Any]:
    import torch
    from torch import distributed as dist

    from oscar.torch_ddp import OscarState, OscarTasks

    dist.init_process_group("gloo")
    result: dict[str, Any] = {"weights": [], "refused": []}
    module = model()
    redundant = Config(nodes=RANKS, schedule={"name": "redundant", "copies": 2})
    for make in (
        lambda: OscarState(redundant),
        lambda: OscarTasks(module, Config(nodes=RANKS)),
        lambda: OscarTasks(torch.nn.parallel.DistributedDataParallel(model())),
    ):
        with pytest.raises((ConfigError, TypeError)) as refused:
            make()
        result["refused"].append(str(refused.value))
    tasks, entered, gate = OscarTasks(module), folder / "entered", folder / "gate"
    for step in range(STEPS):
        if step == SAVED:
            state = tasks.state_dict()
            tasks.close()
            tasks = OscarTasks(module, redundant)
            tasks.load_state_dict(state)

        def run(task: int, step: int = step) -> None:
            if rank == KILLED and step == AT:
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == SLOW and step == 1:
                entered.touch()
                await_file(gate)
            elif step == 1:
                await_file(entered)
            backward(module, step, task)

        tasks.backward(run)
        apply(module)
        result["weights"].append(weights(module))
        if rank == 0 and step == UNTIL:
            gate.touch()
    tasks.close()
    return result


def await_file(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def test_a_slow_and_a_killed_process_hold_nobody_up_and_change_no_bit(tmp_path: Path) -> None:
    start(__file__, "run", tmp_path, [0, -signal.SIGKILL, 0, 0])
    cluster, module, expected = LocalCluster(Config(nodes=TASKS)), model(), []
    for step in range(STEPS):
        gradients = []
        for task in range(TASKS):
            module.zero_grad()
            backward(module, step, task)
            gradients.append([each.grad.numpy().copy() for each in module.parameters()])
        mean = cluster.allreduce(gradients).mean
        import torch

        for each, value in zip(module.parameters(), mean, strict=True):
            each.grad = torch.from_numpy(value)
        apply(module)
        expected.append(weights(module))
    for rank in (0, 2, 3):
        result = json.loads((tmp_path / f"{rank}.json").read_text())
        assert result["weights"] == expected
        assert result["told"] == [f"rank {rank}: rank {KILLED} died; the others compute its tasks"]
        hook, schedule, wrapped = result["refused"]
        assert "take oscar.torch_ddp.OscarTasks" in hook
        assert "expected the schedule redundant" in schedule
        assert "give its `module`" in wrapped


if __name__ == "__main__":
    main(Path(sys.argv[2]))
