"""The figure of a comparison, drawn from results.json alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.experiment.table import Results, best_rows
from oscar.files import save_figure

REFERENCES = {"fp32": 32, "bf16, int16": 16}  # what links carry without a coder
INK, SOFT, GRID = "#22303c", "#6b7883", "#e3e8ec"
PALETTE = ("#8a97a3", "#4f6d8f", "#c98a2b", "#1f9e89", "#b5367a", "#5b4bb5", "#d1495b", "#3b7a57")


def draw(results: Results, path: Path) -> None:
    """Draw bits per value by method and plan, and along the steps of the ring, into a PNG at `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = without_math(results)
    rows = [row for row in results["methods"] if row["coded"]]
    names = list(dict.fromkeys(row["name"] for row in rows))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    figure = Figure(figsize=(12.5, 5.4), dpi=160, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    _methods(left, rows, names, colours)
    _steps(right, results, colours)
    model = results["model"]
    figure.suptitle(
        f"AllReduce of {model['name']}: {model['values']:,} values, {results['nodes']} nodes, "
        f"quantiser {results['quantiser']}",
        x=0.012,
        ha="left",
        fontsize=13,
        fontweight="bold",
        color=INK,
    )
    save_figure(figure, path)


def without_math(results: Any) -> Any:
    """Return a copy of results in which no text, as a method's name, reads as a formula to matplotlib."""
    return json.loads(json.dumps(results).replace("$", r"\\$"))


def clean(axes: Any, title: str) -> None:
    """Give a panel its title and take away what carries no data."""
    axes.set_title(title, loc="left", fontsize=10.5, color=SOFT, pad=10)
    axes.tick_params(length=0, labelsize=9.5, colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.set_axisbelow(True)


def _methods(axes: Any, rows: Sequence[Mapping[str, Any]], names: Sequence[str], colours: Any) -> None:
    """One bar per method and plan, the best plan of each method in full colour."""
    place, ticks = 0.0, []
    longest = max([row["step_sync_bits"] for row in rows], default=0.0) or 1.0
    for name in names:
        mine = [row for row in rows if row["name"] == name]
        ticks.append(place + (len(mine) - 1) / 2)
        for row in mine:
            bits, strong = row["step_sync_bits"], row["best"]
            axes.barh(place, bits, height=0.8, color=colours[name] if strong else _pale(colours[name]))
            axes.text(
                bits + longest * 0.012,
                place,
                f"{bits:.2f}  {row['plan']}  ({row['ratio_vs_fp32']:.1f}x)",
                va="center",
                fontsize=8.5,
                color=INK if strong else SOFT,
                fontweight="bold" if strong else "normal",
            )
            place += 1
        place += 0.6
    axes.set_yticks(ticks, names)
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.32)
    axes.grid(axis="x", color=GRID)
    outside = [f"{name} {bits:g}" for name, bits in REFERENCES.items() if bits > longest * 1.32]
    for name, bits in REFERENCES.items():
        if bits <= longest * 1.32:
            axes.axvline(bits, color=SOFT, linestyle=(0, (3, 2)), linewidth=1)
            axes.annotate(name, (bits, 1), (3, -9), ("data", "axes fraction"), "offset points", fontsize=8)
    beyond = f"\noff the scale: {'; '.join(outside)}" if outside else ""
    clean(axes, "Bits per value that a ring waits for (gain over fp32), best plan bold" + beyond)


def _pale(colour: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return tuple(1 - 0.36 * (1 - part) for part in to_rgb(colour))


def _steps(axes: Any, results: Results, colours: Any) -> None:
    """One line per method along the steps of the ring: what each step's frames cost."""
    steps = results["nodes"] - 1
    ends = []
    for row in best_rows(results):
        if not row["coded"] or not row["step_bits"]:
            continue
        colour, bits = colours[row["name"]], row["step_bits"]
        for phase in range(2):
            at = range(1 + phase * steps, 1 + (phase + 1) * steps)
            part = bits[phase * steps : (phase + 1) * steps]
            axes.plot(at, part, color=colour, linewidth=2, marker="o", markersize=3.5 if steps < 24 else 0)
        ends.append((bits[-1], row["name"], colour))
    axes.set_ylim(0, max([max(row["step_bits"], default=1) for row in best_rows(results) if row["coded"]],
                         default=1) * 1.12)  # fmt: skip
    axes.grid(axis="y", color=GRID)
    if ends:
        axes.axvline(steps + 0.5, color=GRID, linewidth=1.5)
        axes.set_xlim(0.5, 2 * steps + 0.5 + 0.34 * 2 * steps)
        _label(axes, ends, 2 * steps + 0.35)
        for middle, text in ((0.5 + steps / 2, "reduce-scatter"), (0.5 + 1.5 * steps, "all-gather")):
            axes.annotate(text, (middle, 1), (0, -4), ("data", "axes fraction"), "offset points",
                          ha="center", va="top", fontsize=9, color=SOFT)  # fmt: skip
        ticks = list(range(1, 2 * steps + 1, max(1, steps // 7)))
        axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.set_xlabel("step of the ring", fontsize=9.5, color=SOFT, loc="left")
    clean(axes, "Bits per value in each step, best plan of each method:\nsums of more workers carry more")


def _label(axes: Any, ends: Sequence[tuple[float, str, str]], x: float) -> None:
    """Write names at the ends of the lines, pushed apart where they would overlap."""
    top = max(axes.get_ylim()[1], 1e-9)
    heights = spread_labels([bits for bits, _, _ in sorted(ends)], top * 0.055)
    for height, (_, name, colour) in zip(heights, sorted(ends), strict=True):
        axes.text(x, height, name, va="center", fontsize=9, color=colour, fontweight="bold")


def spread_labels(wanted: Sequence[float], gap: float, low: float = 0.0) -> list[float]:
    """Return heights as near to the rising `wanted` ones as a distance of `gap` allows (least squares),
    from `low` up."""
    groups: list[tuple[float, int]] = []  # mean of wanted height less the room below, members
    for i, height in enumerate(wanted):
        mean, size = height - i * gap, 1
        while groups and groups[-1][0] >= mean:
            before, members = groups.pop()
            mean, size = (before * members + mean * size) / (members + size), members + size
        groups.append((mean, size))
    flat = [mean for mean, size in groups for _ in range(size)]
    return [max(mean, low) + i * gap for i, mean in enumerate(flat)]
