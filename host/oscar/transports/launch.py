"""Start ranks as processes of this machine, by mpirun or as torchrun would, and see how all of them end.

With a network of the lab each rank is on a host of its own, and mpirun on one more.
"""

from __future__ import annotations

import contextlib
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
from oscar.lab.network import DEVICE, PREFIX, Network, address

ORPHAN_S = 20.0  # how long a launcher's kill may take to reach a stopped process on a busy machine
READ_BYTES = 1 << 16
PORT = 29577  # of rank 0, where it has a host of its own
AGENT = f"""#!/bin/sh
# What mpirun takes for ssh: HOST COMMAND. A host's number is the last one of its address, less one.
host=$((${{1##*.}} - 1))
shift
exec ip netns exec {PREFIX}$host unshare --uts sh -c "hostname host-$host; $*"
"""
RETRIES = "5"  # of a TCP segment: a connection across a cut ends 13 s after something was sent on it
KEEPALIVE = {"time": "2", "intvl": "2", "probes": "3"}  # seconds, seconds, pings of mpirun's own connections
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
    network: Network | None = None,
) -> Ended:
    """Run `python PROGRAM` as `ranks` ranks and return how they ended, after `limit_s` at most.

    program: what follows `python`, a script or -m and a module, and arguments; token: one of them, by which
    orphans are found; hear: is given what ranks write, as they go on. With Gloo, ranks that are stopped when
    all others have ended are killed, as torchrun does, and this does not count as hanging. Whatever is raised
    meanwhile (Ctrl-C) ends all ranks.
    network: of one host more than there are ranks; rank r is started on host r. All processes that stay
    behind on its hosts are orphans.
    """
    if network is not None and network.hosts <= ranks:
        raise ValueError(f"expected a network of {ranks + 1} hosts for {ranks} ranks, got {network.hosts}")
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(prefix="oscar-launch-") as folder:
        if transport == "mpi":
            processes = _mpi(ranks, program, output, network, Path(folder))
        else:
            processes = _gloo(ranks, program, output, network)
        try:
            hung = not _await(processes, time.monotonic() + limit_s, _Reader(output, hear))
        except BaseException:
            _kill(processes)
            raise
        statuses = tuple(process.wait() for process in processes)
        orphans = _orphans(token, network)
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


def _mpi(
    ranks: int, program: Sequence[str], output: IO[bytes], network: Network | None, folder: Path
) -> list[subprocess.Popen[bytes]]:
    command = [mpirun(), "-n", str(ranks), "--bind-to", "none", "--with-ft", "ulfm"]
    command += ["--oversubscribe"] if network is None else _across(network, ranks, folder)
    command += [sys.executable, "-m", "mpi4py", *program]
    return [_start(command if network is None else network.command(ranks, command), {}, output)]


def _across(network: Network, ranks: int, folder: Path) -> list[str]:
    """Return mpirun's options for a rank on each host, reached over the network alone."""
    agent, hosts = folder / "agent", folder / "hosts"
    agent.write_text(AGENT, encoding="ascii")
    agent.chmod(0o700)
    hosts.write_text("".join(f"{address(host)} slots=1\n" for host in range(ranks)), encoding="ascii")
    for host in range(network.hosts):
        network.tune(host, "net/ipv4/tcp_retries2", RETRIES)
    launcher = {
        "plm_ssh_agent": str(agent),
        "plm_ssh_no_tree_spawn": "1",
        "oob_tcp_if_include": DEVICE,
        **{f"oob_tcp_keepalive_{name}": value for name, value in KEEPALIVE.items()},
    }
    library = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": DEVICE}
    words = ["--hostfile", str(hosts), "--map-by", "node"]
    words += [word for name, value in launcher.items() for word in ("--prtemca", name, value)]
    return words + [word for name, value in library.items() for word in ("--mca", name, value)]


def _gloo(
    ranks: int, program: Sequence[str], output: IO[bytes], network: Network | None
) -> list[subprocess.Popen[bytes]]:
    command = [sys.executable, *program]
    if network is not None:
        where = {"MASTER_ADDR": address(0), "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": DEVICE}
        where["WORLD_SIZE"] = str(ranks)
        commands = [network.command(rank, command) for rank in range(ranks)]
        return [_start(words, {**where, "RANK": str(rank)}, output) for rank, words in enumerate(commands)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
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


def _orphans(token: str, network: Network | None) -> int:
    """Count, and end, processes with `token` among their arguments or on a host that had time to end."""
    stop = time.monotonic() + ORPHAN_S
    while left := _left(token, network):
        if time.monotonic() > stop:
            break
        time.sleep(0.1)
    for pid in left:  # with ULFM, mpirun may leave a rank that computes without end
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _left(token: str, network: Network | None) -> set[int]:
    named = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, token)}
    return named if network is None else named | network.pids()


def _has(path: Path, token: str) -> bool:
    if path.parent.name == str(os.getpid()):
        return False
    try:
        return token.encode() in path.read_bytes().split(b"\0")
    except OSError:
        return False
