"""Draws who receives, decodes, encodes and sends when, as the rows of `make sim` have it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oscar.plotting import PALETTE, figure

LANES = (  # of a NIC: label, key of a row, and the spans' kind there
    ("frames come", "spans", "way", "in"),
    ("units decode", "work", "what", "decode"),
    ("units encode", "work", "what", "encode"),
    ("frames leave", "spans", "way", "out"),
)
HEIGHT = 0.11  # inches of a lane


def draw(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Draw the last AllReduce of each run into `path`, a panel for each."""
    last = list({(row["schedule"], row["driver"], row["nics"]): row for row in rows}.values())
    options, mhz = last[0]["options"], last[0]["mhz"]
    units = "1 unit" if options["units"] == 1 else f"{options['units']} units"
    title = (
        f"{options['nodes']} NICs of {units}, RTL clock by clock: {options['values']:,} values, {mhz:g} MHz"
    )
    panel = 0.45 + HEIGHT * (len(LANES) + 1) * options["nodes"]
    with figure(path, height=1.1 + panel * len(last), title=title) as drawn:
        panels = drawn.subplots(len(last), sharex=True, squeeze=False)[:, 0]
        for axes, row in zip(panels, last, strict=True):
            _panel(axes, row, mhz)
        panels[-1].set_xlabel("us from the first command")
        handles, names = panels[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=len(LANES))


def _panel(axes: Any, row: dict[str, Any], mhz: float) -> None:
    nodes, step = row["options"]["nodes"], 1 / (len(LANES) + 1)
    for place, (label, key, kind, name) in enumerate(LANES):
        bars = [
            (node + (place - 1.5) * step, span["begin"] / mhz, (span["end"] - span["begin"] + 1) / mhz)
            for node, spans in enumerate(row[key])
            for span in spans
            if span[kind] == name
        ]
        heights, begins, widths = zip(*bars, strict=True) if bars else ((), (), ())
        axes.barh(heights, widths, step, left=begins, color=PALETTE[1 + place], label=label)
    axes.axvline(row["us"], color=PALETTE[0], linewidth=1)
    axes.set_xlim(left=0)
    names = [f"NIC {node}" if node < row["nics"] else f"software {node}" for node in range(nodes)]
    axes.set_yticks(range(nodes), names)
    axes.set_ylim(nodes - 0.5, -0.5)
    axes.set_title(f"{row['schedule']}, commands by {row['driver']}: {row['us']:.1f} us")
