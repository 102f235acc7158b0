"""`oscar worker`: one rank of a training whose AllReduce runs between processes."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscar.cli.common import add_config, declare, read_config
from oscar.files import check_outputs
from oscar.results import write_results
from oscar.transports.registry import TRANSPORTS
from oscar.transports.waits import Notice, TransportError

if TYPE_CHECKING:
    from oscar.transports.base import Transport

EXAMPLE = """\
  oscar worker --set iterations=5                                        alone
  mpirun -n 4 --oversubscribe python -m mpi4py -m oscar worker mpi --transport mpi
  torchrun --nproc-per-node 4 -m oscar worker mpi --transport tcp

The launcher says how many ranks there are. Each computes the gradients of its own worker; rank 0 prints a
row as each iteration ends (with transport.survive: all at the end) and compares the first iterations with
the same training in one process.
Exit status 1 when a check failed, 2 for configurations that differ or cannot be run, 75 when a
peer failed (docs/reference/transports.md).
"""
CANNOT_SURVIVE = (
    "oscar worker: warning: transport.survive needs MPI and mpirun --with-ft ulfm; a death ends this run"
)
INTERRUPTED = 130  # as of all commands
LINGER_S = 1.0  # others print what they know before a launcher ends them


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands,
        "worker",
        run,
        short="one rank of a training between processes",
        example=EXAMPLE,
        keeps_signals=True,
    )
    add_config(parser, default="mpi")
    parser.add_argument("--transport", choices=tuple(TRANSPORTS), default="mpi", help="default: mpi")
    parser.add_argument(
        "--timeout-s", type=float, metavar="S", help="the same as --set transport.timeout_s=S"
    )
    parser.add_argument(
        "--check", type=int, metavar="N", default=3, help="iterations to compare in-process (default: 3)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="rank 0 writes its report here as well")


def run(args: argparse.Namespace) -> int:
    """Run one rank; return its exit status."""
    extra = [] if args.timeout_s is None else [f"transport.timeout_s={args.timeout_s}"]
    config = read_config(args, *extra)
    check_outputs([args.json], [Path(args.config)])
    transport = TRANSPORTS[args.transport]()
    return _train(args, config.variant(nodes=transport.nodes), transport)


def _train(args: argparse.Namespace, config: Any, transport: Transport) -> int:
    from oscar.errors import ConfigError, MissingExtraError, PeerError
    from oscar.transports.base import PEER_FAILED
    from oscar.transports.keyed import KeyedTransport, read_key
    from oscar_studies.ranks import RankRun, of_tasks
    from oscar_studies.recording import open_workload

    rank, wire, running, comparing = transport.rank, config.transport, None, False
    try:
        workload = open_workload(of_tasks(config))
        key = None if wire.security == "none" else read_key(wire.key)
        comparing = True
        if key is not None:
            transport = KeyedTransport(transport, key, pad=wire.pad, timeout_s=wire.timeout_s)
        running = RankRun(config, transport, workload)
        if rank == 0:
            agreed = running.communicator.agreed
            padded = f", padded by up to {wire.pad:g} %" if wire.pad else ""
            keyed = f"keyed: {wire.security}{padded}, " if transport.keyed else ""
            print(
                f"# {transport.nodes} ranks over {args.transport}, {config.method}, {config.schedule.name}, "
                f"{keyed}timeout {wire.timeout_s:g} s, configuration {agreed}",
                flush=True,
            )
            if wire.survive and not transport.can_survive:
                print(CANNOT_SURVIVE, file=sys.stderr, flush=True)
        status = _report(args, config, running)
        running.transport.part(time.monotonic() + wire.timeout_s)
        running.transport.close()
        if running.lost:  # MPI's own end may wait for the dead
            running.transport.leave(status)
        return status
    except (ConfigError, MissingExtraError) as error:  # the command line says it
        if not comparing or isinstance(error, MissingExtraError):  # else all ranks have found it
            _tell(transport, error)
            time.sleep(LINGER_S)
        transport.close()
        raise
    except (PeerError, TransportError) as error:
        print(f"oscar worker: error: {error}", file=sys.stderr, flush=True)
        status = PEER_FAILED
    except BaseException as error:
        if running is None:
            _tell(transport, error)
        else:
            running.communicator.give_up(error)
        if isinstance(error, KeyboardInterrupt):
            print("oscar: interrupted", file=sys.stderr, flush=True)
            status = INTERRUPTED
        else:
            traceback.print_exc()
            sys.stderr.flush()
            status = 1
    time.sleep(LINGER_S)
    (transport if running is None else running.transport).leave(status)


def _report(args: argparse.Namespace, config: Any, running: Any) -> int:
    """Train, let rank 0 print rows and a summary, and return the exit status."""
    from oscar_studies.ranks import TABLE, summarise, text_row, text_summary

    rank = running.communicator.rank
    redundant = config.schedule.name == "redundant"  # nobody waits for another's row
    # Where deaths are survived, some ranks might have an iteration's row and some not.
    early = not config.transport.survive and not redundant
    if rank == 0 and early:
        print(TABLE.heading, flush=True)

    def show(row: dict[str, Any]) -> None:
        if rank == 0:
            print(text_row(row), flush=True)

    running.run(show if early else None)
    logs = running.reports()
    if running.communicator.rank != 0:  # of those that are left
        return 0
    report = summarise(config, running, logs, check=args.check)
    if not early:
        print(TABLE.heading, *map(text_row, report["iterations"]), sep="\n")
    print(text_summary(report), flush=True)
    if args.json is not None:
        write_results(args.json, report)
    return 0 if report["ok"] else 1


def _tell(transport: Transport, error: BaseException) -> None:
    """Say that this rank ends by a fault of its own, which the others know nothing of."""
    transport.abort(Notice(transport.rank, -1, -1, -1, f"{type(error).__name__}: {error}"))
