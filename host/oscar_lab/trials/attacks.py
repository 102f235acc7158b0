"""Strangers that call ranks while they meet, and a rank that announces what nobody awaits: memory and time.

Ranks meet at a store, reduce and part, over and over. Meanwhile an attacker calls all of them, or the last
rank attacks the others. Rows say whether the training went on or ended with an error in its deadline, and how
much memory the ranks took. All traffic stays on this host.

  oscar trial attacks --seconds 600                  every attack for ten minutes
  oscar trial attacks --kinds head --seconds 20

silent   strangers call and say nothing             few files   the same, and rank 0 may open 40 files more
slow     they say who they are, a byte at a time    no files    the same, and rank 0 may open 1 file more
forged   they claim to be a rank, and prove nothing
head     the last rank announces a message of 12 GB that nobody awaits
many     it sends 5,000 small messages that nobody awaits
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from oscar.tables import Row, Table
from oscar_lab.trials._ranks import lines_of, start

GOES_ON = {"silent": True, "slow": True, "forged": True, "few files": True}
GOES_ON |= {"no files": False, "head": False, "many": False}
MOST_GROWTH_MB = 100.0  # a message of 12 GB, or sockets and buffers of all strangers, would take more
COLUMNS = ("meetings", "calls", "errors", "wrong")
TABLE = Table(
    "attack <10",
    *(f"{name} >9" for name in COLUMNS),
    "slowest_s: slowest s >10.2f",
    "first_mb: first MB >9.1f",
    "most_mb: most MB >9.1f",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this trial."""
    parser.add_argument("--kinds", nargs="+", choices=tuple(GOES_ON), default=list(GOES_ON))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("--ranks", type=int, default=3, help="processes, beside the attacker's")
    parser.add_argument("--callers", type=int, default=400, help="connections of the attacker at a time")
    parser.add_argument("--timeout-s", type=float, default=20.0, help="of a meeting and of a call")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each attack; "ok" tells whether memory was bounded and each training did its part."""
    print(
        f"# {args.ranks} ranks, {args.callers} callers, {args.seconds:g} s each, timeout {args.timeout_s:g} s"
    )
    print("# errors: calls or meetings that ended with an error of OSCAR; slowest: until a call or an error")
    print("# MB: resident memory, of the rank that took most: after the first meeting, and at most")
    print(TABLE.heading)
    rows, faults = list[Row](), list[str]()
    for kind in args.kinds:
        row, output = attack(kind, args)
        rows.append(row)
        print(TABLE.line(row), flush=True)
        if why := fault(row, args.timeout_s):
            faults.append(f"{kind}: {why}")
            print(f"# {faults[-1]}\n{output[-2000:]}", flush=True)
    return {"ok": not faults, "rows": rows, "faults": faults}


def attack(kind: str, args: argparse.Namespace) -> tuple[Row, str]:
    """Run one attack; return its row, and what the processes wrote."""
    with tempfile.TemporaryDirectory(prefix="oscar-attacks-") as folder:
        said = Path(folder, "said")
        case = {"transport": "tcp", "kind": kind, "seconds": args.seconds, "ranks": args.ranks}
        case |= {"callers": args.callers, "timeout_s": args.timeout_s, "said": str(said)}
        limit_s = args.seconds + 3 * args.timeout_s
        ended = start("_attacked_rank", case, args.ranks + 1, limit_s=limit_s)
        lines = lines_of(said.read_text(encoding="utf-8")) if said.exists() else []
    row: Row = {"attack": kind, "ended": len(lines) == args.ranks and ended.status == 0}
    for name in ("meetings", "calls", "errors", "wrong"):
        row[name] = sum(line[name] for line in lines)
    for name in ("slowest_s", "first_mb", "most_mb"):
        row[name] = max((line[name] for line in lines), default=0.0)
    texts = sorted({text for line in lines for text in line["texts"]})
    return row | {"texts": texts}, ended.output


def fault(row: Row, timeout_s: float) -> str:
    """Return in words what a row should not show, or nothing."""
    if not row["ended"]:
        return "a rank did not end as it should"
    if row["wrong"]:
        return "a mean was wrong"
    if row["slowest_s"] > timeout_s:
        return f"a rank took longer than its timeout of {timeout_s:g} s"
    if row["most_mb"] > row["first_mb"] + MOST_GROWTH_MB:
        return f"memory grew by more than {MOST_GROWTH_MB:g} MB"
    if GOES_ON[row["attack"]] and row["errors"]:
        return f"the training did not go on ({'; '.join(row['texts'])})"
    if not GOES_ON[row["attack"]] and not row["errors"]:
        return "the attack did not arrive"
    return ""
