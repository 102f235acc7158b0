"""What trials between processes share: starting ranks with a case, their lines of JSON, their end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from oscar.config import Config
from oscar.errors import PeerError
from oscar.transports.base import PEER_FAILED, Transport
from oscar.transports.registry import TRANSPORTS
from oscar_lab.lab.launch import Ended, launch
from oscar_lab.lab.network import HostNetwork

START_S = 120.0  # to start processes on a busy machine
LINGER_S = 0.5  # for the other ranks to report: mpirun ends them at the first status that is not 0


def config_of(codec: str = "asc", schedule: str = "ring", *, subframes: int = 2, **more: Any) -> Config:
    """Return a configuration with error feedback and two sub-frames, so that it has all kinds of state."""
    how = {"name": schedule, "subframes": subframes}
    kept = {"method": codec, "schedule": how, "plan": {"name": "splitter"}}
    return Config.model_validate(kept | {"quantiser": {"error_feedback": True}} | more)


def laplace(seed: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return a gradient [tensor], float32, the same for the same seed."""
    random = np.random.default_rng(list(seed))
    return [np.asarray(random.laplace(0, 0.02, shape), np.float32) for shape in shapes]


def start(
    module: str,
    case: dict[str, Any],
    ranks: int,
    *,
    limit_s: float,
    hear: Callable[[bytes], None] | None = None,
    network: HostNetwork | None = None,
) -> Ended:
    """Run `ranks` ranks of a module of this package over the case's transport; return how they ended."""
    token = f"oscar-{time.monotonic_ns()}"
    program = ["-m", f"oscar_lab.trials.{module}", json.dumps(case), token]
    how: dict[str, Any] = {"limit_s": START_S + limit_s, "token": token, "hear": hear, "network": network}
    return launch(case["transport"], ranks, program, **how)


def enter() -> tuple[dict[str, Any], Transport]:
    """Return the case that this rank was started with, and its transport."""
    case: dict[str, Any] = json.loads(sys.argv[1])
    return case, TRANSPORTS[case["transport"]]()


def say(line: dict[str, Any], file: str | None = None) -> None:
    """Write a line of JSON to standard output, or to a file where standard output may not arrive."""
    text = "\n" + json.dumps(line) + "\n"
    if file is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        with Path(file).open("a", encoding="utf-8") as said:
            said.write(text)


def lines_of(output: str) -> list[dict[str, Any]]:
    """Return the JSON lines in all that ranks wrote."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]


def leave(transport: Transport, error: BaseException) -> NoReturn:
    """End this process with the status for `error`, after time for the other ranks to report."""
    time.sleep(LINGER_S)
    transport.leave(PEER_FAILED if isinstance(error, PeerError) else 1)
