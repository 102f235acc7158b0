"""Start ranks as processes of this machine, by mpirun or as torchrun would, and see how all of them end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from oscar.errors import MissingExtraError

ORPHAN_S = 20.0  # how long a launcher's kill may take to reach a stopped process on a busy machine
READ_BYTES = 1 << 16
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@dataclass(frozen=True)
class Ended:
    """How ranks ended: the launcher's status (Gloo: the largest), a status per rank where there is one each
    (Gloo), all they wrote, whether they had to be killed, and processes that stayed behind."""

    status: int
    statuses: tuple[int, ...]
    output: str
    hung: bool
    orphans: int


def launch(
    transport: str,
    ranks: int,
    program: Sequence[str],
    *,
    limit_s: float,
    token: str,
    hear: Callable[[bytes], None] | None = None,
) -> Ended:
    """Run `python PROGRAM` as `ranks` ranks and return how they ended, after `limit_s` at most.

    program: what follows `python`, a script or -m and a module, and arguments; token: one of them, by which
    orphans are found; hear: is given what ranks write, as they go on. With Gloo, ranks that are stopped when
    all others have ended are killed, as torchrun does, and this does not count as hanging. Whatever is raised
    meanwhile (Ctrl-C) ends all ranks.
    """
    with tempfile.TemporaryFile() as output:
        start = {"mpi": _mpi, "gloo": _gloo}[transport]
        processes = start(ranks, program, output)
        try:
            hung = not _await(processes, time.monotonic() + limit_s, _Reader(output, hear))
        except BaseException:
            _kill(processes)
            raise
        statuses = tuple(process.wait() for process in processes)
        orphans = _orphans(token)
        output.seek(0)
        text = output.read().decode(errors="replace")
    plain = [status if status >= 0 else 128 - status for status in statuses]
    return Ended(max(plain), statuses, text, hung, orphans)


def mpirun() -> str:
    """Return the launcher of this environment's MPI, or of the PATH; raises MissingExtraError without one."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise MissingExtraError('mpirun not found: pip install "oscar-allreduce[mpi]", or load an MPI')
    return found


def _mpi(ranks: int, program: Sequence[str], output: IO[bytes]) -> list[subprocess.Popen[bytes]]:
    command = [mpirun(), "-n", str(ranks), "--oversubscribe", "--bind-to", "none", "--with-ft", "ulfm"]
    command += [sys.executable, "-m", "mpi4py", *program]
    return [_start(command, {}, output)]


def _gloo(ranks: int, program: Sequence[str], output: IO[bytes]) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    command = [sys.executable, *program]
    return [_start(command, {**where, "RANK": str(rank)}, output) for rank in range(ranks)]


def _start(command: list[str], extra: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **ENVIRONMENT, **extra}
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=output,
        stdin=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # so that it can be killed with what it started
    )


class _Reader:
    """Hands on what has come to a file since the last `read`, without moving the writers' place in it."""

    def __init__(self, file: IO[bytes], hear: Callable[[bytes], None] | None) -> None:
        self.file, self.hear, self.at = file, hear, 0

    def read(self) -> None:
        while self.hear is not None and (fresh := os.pread(self.file.fileno(), READ_BYTES, self.at)):
            self.at += len(fresh)
            self.hear(fresh)


def _await(processes: list[subprocess.Popen[bytes]], limit: float, reader: _Reader) -> bool:
    """Wait until all have ended; kill what is left at the limit, or stopped when all others have ended."""
    while time.monotonic() < limit:
        reader.read()
        left = [process for process in processes if process.poll() is None]
        if all(_stopped(process.pid) for process in left):
            for process in left:
                os.killpg(process.pid, signal.SIGKILL)
            return True
        time.sleep(0.05)
    _kill(processes)
    return False


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def _orphans(token: str) -> int:
    """Count processes with `token` among their arguments, once they have had time to end."""
    stop = time.monotonic() + ORPHAN_S
    while (left := sum(_has(path, token) for path in Path("/proc").glob("[0-9]*/cmdline"))) > 0:
        if time.monotonic() > stop:
            break
        time.sleep(0.1)
    return left


def _has(path: Path, token: str) -> bool:
    if path.parent.name == str(os.getpid()):
        return False
    try:
        return token.encode() in path.read_bytes().split(b"\0")
    except OSError:
        return False
