"""Real processes, killed, stopped, cut off, damaged or misconfigured at random points: all report it in time.

Each case starts a job of its own, strikes one rank somewhere in the first three of five AllReduces, and looks
at what the others say, when, and how all end. Faults and exit statuses: docs/reference/transports.md.

  oscar trial transport_faults                       every fault, 20 times, over MPI and TCP
  oscar trial transport_faults --transport mpi --kinds kill stop --points 5
  oscar trial transport_faults --kinds kill --ranks 2 --timeout-s 10
  sudo .venv/bin/oscar trial transport_faults --kinds cut            links of the lab's network
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from oscar.collective.schedules import make_schedule
from oscar.errors import OscarError
from oscar.tables import Row, Table
from oscar.transports.base import PEER_FAILED
from oscar.transports.registry import TRANSPORTS
from oscar_lab.lab.launch import Ended
from oscar_lab.lab.network import HostNetwork
from oscar_lab.trials._ranks import config_of, lines_of, start
from oscar_lab.trials._struck_rank import load_kernels

KINDS = ("kill", "stop", "corrupt", "raise", "config", "version", "cut")
SCHEDULES = ("ring", "boomerang", "duplex", "direct", "hierarchical", "exchange")
COUNTS = ("told", "wrong", "hung", "mpirun")
SLACK_S = 1.0  # by which a busy machine may miss a deadline
NAMED = {"config": "seed", "version": "oscar"}  # the key that differs
TABLE = Table(
    "transport <10", "fault <8", "cases >6", *(f"{name} >6" for name in COUNTS), "slowest_s: slowest s >10.2f"
)
RATE_BPS = 10e6  # of links that are cut: frames are under way for milliseconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    known, kinds = list(TRANSPORTS), "default: all; cut needs root and iproute2, and is left out without"
    parser.add_argument("--transport", nargs="+", choices=known, default=known, help="default: all")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help=kinds)
    parser.add_argument("--points", type=int, default=20, help="random points for each kind and transport")
    parser.add_argument("--ranks", type=int, default=4, help="processes of a job")
    parser.add_argument("--values", type=int, default=50_000, help="of an AllReduce")
    parser.add_argument("--timeout-s", type=float, default=4.0, help="of a wait; survivors must meet it")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run every case and print how each kind ended; "ok" tells whether all ended as they must."""
    print(f"# {args.ranks} ranks, {args.values} values, timeout {args.timeout_s:g} s, seed {args.seed}")
    print("# told: every survivor raised an error that names rank, step and chunk (or key), in time,")
    print("#       with its gradients and state as before; right exit status; no process left")
    print("# mpirun: told, and no rank left, but mpirun had to be killed (docs/reference/transports.md)")
    for schedule in SCHEDULES:
        load_kernels(config_of(schedule=schedule))  # compiled here, once, where this is a fresh installation
    print(TABLE.heading)
    rows: list[Row] = []
    wrong: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    for transport in args.transport:
        for kind in args.kinds:
            with ExitStack() as stack:
                try:
                    network = stack.enter_context(HostNetwork(args.ranks + 1)) if kind == "cut" else None
                except OscarError as error:
                    left_out.append({"transport": transport, "fault": kind, "why": str(error)})
                    print(f"# {transport}, {kind}: not run: {error}", flush=True)
                    continue
                rows.append(_row(args, transport, kind, network, wrong))
    result = {"ok": not wrong, "ranks": args.ranks, "timeout_s": args.timeout_s, "rows": rows, "wrong": wrong}
    return {**result, "left_out": left_out}


def _row(
    args: argparse.Namespace,
    transport: str,
    kind: str,
    network: HostNetwork | None,
    wrong: list[dict[str, Any]],
) -> Row:
    """Run all points of one kind and return the counts; what is wrong is appended to `wrong`."""
    dice, counts, slowest = random.Random(f"{args.seed} {kind}"), Counter[str](), 0.0
    for _ in range(args.points):
        case = _case(args, dice, transport, kind)
        ended = _launch(case, args, network)
        seconds, why = judge(case, ended, ranks=args.ranks)
        counts[_outcome(ended, why)] += 1
        slowest = max(slowest, seconds)
        if why:
            wrong.append({"case": case, "why": why, "output": ended.output[-4000:]})
            print(f"# wrong: {json.dumps(case)}: {why}", flush=True)
    row: Row = {"transport": transport, "fault": kind, "cases": args.points, "slowest_s": slowest}
    row |= {name: counts[name] for name in COUNTS}
    print(TABLE.line(row), flush=True)
    return row


def _outcome(ended: Ended, why: str) -> str:
    """Return which of COUNTS a case is one of."""
    if ended.hung:
        return "hung"
    return "wrong" if why else "mpirun" if ended.launcher_hung else "told"


def _case(args: argparse.Namespace, dice: random.Random, transport: str, kind: str) -> dict[str, Any]:
    return {
        "transport": transport,
        "kind": kind,
        "schedule": dice.choice(SCHEDULES),
        "victim": dice.randrange(args.ranks) if kind not in NAMED else dice.randrange(1, args.ranks),
        "iteration": dice.randrange(3),
        "point": dice.random(),
        "values": args.values,
        "timeout_s": args.timeout_s,
    }


def _launch(case: dict[str, Any], args: argparse.Namespace, network: HostNetwork | None) -> Ended:
    """Launch the ranks, on the hosts of a fresh network where one is given.

    They report to a file: mpirun may lose their output, and a cut link does.
    """
    if network is not None:
        network.renew()
        network.shape(RATE_BPS)
    with tempfile.TemporaryDirectory(prefix="oscar-faults-") as folder:
        said = Path(folder) / "said"
        said.touch()
        case = {**case, "said": str(said)}
        ended = start("_struck_rank", case, args.ranks, limit_s=2 * args.timeout_s, network=network)
        return replace(ended, output=f"{ended.output}\n{said.read_text(encoding='utf-8')}")


def judge(case: dict[str, Any], ended: Ended, *, ranks: int) -> tuple[float, str]:
    """Return the seconds from the fault to the last survivor's error, and what is wrong ("" if nothing)."""
    lines = lines_of(ended.output)
    said = {line["rank"]: line for line in lines if "rank" in line}
    struck = next((line["struck"] for line in lines if "struck" in line), None)
    if ended.hung or ended.orphans:
        return 0.0, f"hung: {ended.hung}, processes left: {ended.orphans}"
    kind, victim = case["kind"], case["victim"]
    tellers = set(range(ranks)) - ({victim} if kind in ("kill", "stop") else set())
    if missing := tellers - set(said):
        return 0.0, f"ranks {sorted(missing)} said nothing"
    expected = {"config": (2,), "version": (2,), "raise": (1, PEER_FAILED)}.get(kind, (PEER_FAILED,))
    statuses = [
        status for rank, status in enumerate(ended.statuses) if len(ended.statuses) == 1 or rank in tellers
    ]
    if not ended.launcher_hung and any(status not in expected for status in statuses):
        return 0.0, f"exit status {statuses}, expected {expected}"
    seconds = max(said[rank]["at"] for rank in tellers) - struck if struck else 0.0
    if seconds > case["timeout_s"] + SLACK_S:
        return seconds, f"the last error came {seconds:.1f} s after the fault"
    for rank in tellers:
        if why := _misses(case, said[rank], own=rank == victim, ranks=ranks):
            return seconds, f"rank {rank}: {why}: {said[rank]['text']}"
    return seconds, ""


def _misses(case: dict[str, Any], line: dict[str, Any], *, own: bool, ranks: int) -> str:
    """Say what a rank's error does not name, or nothing."""
    kind, victim, text = case["kind"], case["victim"], line["text"]
    if kind in NAMED:
        good = line["type"] == "ConfigError" and f"rank {victim} has {NAMED[kind]} = " in text
        return "" if good else "does not name rank and key"
    if not line["untouched"]:
        return "gradients or state were changed"
    if kind == "raise":
        good = "this rank's own mistake" in text and (own or f"rank {victim} gave up" in text)
        return "" if good else "does not name the mistake"
    across = {victim}
    if kind == "cut" and own:
        across = set(make_schedule(case["schedule"], ranks, subframes=2).peers(victim))
    if line["type"] != "PeerError" or line["peer"] not in across:
        return f"{line['type']} blames rank {line['peer']}"
    named = f"step {line['step']} of the " in text and f", chunk {line['chunk']}" in text
    if not (line["step"] >= 0 and 0 <= line["chunk"] < ranks and named):
        return "names no step and chunk"
    return ""
