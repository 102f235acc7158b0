"""Communicators and hook states of several sub-groups of one job, made at once: every mean must be right.

Each job has six ranks. In each round all ranks of a layout's groups make a communicator, or a state of DDP's
hook, at about the same time, reduce, and compare with the in-process cluster bit for bit. Ranks of no group
do nothing. A round is right where all its ranks are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from oscar.tables import Row, Table
from oscar_lab.trials._hunt import seed_of
from oscar_lab.trials._ranks import lines_of, start

RANKS = 6
LAYOUTS = {
    "{0,2}, {1,3}": [[0, 2], [1, 3]],
    "{0,1}, {2,3}": [[0, 1], [2, 3]],
    "{0,2,4}, {1,3,5}": [[0, 2, 4], [1, 3, 5]],
    "{1,4,5}": [[1, 4, 5]],
}
KINDS = {"tcp communicator": "torch", "tcp state": "torch", "mpi communicator": "mpi4py"}
COLUMNS = ("rounds", "right", "wrong", "told")
TABLE = Table("of <18", "groups <18", *(f"{name} >6" for name in COLUMNS))
ROUND_S = 10.0  # a round may take, on a busy machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this trial."""
    parser.add_argument("--of", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--jobs", type=int, default=5, help="of each kind")
    parser.add_argument("--rounds", type=int, default=10, help="of each layout in a job")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a table by kind and layout; "ok" tells whether all rounds were right."""
    seed, rows = seed_of(args), []
    faults: list[dict[str, Any]] = []
    missing = [name for name in args.of if importlib.util.find_spec(KINDS[name]) is None]
    print(f"# {args.jobs} jobs of {RANKS} ranks, {args.rounds} rounds each, seed {seed}")
    for name in missing:
        print(f"# without {KINDS[name]}: no {name}")
    print(TABLE.heading)
    for name in args.of:
        if name in missing:
            continue
        verdicts: dict[str, list[list[str]]] = defaultdict(list)  # [layout][round][rank]
        for job in range(args.jobs):
            result, output = play(name, args.rounds, f"{seed} {job}")
            new = [{"of": name, "output": output}] if output else []
            for layout, rounds in result.items():
                verdicts[layout] += rounds
                new += [{"of": name, "groups": layout, "came": one} for one in rounds if not right(one)]
            for fault in new:
                print(f"# {json.dumps(fault)[:1000]}", flush=True)
            faults += new
        for layout in LAYOUTS:
            rows.append({"of": name, "groups": layout, **counted(verdicts[layout])})
            print(TABLE.line(rows[-1]), flush=True)
    return {"ok": not faults, "seed": seed, "rows": rows, "faults": faults[:20]}


def play(name: str, rounds: int, seed: str) -> tuple[dict[str, list[list[str]]], str]:
    """Run one job; return [layout][round][rank] what ranks found, and the output of a job that failed."""
    transport, kind = name.split()
    with tempfile.TemporaryDirectory(prefix="oscar-subgroups-") as folder:
        said = Path(folder, "said")
        case = {"transport": transport, "kind": kind, "layouts": list(LAYOUTS.values()), "rounds": rounds}
        limit_s = ROUND_S * rounds * len(LAYOUTS)
        ended = start("_subgroup_rank", case | {"seed": seed, "said": str(said)}, RANKS, limit_s=limit_s)
        lines = lines_of(said.read_text(encoding="utf-8")) if said.exists() else []
    result: dict[str, list[list[str]]] = {}
    for at, (layout, groups) in enumerate(LAYOUTS.items()):
        members = [rank for ranks in groups for rank in ranks]
        came = {(line["round"], line["rank"]): str(line["verdict"]) for line in lines if line["layout"] == at}
        result[layout] = [[came.get((turn, rank), "nothing") for rank in members] for turn in range(rounds)]
    return result, "" if ended.status == 0 else f"{ended.statuses}: {ended.output[-2000:]}"


def right(verdicts: list[str]) -> bool:
    """Whether all ranks of a round had the right means."""
    return set(verdicts) == {"right"}


def counted(rounds: list[list[str]]) -> Row:
    """Return the columns of a row. wrong: a mean was, on any rank, without an error; told: errors alone."""
    good, wrong = sum(map(right, rounds)), sum("wrong" in one for one in rounds)
    return {"rounds": len(rounds), "right": good, "wrong": wrong, "told": len(rounds) - good - wrong}
