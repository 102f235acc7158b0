"""Start ranks as processes of this machine, by mpirun or as torchrun does, and report how they end.

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
from typing import IO, Literal

from oscar.errors import MissingExtraError
from oscar.transports.mpi import INSTALL
from oscar_lab.lab.network import DEVICE, PREFIX, HostNetwork, address

ORPHAN_S = 20.0  # how long a launcher's kill may take to reach a stopped process on a busy machine
LOOK_S = 1.0  # between two looks for ranks
LONE_S = 10.0  # how long mpirun may take to end after the last rank
LONE_AFAR_S = 40.0  # the same between hosts, where it waits for connections that are cut (see RETRIES)
READ_BYTES = 1 << 16
PORT = 29577  # of rank 0, where it has a host of its own
AGENT = f"""#!/bin/sh
# mpirun runs this in place of ssh: HOST COMMAND. A host's number is the last one of its address, less one.
host=$((${{1##*.}} - 1))
shift
exec ip netns exec {PREFIX}$host unshare --uts sh -c "hostname host-$host; $*"
"""
RETRIES = "5"  # of a TCP segment: a connection across a cut ends 13 s after something was sent on it
KEEPALIVE = {"time": "2", "intvl": "2", "probes": "3"}  # seconds, seconds, pings of mpirun's own connections
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")
UNBUFFERED = "PYTHONUNBUFFERED"  # with it a line and its end are written apart, and lines of ranks mix
ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
Command = tuple[list[str], dict[str, str]]  # words, and additions to the environment


@dataclass(frozen=True)
class Ended:
    """How ranks ended.

    status: the launcher's (TCP: the largest); statuses: one per rank (TCP), or the launcher's; output: all
    that ranks wrote; hung: ranks had to be killed; orphans: processes that stayed behind; launcher_hung:
    mpirun alone had to be killed, because it went on after its ranks.
    """

    status: int
    statuses: tuple[int, ...]
    output: str
    hung: bool
    orphans: int
    launcher_hung: bool = False


def launch(
    transport: str,
    ranks: int,
    program: Sequence[str],
    *,
    limit_s: float,
    token: str,
    hear: Callable[[bytes], None] | None = None,
    network: HostNetwork | None = None,
    grace_s: float | None = None,
) -> Ended:
    """Run `python PROGRAM` as `ranks` ranks and return how they ended, after `limit_s` at most.

    program: a script, or -m and a module, and arguments. token: one of these arguments, by which orphans are
    found. hear: called with what ranks write, while they run. network: rank r is started on its host r, and
    mpirun on one more; all processes that stay behind on its hosts are orphans. grace_s: once a rank has
    failed, the others are killed after this time (TCP).

    With TCP, ranks that are stopped when all others have ended are killed, as torchrun does; this does not
    count as hanging. An mpirun that goes on after its ranks is killed. An exception meanwhile (Ctrl-C) ends
    all processes.
    """
    hosts = ranks + (transport == "mpi")
    if network is not None and network.hosts < hosts:
        raise ValueError(f"expected a network of {hosts} hosts for {ranks} ranks, got {network.hosts}")
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(prefix="oscar-launch-") as folder:
        if transport == "mpi":
            commands = _mpi(ranks, program, network, Path(folder))
        else:
            commands = _torch(ranks, program, network)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for words, extra in commands:
                processes.append(_start(words, extra, output))
            patience_s = LONE_S if network is None else LONE_AFAR_S
            job = _Job(token, processes[0].pid, patience_s) if transport == "mpi" else None
            end = _await(processes, time.monotonic() + limit_s, _Reader(output, hear), job, grace_s)
            statuses = tuple(process.wait() for process in processes)
            orphans = _orphans(token, network)
        except BaseException:
            _end(processes, token, network)
            raise
        output.seek(0)
        text = output.read().decode(errors="replace")
    plain = [status if status >= 0 else 128 - status for status in statuses]
    return Ended(max(plain), statuses, text, end == "hung", orphans, launcher_hung=end == "launcher hung")


def mpirun() -> str:
    """Return the launcher of this environment's MPI, or of the PATH; raises MissingExtraError without one."""
    beside = Path(sys.executable).parent / "mpirun"
    result = str(beside) if beside.exists() else shutil.which("mpirun")
    if result is None:
        raise MissingExtraError(f"mpirun not found: {INSTALL}, or load an MPI")
    return result


def _mpi(ranks: int, program: Sequence[str], network: HostNetwork | None, folder: Path) -> list[Command]:
    command = [mpirun(), "-n", str(ranks), "--bind-to", "none", "--with-ft", "ulfm"]
    command += ["--oversubscribe"] if network is None else _across(network, ranks, folder)
    command += [sys.executable, "-m", "mpi4py", *program]
    return [(command if network is None else network.command(ranks, command), {})]


def _across(network: HostNetwork, ranks: int, folder: Path) -> list[str]:
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


def _torch(ranks: int, program: Sequence[str], network: HostNetwork | None) -> list[Command]:
    command = [sys.executable, *program]
    if network is not None:
        return [(network.command(r, command), on_host(r, ranks)) for r in range(ranks)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    return [(command, {**where, "RANK": str(rank)}) for rank in range(ranks)]


def on_host(rank: int, ranks: int) -> dict[str, str]:
    """Return what torch.distributed reads from the environment of a rank on a host of its own."""
    where = {"MASTER_ADDR": address(0), "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": DEVICE}
    return {**where, "WORLD_SIZE": str(ranks), "RANK": str(rank)}


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Return the environment of a rank: this process's, a thread per library, whole lines, and `extra`."""
    return {**os.environ, **dict.fromkeys((*THREADS, *ROOT), "1"), UNBUFFERED: "", **extra}


def _start(command: list[str], extra: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=output,
        stdin=subprocess.DEVNULL,
        env=environment(extra),
        start_new_session=True,  # so that it can be killed with what it started
    )


class _Reader:
    """Passes on what was added to a file since the last `read`; the writers' position in it stays."""

    def __init__(self, file: IO[bytes], hear: Callable[[bytes], None] | None) -> None:
        self.file, self.hear, self.at = file, hear, 0

    def read(self) -> None:
        while self.hear is not None and (fresh := os.pread(self.file.fileno(), READ_BYTES, self.at)):
            self.at += len(fresh)
            self.hear(fresh)


class _Job:
    """Finds an mpirun whose ranks have started, and have all gone."""

    def __init__(self, token: str, launcher: int, patience_s: float) -> None:
        self.token, self.launcher, self.patience_s = token, launcher, patience_s
        self.next = 0.0  # when to look again
        self.alive: float | None = None  # when a rank was last seen

    def has_ranks(self) -> bool:
        return bool(_named(self.token) - {self.launcher})

    def is_over(self, now: float) -> bool:
        """Whether no rank has been seen for `patience_s`."""
        if now >= self.next:
            self.next = now + LOOK_S
            self.alive = now if self.has_ranks() else self.alive
        return self.alive is not None and now - self.alive > self.patience_s


def _await(
    processes: list[subprocess.Popen[bytes]],
    limit: float,
    reader: _Reader,
    job: _Job | None,
    grace_s: float | None,
) -> Literal["ended", "hung", "launcher hung"]:
    """Wait until all have ended; kill what is left at the limit, or stopped when all others have ended.

    job: of mpirun, which is killed where it goes on after its ranks.
    """
    while (now := time.monotonic()) < limit:
        reader.read()
        left = [process for process in processes if process.poll() is None]
        if all(_stopped(process.pid) for process in left):
            for process in left:
                os.killpg(process.pid, signal.SIGKILL)
            return "ended"
        if job is not None and job.is_over(now):
            break
        if grace_s is not None and any(process.returncode for process in processes):
            time.sleep(grace_s)
            _kill(processes)
            return "ended"
        time.sleep(0.05)
    alone = job is not None and job.alive is not None and not job.has_ranks()
    _kill(processes)
    return "launcher hung" if alone else "hung"


def _end(processes: list[subprocess.Popen[bytes]], token: str, network: HostNetwork | None) -> None:
    """End at once all processes that were started, and their children."""
    _kill(processes)
    for process in processes:
        process.wait()
    stop = time.monotonic() + ORPHAN_S
    while (left := _left(token, network)) and time.monotonic() < stop:
        _kill_each(left)
        time.sleep(0.05)


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


def _orphans(token: str, network: HostNetwork | None) -> int:
    """Count and kill processes named by `token`, or on a host, that do not end by themselves."""
    stop = time.monotonic() + ORPHAN_S
    while left := _left(token, network):
        if time.monotonic() > stop:
            break
        time.sleep(0.1)
    _kill_each(left)  # with ULFM, mpirun may leave a rank that computes without end
    return len(left)


def _kill_each(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _left(token: str, network: HostNetwork | None) -> set[int]:
    return _named(token) if network is None else _named(token) | network.pids()


def _named(token: str) -> set[int]:
    return {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, token)}


def _has(path: Path, token: str) -> bool:
    if path.parent.name == str(os.getpid()):
        return False
    try:
        return token.encode() in path.read_bytes().split(b"\0")
    except OSError:
        return False
