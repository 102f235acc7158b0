"""What `oscar compare` shows: the table, the answers drawn from it, and the Pareto figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.studies.contest import LARGE, fewest_bits, metric_at, speedups
from oscar.studies.plotting import SOFT, figure, logarithmic, look
from oscar.tables import Table

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of an fp32 iteration spent communicating
HALF = 0.5
CLOCK = "codec: ideal (takes no time)"  # of end-to-end figures, whatever link.codec says
PAPER_SPEEDUP = 1.38  # end to end, OSCAR-HW (HPCA 2026)


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
    base = next((row for row in rows if row["codec"] == "fp32"), None)
    if base is None:
        return ["# no contender sends fp32: nothing to hold the others to"]
    lines = [
        f"# equal {results['metric']}: fewest bits/value within one standard deviation of fp32 "
        f"({base['mean']:.4f}, {base['spread']:.4f}), log-linear between points"
    ]
    target = base["mean"] - better * base["spread"]
    lines += _ranking(fewest_bits(rows, target, better), rows)
    for name in _names(row for row in rows if row["codec"] == "count-sketch"):
        lines += _against(rows, name, better)
    lines.append(
        "# end to end where fp32 communicates for half of the time (modelled: links alone, "
        f"{LARGE / 1e6:g} M values, no overlap, {CLOCK}):"
    )
    for name, best in _fastest(rows).items():
        lines.append(f"#   {name:<22} {speedups(best, base, [HALF])[0]:.2f}x  ({best['label'] or '-'})")
    return lines


def _fastest(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each contender's fastest point that holds fp32's accuracy; those that have none are left out."""
    holding = sorted((row for row in rows if row["holds"]), key=lambda row: row["large_s"])
    best = {row["contender"]: row for row in reversed(holding)}
    return {name: best[name] for name in _names(rows) if name in best}


def _ranking(found: Mapping[str, float], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line per method: bits between points, and those of its cheapest point that was trained."""
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


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw bytes against the metric, and end-to-end speed-up against fp32's share of communication.

    results: what compare.json holds. Points of which a run diverged have no place on the axis: left out.
    """
    with figure(path, size=(13.5, 6.4), title=results["title"]) as drawn:
        pareto, speed = drawn.subplots(1, 2, width_ratios=[1.15, 1])
        _draw_pareto(pareto, results)
        _draw_speed(speed, results)
        handles, labels = pareto.get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=6)


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["contender"] for row in rows))


def _style(names: Sequence[str], name: str) -> dict[str, Any]:
    weight = (
        {"linewidth": 2.2, "zorder": 3} if _ours(name) else {"linewidth": 1.0, "zorder": 2, "linestyle": "--"}
    )
    return look(names.index(name)) | weight


def _draw_pareto(axes: Any, results: Mapping[str, Any]) -> None:
    rows, names = results["rows"], _names(results["rows"])
    for name in names:
        drawn = (row for row in rows if row["contender"] == name and not row["diverged"])
        own = sorted(drawn, key=lambda row: row["bits"])
        if own:
            axes.errorbar(
                [row["bits"] for row in own],
                [row["mean"] for row in own],
                yerr=[row["spread"] for row in own],
                capsize=2,
                markersize=5,
                label=name,
                **_style(names, name),
            )
    base = next((row for row in rows if row["codec"] == "fp32"), None)
    if base is not None:
        axes.axhspan(base["mean"] - base["spread"], base["mean"] + base["spread"], color="0.92", zorder=0)
    logarithmic(axes.xaxis)
    axes.set_xlabel("bits per value that crosses a link")
    way = "up is better"
    if results["metric"] == "loss":
        axes.invert_yaxis()
        way = "the axis runs downwards: up is better"
    axes.set_title(f"Held-out {results['metric']} ({way}); band: fp32 and its spread")
    axes.grid()


def _draw_speed(axes: Any, results: Mapping[str, Any]) -> None:
    rows, names = results["rows"], _names(results["rows"])
    base = next((row for row in rows if row["codec"] == "fp32"), None)
    if base is None:
        axes.set_axis_off()
        return
    for name, best in _fastest([row for row in rows if row["codec"] != "fp32"]).items():
        label = f"{name} ({best['bits']:.2f} bits/value)"
        axes.plot(SHARES, speedups(best, base, SHARES), markersize=4, label=label, **_style(names, name))
    axes.axhline(PAPER_SPEEDUP, color=SOFT, linestyle=":", linewidth=1, zorder=1)
    axes.annotate(
        f"paper, OSCAR-HW: {PAPER_SPEEDUP:g}x", (SHARES[-1], PAPER_SPEEDUP), (0, -4), "data", "offset points",
        ha="right",
        va="top", color=SOFT, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )  # fmt: skip
    logarithmic(axes.yaxis)
    axes.set_xlabel("part of an fp32 iteration spent communicating")
    axes.set_title(
        f"Training speed against fp32 at equal {results['metric']},\n"
        f"{LARGE / 1e6:g} M values (modelled, {CLOCK})"
    )
    if axes.get_legend_handles_labels()[0]:  # nobody holds fp32's accuracy: nothing to name
        axes.legend()
    axes.grid()
