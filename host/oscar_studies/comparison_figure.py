"""The figure of a comparison, drawn from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.plotting import GRID, INK, PALETTE, SOFT, End, figure, label_ends
from oscar.results import Results
from oscar_studies.comparison_table import best_rows, of_scheme

REFERENCES = {"fp32": 32, "bf16, int16": 16}  # what links carry without a coder


def draw(results: Results, path: Path) -> None:
    """Draw bits per value by method and plan, and along the steps, into a PNG at `path`."""
    rows = [row for row in results["methods"] if row["coded"] or of_scheme(row)]
    names = list(dict.fromkeys(row["name"] for row in rows))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    model = results["model"]
    title = (
        f"AllReduce of {model['name']}: {model['values']:,} values, {results['nodes']} nodes, "
        f"quantiser {results['quantiser']}"
    )
    bars = 0.9 + 0.22 * (len(rows) + 0.6 * len(names))
    with figure(path, height=bars + 3.6, title=title) as drawn:
        upper, lower = drawn.subplots(2, 1, height_ratios=[bars, 3.3])
        _methods(upper, rows, names, colours)
        _steps(lower, results, colours)


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
                f"{bits:.2f}  {row['plan'].strip('-')}  ({row['ratio_vs_fp32']:.1f}x)",
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
    axes.grid(axis="x")
    outside = [f"{name} {bits:g}" for name, bits in REFERENCES.items() if bits > longest * 1.32]
    for name, bits in REFERENCES.items():
        if bits <= longest * 1.32:
            axes.axvline(bits, color=SOFT, linestyle=(0, (3, 2)), linewidth=1)
            axes.annotate(name, (bits, 1), (3, -9), ("data", "axes fraction"), "offset points", fontsize=8)
    beyond = f"\noff the scale: {'; '.join(outside)}" if outside else ""
    axes.set_title("Bits per value of the busiest sender (gain over fp32), best plan bold" + beyond)


def _pale(colour: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return tuple(1 - 0.36 * (1 - part) for part in to_rgb(colour))


def _steps(axes: Any, results: Results, colours: Any) -> None:
    """One line per method along the steps: what each step's frames cost."""
    steps = results["nodes"] - 1
    coded = [row for row in best_rows(results) if row["coded"]]
    alike = _alike([row for row in coded if len(row["step_bits"]) == 2 * steps > 0])
    highest = max((max(rows[0]["step_bits"]) for rows in alike), default=1.0)
    axes.set_ylim(0, highest * 1.12)
    axes.set_title("Bits per value in each step, best plan of each method: sums of more workers carry more")
    axes.set_xlabel("step")
    axes.grid(axis="y")
    if not alike:
        return
    for rows in alike:
        _line(axes, rows, steps, colours)
    axes.axvline(steps + 0.5, color=GRID, linewidth=1.5)
    axes.set_xlim(0.5, 2 * steps + 0.5)
    ends = [
        End(
            2 * steps,
            rows[0]["step_bits"][-1],
            ", ".join(row["name"] for row in rows),
            colours[rows[0]["name"]],
        )
        for rows in alike
    ]
    label_ends(axes, ends)
    for middle, text in ((0.5 + steps / 2, "reduce-scatter"), (0.5 + 1.5 * steps, "all-gather")):
        axes.annotate(text, (middle, 1), (0, -4), ("data", "axes fraction"), "offset points",
                      ha="center", va="top", fontsize=9, color=SOFT)  # fmt: skip
    ticks = list(range(1, 2 * steps + 1, max(1, steps // 7)))
    axes.set_xticks(ticks, [str(t) for t in ticks])


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the rows in groups whose lines lie on each other: to a thousandth of the bits."""
    groups: dict[tuple[float, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(round(bits, 3) for bits in row["step_bits"]), []).append(row)
    return list(groups.values())


def _line(axes: Any, rows: Sequence[Mapping[str, Any]], steps: int, colours: Any) -> None:
    """Draw one line for the group, in two parts; further rows of it are dashes in their own colours."""
    for index, row in enumerate(rows):
        dashes: Any = "-" if index == 0 else (4 * index, (4, 4 * len(rows) - 4))
        for phase in range(2):
            at = range(1 + phase * steps, 1 + (phase + 1) * steps)
            part = row["step_bits"][phase * steps : (phase + 1) * steps]
            dots = 3.5 if steps < 24 and index == 0 else 0
            axes.plot(at, part, color=colours[row["name"]], linewidth=2, linestyle=dashes, marker="o",
                      markersize=dots)  # fmt: skip
