"""What `oscar compare` prints: the table, and the answers drawn from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oscar.tables import Table
from oscar_studies.contest import (
    IDEAL,
    LARGE,
    fastest,
    fewest_bits,
    fp32_row,
    metric_at,
    names_of,
    speedups,
)

HALF = 0.5


def text_report(results: Mapping[str, Any]) -> str:
    """Return the whole report as text: what was compared, the table, the answers drawn from it."""
    return "\n".join(
        [
            f"# {results['title']}, seeds {results.get('seeds', 'not named')}",
            "# bits/value: all bytes sent, per value that crosses a link; sync: what a lock-step ring waits "
            "for",
            "# clipped: values that saturated in a run; of energy: the largest share in an iteration",
            "# holds: not worse than fp32 by more than fp32's own standard deviation over the seeds",
            *table(results["rows"]),
            *answers(results),
        ]
    )


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table as lines: one per contender and point, the finest first."""
    metric = rows[0]["metric"]
    shown = Table(
        "contender:method <22", "setting <44", "seeds >5", f"mean:{metric} >8.4f", "spread >7.4f",
        "worse_by:worse by >15", "holds <5", "bits:bits/value >10.3f", "sync_bits:sync b/v >9.3f",
        "clipped >9.6g", "clipped_energy:of energy >9.2g", "front <",
    )  # fmt: skip
    lines = [shown.heading]
    for row in rows:
        lost = f"({row['diverged']} diverged) " if row["diverged"] else ""
        worse = None if row["worse_by"] is None else f"{row['worse_by']:.4f} ±{row['paired_error']:.4f}"
        cells = {"setting": f"{lost}{row['label']}"[:44], "front": "*" if row["front"] else ""}
        lines.append(shown.line({"clipped": None, "clipped_energy": None, **row}, **cells, worse_by=worse))
    return lines


def answers(results: Mapping[str, Any]) -> list[str]:
    """Return lines that compare methods at equal accuracy and equal bytes, and end to end."""
    rows, better = results["rows"], 1 if results["metric"] == "accuracy" else -1
    base = fp32_row(rows)
    if base is None:
        return ["# no contender sends fp32: nothing to hold the others to"]
    lines = [
        f"# equal {results['metric']}: fewest bits/value within one standard deviation of fp32 "
        f"({base['mean']:.4f}, {base['spread']:.4f}), log-linear between points"
    ]
    target = base["mean"] - better * base["spread"]
    lines += _ranking(fewest_bits(rows, target, better), rows)
    for name in names_of(row for row in rows if row["codec"] == "count-sketch"):
        lines += _against(rows, name, better)
    lines.append(
        "# end to end where fp32 communicates for half of the time (modelled: links alone, "
        f"{LARGE / 1e6:g} M values, no overlap, {IDEAL}):"
    )
    for name, best in fastest(rows).items():
        lines.append(f"#   {name:<22} {speedups(best, base, [HALF])[0]:.2f}x  ({best['label'] or '-'})")
    return lines


def _ranking(found: Mapping[str, float], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line per method: its fewest bits, interpolated, and the bits of its cheapest trained point."""
    lines = []
    for name, bits in sorted(found.items(), key=lambda item: item[1]):
        holding = [row["bits"] for row in rows if row["contender"] == name and row["holds"]]
        trained = f"  (cheapest point that holds: {min(holding):.3f})" if holding else ""
        lines.append(f"#   {name:<22} {bits:.3f}{trained}")
    return lines


def _ours(name: str) -> bool:
    return name.lower().startswith("oscar")


def _against(rows: Sequence[dict[str, Any]], sketch: str, better: int) -> list[str]:
    """Compare every method with a count sketch: bytes at each of its accuracies, accuracy at equal bytes."""
    lines = [
        f"# against {sketch}: at equal metric, how many times fewer bits/value; at equal bits, the metric"
    ]
    for point in (row for row in rows if row["contender"] == sketch):
        found = fewest_bits(rows, point["mean"], better)
        ratios = [f"{name} {point['bits'] / bits:.2f}x" for name, bits in found.items() if _ours(name)]
        lines.append(
            f"#   where {sketch} has {point['mean']:.4f} at {point['bits']:.2f}: "
            f"{', '.join(ratios) or 'no OSCAR method reaches it'}"
        )
    for row in rows:
        if row["contender"].lower().startswith("oscar-sw"):
            theirs = metric_at(rows, sketch, row["bits"], better)
            if theirs is not None:
                lines.append(
                    f"#   at {row['bits']:.2f} bits/value: {row['contender']} {row['mean']:.4f}, "
                    f"{sketch} {theirs:.4f}"
                )
    return lines
