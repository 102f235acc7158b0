"""Ranks of torch.distributed as processes of a test, and what a hook gets and logs there."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LIMIT_S = 240


class Bucket:
    """What DDP hands to a hook: of given tensors, or of one sparse gradient."""

    def __init__(self, tensors: Any, parameters: list[Any], index: int = 0, last: bool = True):
        from torch import from_numpy

        self.shapes: list[tuple[int, ...]] = []  # of a sparse gradient DDP tells none
        if isinstance(tensors, list):
            self.shapes = [t.shape for t in tensors]
            tensors = from_numpy(np.concatenate([tensor.ravel() for tensor in tensors]))
        self.flat, self.at, self.last, self.owned = tensors, index, last, parameters

    def buffer(self) -> Any:
        return self.flat

    def gradients(self) -> list[Any]:
        return [self.flat.new_empty(shape) for shape in self.shapes]

    def parameters(self) -> list[Any]:
        return self.owned

    def index(self) -> int:
        return self.at

    def is_last(self) -> bool:
        return self.last


class Lines(logging.Handler):
    """What is logged, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def start(script: str, what: str, folder: Path, statuses: list[int]) -> None:
    """Run `script what folder` on as many ranks as there are statuses, which they must end with."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(statuses))}
    processes = []
    for rank in range(len(statuses)):
        environment = {**os.environ, **where, "RANK": str(rank), "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)  # this file imports its neighbours
        with open(folder / f"{rank}.log", "wb") as log:
            command = [sys.executable, script, what, str(folder)]
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    stop = time.monotonic() + LIMIT_S
    try:
        for process in processes:
            process.wait(max(0.0, stop - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = "\n".join((folder / f"{rank}.log").read_text() for rank in range(len(statuses)))
    assert [process.returncode for process in processes] == statuses, said
