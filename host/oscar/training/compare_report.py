"""What `oscar compare` shows: the table, the answers drawn from it, and the Pareto figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.experiment.figure import without_math
from oscar.files import save_figure
from oscar.training.compare import LARGE, fewest_bits, metric_at, speedups

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of an fp32 iteration spent communicating
HALF = 0.5
PAPER_SPEEDUP = 1.38  # end to end, OSCAR-HW (HPCA 2026)


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table as lines: one per contender and point, the finest first."""
    metric = rows[0]["metric"]
    lines = [
        f"{'method':<22} {'setting':<44} {'seeds':>5} {metric:>8} {'spread':>7} {'worse by':>15} holds "
        f"{'bits/value':>10} {'sync b/v':>9} front"
    ]
    for row in rows:
        worse = "-" if row["worse_by"] is None else f"{row['worse_by']:.4f} ±{row['paired_error']:.4f}"
        lines.append(
            f"{row['contender']:<22} {_setting(row):<44} {row['seeds']:>5} {row['mean']:>8.4f} "
            f"{row['spread']:>7.4f} {worse:>15} {'yes' if row['holds'] else 'no':<5} {row['bits']:>10.3f} "
            f"{row['sync_bits']:>9.3f} {'*' if row['front'] else ''}"
        )
    return [line.rstrip() for line in lines]


def _setting(row: Mapping[str, Any]) -> str:
    """Return the point's label in 44 characters, behind how many of its runs diverged."""
    lost = f"({row['diverged']} diverged) " if row["diverged"] else ""
    return f"{lost}{row['label']}"[:44]


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
    for name in dict.fromkeys(row["contender"] for row in rows if row["codec"] == "count-sketch"):
        lines += _against(rows, name, better)
    lines.append(
        "# end to end where fp32 communicates for half of the time (modelled: links alone, "
        f"{LARGE / 1e6:g} M values, no overlap, compression takes no time):"
    )
    for name in dict.fromkeys(row["contender"] for row in rows):
        holding = [row for row in rows if row["contender"] == name and row["holds"]]
        if holding:
            best = min(holding, key=lambda row: row["large_s"])
            lines.append(f"#   {name:<22} {speedups(best, base, [HALF])[0]:.2f}x  ({best['label'] or '-'})")
    return lines


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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = without_math(results)
    figure = Figure(figsize=(13, 5.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    pareto, speed = figure.subplots(1, 2)
    _draw_pareto(pareto, results)
    _draw_speed(speed, results)
    figure.suptitle(results["title"])
    save_figure(figure, path)


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["contender"] for row in rows))


def _style(name: str) -> dict[str, Any]:
    ours = _ours(name)
    return {"linewidth": 2.2 if ours else 1.0, "zorder": 3 if ours else 2, "linestyle": "-" if ours else "--"}


MARKERS = "osD^v<>PX*hdp"


def _draw_pareto(axes: Any, results: Mapping[str, Any]) -> None:
    rows = results["rows"]
    for i, name in enumerate(_names(rows)):
        drawn = (row for row in rows if row["contender"] == name and not row["diverged"])
        own = sorted(drawn, key=lambda row: row["bits"])
        if not own:
            continue
        axes.errorbar(
            [row["bits"] for row in own],
            [row["mean"] for row in own],
            yerr=[row["spread"] for row in own],
            marker=MARKERS[i % len(MARKERS)],
            capsize=2,
            color=f"C{i % 10}",
            label=name,
            **_style(name),
        )
    base = next((row for row in rows if row["codec"] == "fp32"), None)
    if base is not None:
        axes.axhspan(base["mean"] - base["spread"], base["mean"] + base["spread"], color="0.9", zorder=0)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bits per value that crosses a link")
    if results["metric"] == "loss":
        axes.invert_yaxis()
    axes.set_ylabel(f"held-out {results['metric']} (band: fp32 and its spread)")
    axes.set_title("bytes against " + results["metric"])
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)


def _draw_speed(axes: Any, results: Mapping[str, Any]) -> None:
    rows = results["rows"]
    base = next((row for row in rows if row["codec"] == "fp32"), None)
    if base is None:
        axes.set_axis_off()
        return
    for i, name in enumerate(_names(rows)):
        holding = [
            row for row in rows if row["contender"] == name and row["holds"] and row["codec"] != "fp32"
        ]
        if holding:
            best = min(holding, key=lambda row: row["large_s"])
            label = f"{name} ({best['bits']:.2f} b/v)"
            axes.plot(SHARES, speedups(best, base, SHARES), color=f"C{i % 10}", label=label, **_style(name))
    axes.axhline(PAPER_SPEEDUP, color="0.4", linestyle=":", linewidth=1)
    text = f" paper, OSCAR-HW: {PAPER_SPEEDUP:g}x"
    axes.text(SHARES[0], PAPER_SPEEDUP, text, va="bottom", fontsize="small", color="0.3")
    axes.set_yscale("log", base=2)
    axes.set_xlabel("part of an fp32 iteration spent communicating")
    axes.set_ylabel("training speed against fp32, at equal " + results["metric"])
    axes.set_title(f"end to end, {LARGE / 1e6:g} M values (modelled)")
    if axes.get_legend_handles_labels()[0]:  # nobody holds fp32's accuracy: nothing to name
        axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
