"""One bit flipped on the wire, at every byte of every message of small runs: reported, or without effect.

Ranks are threads, plain and keyed, and, for a number of cases, processes over MPI and TCP. In each case one
bit of one message is flipped where it leaves its rank. Told: an error names a rank. Harmless: the results are
those of an undisturbed run. Wrong: all other outcomes, above all a change that nobody notices.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any

from oscar.tables import Row, Table
from oscar.transports.registry import TRANSPORTS
from oscar_lab.trials._flips import PLAYS, RANKS, Case, Did, exchange, judge, undisturbed
from oscar_lab.trials._hunt import seed_of
from oscar_lab.trials._ranks import start

Flips = Iterator[tuple[Case, str, list[Did]]]  # case, verdict, what ranks did
WHERE = ("threads", "keyed", *TRANSPORTS)
COLUMNS = ("flips", "told", "harmless", "wrong", "hung")
TABLE = Table("transport <10", "message <24", *(f"{name} >8" for name in COLUMNS))
CASE_S = 4.0  # a case between processes may take, on average
KEPT = 20  # wrong cases that are reported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--transport", nargs="+", choices=WHERE, default=list(WHERE))
    parser.add_argument("--plays", nargs="+", choices=tuple(PLAYS), default=list(PLAYS))
    parser.add_argument(
        "--every", type=int, default=1, help="flip a bit of every n-th byte only, from a random one (threads)"
    )
    parser.add_argument("--cases", type=int, default=300, help="of each transport between processes")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Flip, print a table by transport and kind of message; "ok" tells whether nothing was wrong."""
    if importlib.util.find_spec("torch") is None:
        args.plays = [name for name in args.plays if not PLAYS[name].scheme]
        args.transport = [name for name in args.transport if name != "tcp"]
        print("# without the extra torch: no schemes, no tcp")
    seed = seed_of(args)
    print(f"# {RANKS} ranks, plays {', '.join(args.plays)}, every {args.every}, seed {seed}")
    print(TABLE.heading)
    rows: list[Row] = []
    wrong: list[dict[str, Any]] = []
    for where in args.transport:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        flip = _processes if where in TRANSPORTS else _threads
        for case, verdict, came in flip(args, where, seed):
            counts[case[2]][verdict] += 1
            if verdict in ("wrong", "hung"):
                wrong.append({"transport": where, "case": case, "came": came})
        for kind in sorted(counts):
            row = {"transport": where, "message": kind, "flips": counts[kind].total()}
            rows.append(row | {name: counts[kind][name] for name in COLUMNS[1:]})
            print(TABLE.line(rows[-1], message=kind[:24]), flush=True)
    total = {name: sum(row[name] for row in rows) for name in COLUMNS}
    print(TABLE.line(total, transport="all", message=""))
    for fault in wrong[:KEPT]:
        print(f"# wrong: {json.dumps(fault)[:1000]}")
    return {"ok": not wrong, "seed": seed, "rows": rows, **total, "faults": wrong[:KEPT]}


def _threads(args: argparse.Namespace, where: str, seed: int) -> Flips:
    """Flip a bit in every `every`-th byte of every message of every play, between threads."""
    dice = random.Random(f"{seed} {where}")
    with ThreadPoolExecutor(RANKS) as pool:
        for name in args.plays:
            play = PLAYS[name]
            calm, taps = undisturbed(pool, play, where)
            at = dice.randrange(args.every)
            for rank, tap in enumerate(taps):
                for number, (kind, size) in enumerate(tap.messages):
                    while at < size:
                        case = name, rank, kind, (number, at, dice.randrange(8))
                        try:
                            came, _ = exchange(pool, play, where, case)
                        except Late:
                            yield case, "hung", []
                            return  # its threads are still at work
                        yield case, judge(calm, came), came
                        at += args.every
                    at -= size


def _processes(args: argparse.Namespace, where: str, seed: int) -> Flips:
    """Flip bits at random places, between processes, all in one job; every rank writes what it did."""
    with tempfile.TemporaryDirectory(prefix="oscar-flips-") as folder:
        task = {"transport": where, "plays": args.plays, "cases": args.cases, "seed": seed, "folder": folder}
        ended = start("_flipped_rank", task, RANKS, limit_s=CASE_S * args.cases)
        said = [Path(folder, f"{rank}.json") for rank in range(RANKS)]
        if ended.status != 0 or not all(path.exists() for path in said):
            came = [("raised", f"exit status {ended.statuses}: {ended.output[-2000:]}")]
            yield ("the job", -1, "the job", (0, 0, 0)), "hung" if ended.hung else "wrong", came
            return
        lines = [json.loads(path.read_text(encoding="utf-8")) for path in said]
        for each in zip(*lines, strict=True):
            case = next((line["case"] for line in each if line["case"] is not None), None)
            if case is None:
                continue
            calm, came = ([tuple(line[key]) for line in each] for key in ("calm", "came"))
            yield tuple(case), judge(calm, came), came
