"""The figures of `oscar bench sparsifiers` and `oscar bench select`: densities over time, work by stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oscar.plotting import INK, PALETTE, SOFT, End, figure, label_ends, logarithmic
from oscar.tables import Row
from oscar_lab.bench._stages import STAGES

BAND = 0.1  # of the density: what a mean may be off


def draw_densities(path: Path, rows: Sequence[Row]) -> None:
    """Draw what each rule sends in relation to k, iteration by iteration: a panel for each workload and k."""
    panels = list(dict.fromkeys((row["workload"], row["density"]) for row in rows))
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    title = "What is sent (the union) in relation to k"
    with figure(path, height=0.6 + 3.4 * len(panels), title=title) as drawn:
        every = drawn.subplots(len(panels), 1, squeeze=False, sharey=True)[:, 0]
        names: list[list[End]] = []
        for axes, (workload, density) in zip(every, panels, strict=True):
            axes.set_title(f"{workload}, k = {density:g} of the values")
            axes.axhspan(1 - BAND, 1 + BAND, color=SOFT, alpha=0.2, linewidth=0)
            logarithmic(axes.yaxis)
            axes.set_xlabel("iteration")
            axes.grid()
            names.append([])
            own = [row for row in rows if (row["workload"], row["density"]) == (workload, density)]
            for row in own:
                color, unions = PALETTE[rules.index(row["rule"]) % len(PALETTE)], row["unions"]
                axes.plot(unions, color=color, linewidth=1)
                names[-1].append(End(len(unions) - 1, max(unions[-1], 1e-3), row["rule"], color))
            axes.set_xlim(0, max(len(row["unions"]) for row in own))
        for axes, ends in zip(every, names, strict=True):  # the panels' common scale is known by now
            label_ends(axes, ends)


def draw_stages(path: Path, rows: Sequence[Row]) -> None:
    """Draw each rule's microseconds, stage upon stage: a panel for each workload."""
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    title, height = "Work of the busiest rank by stage, microseconds", 0.6 + 2.8 * len(workloads)
    with figure(path, height=height, title=title) as drawn:
        for axes, workload in zip(
            drawn.subplots(len(workloads), 1, squeeze=False)[:, 0], workloads, strict=True
        ):
            own = [row for row in rows if row["workload"] == workload and row["total"] is not None][::-1]
            left = [0.0] * len(own)
            for stage, color in zip(STAGES, PALETTE, strict=False):
                took = [row[stage] for row in own]
                axes.barh(range(len(own)), took, left=left, color=color, label=stage)
                left = [a + b for a, b in zip(left, took, strict=True)]
            for at, total in enumerate(left):
                axes.text(total, at, f" {total:,.0f}", va="center", color=INK, fontsize=9)
            axes.set_yticks(range(len(own)), [row["rule"] for row in own])
            axes.set_xlim(0, 1.15 * max(left))
            axes.set_title(workload)
            axes.legend(loc="upper right")
