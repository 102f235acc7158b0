"""The report and the figure of `oscar compare`, from compare.json alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oscar.plotting import GRID, INK, SOFT, figure, logarithmic, look
from oscar.tables import Table
from oscar_studies.contest import IDEAL, LARGE, fastest, fewest_bits, fp32_row, metric_at, names_of, speedups

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


def _ranking(result: Mapping[str, float], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line per method: its fewest bits, interpolated, and the bits of its cheapest trained point."""
    lines = []
    for name, bits in sorted(result.items(), key=lambda item: item[1]):
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
        result = fewest_bits(rows, point["mean"], better)
        ratios = [f"{name} {point['bits'] / bits:.2f}x" for name, bits in result.items() if _ours(name)]
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


Row = Mapping[str, Any]

SHARES = {0.25: "#9fc5c0", 0.5: "#1f9e89", 0.75: "#17695c", 0.9: "#0b332d"}  # of an fp32 iteration: links
PAPER_SPEEDUP = 1.38  # end to end, OSCAR-HW (HPCA 2026)
TOGETHER = 3  # lines of a panel; only that of methods with one point has more
FIRST_COLOUR = 3  # of the palette
FAINT = "#c3cad0"
ROOM = 0.2  # of a panel's width: what "diverged" takes
FAR = 2.0  # times the middle half of all points' distance: what is off by more is marked at the edge


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw bytes against the metric, and end-to-end speed-up against fp32's share of communication.

    results: what compare.json holds. Points far from all others, and those of which a run diverged, are
    marked at the edge of their panel, with their value.
    """
    rows, base = results["rows"], fp32_row(results["rows"])
    others = [row for row in rows if row["codec"] != "fp32"]
    panels = families(others or rows)
    holding = {} if base is None else fastest(others)
    heights = [0.7 + 2.2 * math.ceil(len(panels) / 2), (1.0 + 0.25 * len(holding)) * bool(holding)]
    with figure(path, height=0.3 + sum(heights), title=results["title"]) as drawn:
        parts = drawn.subfigures(2, 1, height_ratios=heights) if holding else [drawn.subfigures()]
        _points(parts[0], results, panels, base)
        if base is not None and holding:
            _speed(parts[1], base, holding, results["metric"])


def families(rows: Sequence[Row]) -> list[list[str]]:
    """Return the contenders of each panel: those of one method, at most `TOGETHER`; last all of one point."""
    methods: dict[str, list[str]] = {}
    for name in names_of(rows):
        methods.setdefault(next(row["codec"] for row in rows if row["contender"] == name), []).append(name)
    result: list[list[str]] = []
    rest: list[str] = []
    for names in methods.values():
        if len(names) == 1 and sum(row["contender"] == names[0] for row in rows) == 1:
            rest += names
        else:
            parts = math.ceil(len(names) / TOGETHER)
            result += [[names[i] for i in part] for part in np.array_split(np.arange(len(names)), parts)]
    return result + [rest] * bool(rest)


def edge(rows: Sequence[Row], base: Row | None) -> float:
    """Return the worst metric that the panels show: what is far beyond all others has no part in it."""
    means = np.array([row["mean"] for row in rows if not row["diverged"]] or [0.0])
    up = rows[0]["metric"] == "accuracy"
    best = float(means.max() if up else means.min()) if base is None else base["mean"]
    worse = best - means if up else means - best
    low, high = np.quantile(worse, (0.25, 0.75))
    reach = 1.08 * float(worse[worse <= high + FAR * max(high - low, 1e-9)].max())
    reach = max(reach, 1e-3 * abs(best), 1e-9)
    return best - reach if up else best + reach


def _points(part: Any, results: Mapping[str, Any], panels: Sequence[Sequence[str]], base: Row | None) -> None:
    """Draw a panel for each family of contenders; all have the same scales, and no two lines one colour."""
    rows, metric = results["rows"], results["metric"]
    places = part.add_gridspec(math.ceil(len(panels) / 2), 2)
    first, number = None, FIRST_COLOUR
    for index, names in enumerate(panels):
        alone = index == len(panels) - 1 and index % 2 == 0
        place = places[index // 2, :] if alone else places[index // 2, index % 2]
        axes = part.add_subplot(place, sharex=first, sharey=first)
        if first is None:
            first = axes
            _scales(axes, rows, edge(rows, base))
        if base is not None:
            band = base["mean"] - base["spread"], base["mean"] + base["spread"]
            axes.axhspan(*band, color=GRID, zorder=0)
        shown = [row for row in rows if not row["diverged"] and row["contender"] not in names]
        if len(names) <= TOGETHER:
            axes.plot([row["bits"] for row in shown], [row["mean"] for row in shown], ".",
                      color=FAINT, markersize=4, zorder=1)  # fmt: skip
        _family(axes, rows, {name: look(number + i) for i, name in enumerate(names)})
        number += len(names)
        axes.tick_params(labelleft=index % 2 == 0, labelbottom=index >= len(panels) - 2)
        if index >= len(panels) - 2:
            axes.set_xlabel("bits per value that crosses a link")
    told = "Band: fp32 and its spread. " if base is not None else ""
    part.suptitle(
        f"Held-out {metric} against bytes: up is better. {told}Small dots: methods of the other panels.",
        x=0.012, ha="left", fontsize=9.5, color=SOFT,
    )  # fmt: skip


def _scales(axes: Any, rows: Sequence[Row], worst: float) -> None:
    """Set the axes that all panels share."""
    logarithmic(axes.xaxis)
    bits = [row["bits"] for row in rows]
    axes.set_xlim(min(bits) / 1.4, max(bits) * 1.4)
    ends = [row["mean"] + sign * row["spread"] for row in rows if not row["diverged"] for sign in (-1, 1)]
    best = (max if rows[0]["metric"] == "accuracy" else min)(ends, default=worst)
    axes.set_ylim(worst, best + 0.08 * (best - worst))


def _family(axes: Any, rows: Sequence[Row], styles: Mapping[str, Any]) -> None:
    """Draw a line for each of the named contenders."""
    beyond: list[tuple[Row, str]] = []
    for name, style in styles.items():
        own = sorted((row for row in rows if row["contender"] == name), key=lambda row: float(row["bits"]))
        line = [row for row in own if not row["diverged"]]
        spread = [row["spread"] for row in line]
        axes.errorbar([row["bits"] for row in line], [row["mean"] for row in line], spread, label=name,
                      capsize=2, markersize=4.5, linewidth=1.8, elinewidth=1, zorder=3, **style)  # fmt: skip
        beyond += [(row, style["color"]) for row in own if _is_beyond(axes, row)]
    for step, (row, colour) in enumerate(sorted(beyond, key=lambda one: float(one[0]["bits"]))):
        at, height = row["bits"], 0.04 + 0.08 * step
        left = axes.transAxes.inverted().transform(axes.transData.transform((at, 0)))[0] > ROOM
        axes.plot(at, height, "v", color=colour, markersize=5, transform=axes.get_xaxis_transform())
        axes.annotate(
            "diverged" if row["diverged"] else f"{row['mean']:.3f}",
            (at, height), (-5 if left else 5, 0), axes.get_xaxis_transform(), "offset points",
            ha="right" if left else "left", va="center", fontsize=8.5, color=colour,
        )  # fmt: skip
    place = "lower right" if len(styles) <= TOGETHER else "lower left"  # the upper left has the best points
    axes.legend(labelcolor="linecolor", loc=place, frameon=True, framealpha=0.85, edgecolor="none",
                handlelength=1.2, borderpad=0.2, labelspacing=0.3)  # fmt: skip
    axes.grid()


def _is_beyond(axes: Any, row: Row) -> bool:
    """Whether a point has no place in the panel: its run diverged, or it is worse than the axis shows."""
    worst, best = axes.get_ylim()
    return bool(row["diverged"]) or (row["mean"] - worst) * (best - worst) < 0


def _speed(part: Any, base: Any, holding: Mapping[str, Any], metric: str) -> None:
    """Draw how much faster each method's fastest point is that holds fp32's metric, by the links' share."""
    axes = part.subplots()
    order = sorted(holding, key=lambda name: float(holding[name]["large_s"]))
    for place, name in enumerate(order):
        gains = speedups(holding[name], base, list(SHARES))
        axes.plot(gains, [place] * len(gains), color=GRID, linewidth=2, zorder=1)
        for gain, (share, colour) in zip(gains, SHARES.items(), strict=True):
            axes.plot(gain, place, "o", color=colour, markersize=5, zorder=2,
                      label=f"{share:.0%}" if place == 0 else None)  # fmt: skip
        axes.annotate(f"{gains[-1]:.2g}x", (gains[-1], place), (6, 0), "data", "offset points",
                      va="center", fontsize=8.5, color=INK)  # fmt: skip
    axes.axvline(PAPER_SPEEDUP, color=SOFT, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(order)), [f"{name} ({holding[name]['bits']:.2f} bits/value)" for name in order])
    axes.set_ylim(len(order) - 0.5, -0.6)
    logarithmic(axes.xaxis)
    axes.margins(x=0.08)
    axes.grid(axis="x")
    axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=len(SHARES), handletextpad=0.1, columnspacing=1
    )
    part.suptitle(
        f"Training speed against fp32 at equal {metric}, by the part of its iteration spent communicating.\n"
        f"{LARGE / 1e6:g} M values, modelled, {IDEAL}. Dotted: the paper's {PAPER_SPEEDUP:g}x (OSCAR-HW).",
        x=0.012, ha="left", fontsize=9.5, color=SOFT,
    )  # fmt: skip
