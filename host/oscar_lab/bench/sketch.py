"""Speed of the count sketch against the same sketch in torch, one core each, in turns within one run.

Both sketch the same integers by the same hashes and must give equal cells and equal estimates, every turn.
torch gets its buckets (int64, as its indices are) and signs ready-made, as torch code has them; OSCAR
computes its hashes while it goes. torch runs in the ways there are to write it, and the fastest of them
counts: adding by scatter_add_ or index_add_ in int32 or float32; medians by torch.median, or of three rows by
minima and maxima. Whole calls are timed, results allocated included; ratios are of minima over the turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oscar.numerics.sketch.count_sketch import CountSketch, columns_for
from oscar.tables import Row, Table
from oscar_lab.bench.speed import Operation, take_turns
from oscar_lab.sources import peer

BAR = 5.0  # times the speed of torch
_torch = partial(peer, "torch", extra="make torch")


TABLE = Table(
    "ratio:cells/values >12g", "operation <32", "best_ms:best ms >8.2f", "median_ms:median >8.2f",
    "mvalues_per_s:Mvalues/s >9.0f", "times_slower:slower >7",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--values", type=int, default=1 << 22, help="of the vector that is sketched")
    parser.add_argument("--rows", type=int, default=3, help="of the sketch")
    parser.add_argument("--ratios", nargs="+", type=float, default=[0.2, 0.05], help="cells / values")
    parser.add_argument("--turns", type=int, default=20, help="times everything is timed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Time all operations at all ratios, print the table, and return it with the ratios and the bar."""
    if args.turns < 1 or args.values < 1:
        raise ValueError(f"expected 1 turn and 1 value at least, got {args.turns} and {args.values}")
    torch = _torch()
    random = np.random.default_rng(0)
    values = np.rint(random.laplace(0, 6, args.values)).clip(-127, 127).astype(np.int32)
    print(f"# {values.size} integers of 8 bits, {args.rows} rows; {args.turns} turns; one thread each")
    print(
        f"# torch {torch.__version__}: tables of {args.rows * 12} bytes/value, made beforehand; OSCAR: none"
    )
    print(TABLE.heading)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [row for ratio in args.ratios for row in _measure(values, args.rows, ratio, args.turns)]
    finally:
        torch.set_num_threads(threads)
    speedups = {
        f"{word}, ratio {ratio:g}": min(
            row["times_slower"]
            for row in rows
            if row["ratio"] == ratio and row["operation"].startswith("torch") and word in row["operation"]
        )
        for word in ("encode", "decode")
        for ratio in args.ratios
    }
    for name, times in speedups.items():
        verdict = "met" if times >= BAR else "MISSED"
        print(f"# {name}: {times:.1f}x the fastest torch, bar {BAR:g}: {verdict}")
    return {
        "values": args.values,
        "rows": args.rows,
        "turns": args.turns,
        "table": rows,
        "speedups": speedups,
        "bar": BAR,
    }


def _measure(values: np.ndarray, rows: int, ratio: float, turns: int) -> list[Row]:
    """Return a row per way to do an operation; times_slower: how many times OSCAR's best is in its best."""
    sketch = CountSketch(rows, columns_for(ratio, values.size, rows), values.size, 0)
    cells = sketch.encode(values)
    estimates = sketch.estimate(cells)
    operations = {
        "oscar encode": Operation(lambda: sketch.encode(values), 1, check=_equal_to(cells)),
        "oscar decode": Operation(lambda: sketch.estimate(cells), 1, check=_equal_to(estimates)),
        **{
            name: Operation(call, 1, check=_equal_to(cells if "encode" in name else estimates))
            for name, call in _peers(sketch, values, cells).items()
        },
    }
    for operation in operations.values():
        operation.timed()  # compiled, and pages touched
    times = take_turns(operations, turns)
    out = []
    for name, seconds in times.items():
        best, own = min(seconds), min(times[f"oscar {name.split()[1]}"])
        row = {"ratio": ratio, "operation": name, "best_ms": 1e3 * best, "times_slower": best / own}
        row |= {"median_ms": 1e3 * statistics.median(seconds), "mvalues_per_s": 1e-6 * values.size / best}
        out.append(row)
        print(TABLE.line(row, times_slower=f"{best / own:.1f}x"), flush=True)
    return out


def _equal_to(wanted: np.ndarray) -> Callable[[Any], bool]:
    return lambda result: np.array_equal(np.asarray(result).ravel(), wanted.ravel())


def hash_tables(sketch: CountSketch) -> tuple[np.ndarray, np.ndarray]:
    """Return column, int64, and sign, int32, of every index in every row: both [rows, size]."""
    columns = np.empty((sketch.rows, sketch.size), np.int64)
    signs = np.empty((sketch.rows, sketch.size), np.int32)
    for row in range(sketch.rows):
        numbered = np.zeros((sketch.rows, sketch.columns), np.int32)
        numbered[row] = np.arange(1, sketch.columns + 1)
        result = sketch.estimate(numbered, combine="sum")  # the others' cells are 0
        columns[row], signs[row] = np.abs(result) - 1, np.sign(result)
    return columns, signs


def _peers(sketch: CountSketch, values: np.ndarray, cells: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return the ways to write the sketch in torch, by name."""
    torch = _torch()
    table, sign = hash_tables(sketch)
    where = torch.from_numpy(table)
    calls: dict[str, Callable[[], Any]] = {}
    for kind in ("int32", "float32"):
        dtype = getattr(torch, kind)
        signs, x, c = (torch.from_numpy(a).to(dtype) for a in (sign, values, cells))
        for method in ("scatter_add_", "index_add_"):
            calls[f"torch encode {method} {kind}"] = partial(_add, method, where, signs, x, sketch.columns)
        if sketch.rows % 2:  # torch.median takes the lower of two in the middle
            calls[f"torch decode median {kind}"] = partial(_median, where, signs, c)
        if sketch.rows == 3:
            calls[f"torch decode min, max {kind}"] = partial(_network, where, signs, c)
    return calls


def _add(method: str, where: Any, signs: Any, x: Any, columns: int) -> Any:
    out = _torch().zeros(len(where), columns, dtype=x.dtype)
    for row in range(len(where)):
        getattr(out[row], method)(0, where[row], signs[row] * x)
    return out


def _median(where: Any, signs: Any, cells: Any) -> Any:
    return _torch().median(cells.gather(1, where) * signs, dim=0).values


def _network(where: Any, signs: Any, cells: Any) -> Any:
    torch = _torch()
    a, b, c = cells.gather(1, where) * signs
    return torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c))
