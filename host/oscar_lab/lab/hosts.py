"""One process on each host, which takes commands as lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from oscar.errors import OscarError
from oscar.transports.keyed import KEY_BYTES, KEY_VARIABLE
from oscar_lab.lab.hold import undisturbed
from oscar_lab.lab.launch import environment, on_host
from oscar_lab.lab.network import HostNetwork

START_S = 400.0  # imports and compiled kernels, on a busy machine
ANSWER_S = 600.0
TAIL = 600  # last characters of a dead rank's output that an error quotes


class Hosts:
    """The ranks of a case: `with Hosts(network, setups) as hosts: hosts.ask("ping")`.

    setups: by rank, for oscar_lab.lab.rank. Raises OscarError, which quotes a rank that died.
    """

    def __init__(self, network: HostNetwork, setups: Sequence[dict[str, Any]], *, pin: bool = False) -> None:
        self.network, self.setups, self.pin = network, setups, pin
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[str]] = []
        self._said: list[Any] = []
        self._late = ""  # the command that was not answered in time
        self._key = os.environ.get(KEY_VARIABLE) or os.urandom(KEY_BYTES).hex()  # for methods with security

    def __enter__(self) -> Hosts:
        try:
            for host, setup in enumerate(self.setups):
                self._start(host, setup)
            self._answers("start", START_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with undisturbed():
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.wait()
                for stream in (process.stdin, process.stdout):
                    with contextlib.suppress(OSError):  # the process died before it read everything
                        _pipe(stream).close()
            self._stack.close()

    def _start(self, host: int, setup: dict[str, Any]) -> None:
        said = self._stack.enter_context(tempfile.TemporaryFile(mode="w+", errors="replace"))  # noqa: SIM115
        words = [sys.executable, "-m", "oscar_lab.lab.rank", json.dumps(setup)]
        process = subprocess.Popen(
            self.network.command(host, words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environment({**on_host(host, len(self.setups)), KEY_VARIABLE: self._key}),
        )
        self._said.append(said)
        self._processes.append(process)
        if self.pin:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(process.pid, {cores[host % len(cores)]})

    def ask(self, do: str, **what: Any) -> list[dict[str, Any]]:
        """Give all ranks one command and return their answers, by rank."""
        line = json.dumps({"do": do, **what}) + "\n"
        for rank, process in enumerate(self._processes):
            try:
                _pipe(process.stdin).write(line)
                _pipe(process.stdin).flush()
            except OSError:
                self._died(rank)
        return self._answers(do, ANSWER_S)

    def _answers(self, do: str, limit_s: float) -> list[dict[str, Any]]:
        """Return a line of each rank. After `limit_s` all are killed, and the first late rank is named."""
        timer = threading.Timer(limit_s, self._kill, [f"{do!r} within {limit_s:g} s"])
        timer.start()
        try:
            return [json.loads(self._line(rank)) for rank in range(len(self._processes))]
        finally:
            timer.cancel()

    def _line(self, rank: int) -> str:
        line = _pipe(self._processes[rank].stdout).readline()
        return line or self._died(rank)

    def _kill(self, what: str) -> None:
        self._late = what
        for process in self._processes:
            process.kill()

    def _died(self, rank: int) -> NoReturn:
        """Raise OscarError with the end of what `rank` printed, or else any rank."""
        if self._late:
            raise OscarError(
                f"rank {rank} of the lab did not answer {self._late}; all were ended. Is the machine busy?"
            )
        texts = []
        for said in self._said:
            said.seek(0)
            texts.append(" ".join(said.read().split())[-TAIL:])
        reason = next((text for text in (texts[rank], *texts) if text), "it said nothing, or nothing in time")
        raise OscarError(f"rank {rank} of the lab ended: {reason}")


def _pipe(stream: Any) -> Any:
    """Return a pipe that was asked for."""
    if stream is None:
        raise OscarError("expected a process with pipes")
    return stream


def write_gradients(gradients: Sequence[Sequence[Any]], folder: Path) -> list[Path]:
    """Write [rank][iteration] flat float32 as one array a rank; return their paths."""
    paths = []
    for rank, mine in enumerate(gradients):
        paths.append(folder / f"gradients-{rank}.npy")
        np.save(paths[-1], np.stack(list(mine)))
    return paths
