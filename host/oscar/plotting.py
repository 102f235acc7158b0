"""What all figures share: the style, the frame of a figure, names at the ends of lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from oscar.files import save_figure

STYLE = Path(__file__).with_name("figure.mplstyle")
INK, SOFT, GRID = "#22303c", "#6b7883", "#e3e8ec"  # as in the style
PALETTE = (
    "#8a97a3", "#4f6d8f", "#c98a2b", "#1f9e89", "#b5367a", "#5b4bb5", "#d1495b", "#3b7a57",
    "#3fa7d6", "#7a4a1e", "#76a021", "#d9679a", "#1b2a49", "#ee7733", "#a98bd6", "#6f6a1f",
    "#b99400", "#8c2d2d",
)  # fmt: skip
MARKERS = "osD^v<>PX*hdp"
NUMBERS = "Numbers"  # the text in a PNG that has them
WIDTH = 8.6  # inches of every figure: letters of 9 points are 10 pixels high where a page shows it 690 wide
TITLE_LETTERS = 78  # of a figure's title, to a line
LABEL_POINTS = 11.5  # from one name at the ends of lines to the next


@contextmanager
def figure(path: Path, *, height: float, title: str) -> Iterator[Any]:
    """Yield an empty matplotlib figure of `height` inches; it is saved at `path` when the block ends.

    Nothing is saved where the block raises. A PNG keeps the numbers that are drawn in it (`numbers_in`).
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(fname=STYLE):
        drawn = Figure(figsize=(WIDTH, height))
        FigureCanvasAgg(drawn)
        drawn.suptitle(fill(title, TITLE_LETTERS), x=0.012, ha="left", fontsize=11.5, fontweight="bold")
        yield drawn
        options = {"metadata": {NUMBERS: json.dumps(_numbers(drawn))}} if path.suffix == ".png" else {}
        save_figure(drawn, path, **options)


def _numbers(drawn: Any) -> list[dict[str, Any]]:
    """Return what each panel shows, to five digits: lengths of its bars, heights of its lines."""
    panels = []
    for axes in drawn.axes:
        lines = [line.get_ydata() for line in axes.get_lines() if line.get_transform() is axes.transData]
        bars = [
            bar.get_width() if group.orientation == "horizontal" else bar.get_height()
            for group in axes.containers
            if hasattr(group, "orientation")  # no error bars
            for bar in group
        ]
        short = [[float(f"{y:.5g}") for y in heights] for heights in (bars, *lines)]
        panels.append({"bars": short[0], "lines": short[1:]})
    return panels


def numbers_in(path: Path) -> list[dict[str, Any]] | None:
    """Return the numbers that a PNG of `figure` shows, by panel; None of another picture."""
    from PIL import Image

    with Image.open(path) as picture:
        text = picture.info.get(NUMBERS)
    return None if text is None else json.loads(text)


def look(index: int) -> dict[str, Any]:
    """Return colour and marker of the line with this number; no two of the first 18 share a colour, no two
    of the first 234 both."""
    return {"color": PALETTE[index % len(PALETTE)], "marker": MARKERS[index % len(MARKERS)]}


def logarithmic(axis: Any) -> None:
    """Make an axis logarithmic with ticks at 1, 2 and 5, written as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


@dataclass(frozen=True)
class End:
    """Where a line ends, in the panel's data, and what is written there."""

    x: float
    y: float
    name: str
    color: str


def label_ends(axes: Any, ends: Sequence[End]) -> None:
    """Write names to the right of lines' ends, pushed apart, each with a leader where it had to move.

    The panel's limits and scales have to be set, and all else be drawn. Names may stand outside the panel.
    """
    if not ends:
        return
    ends = sorted(ends, key=lambda end: end.y)
    axes.figure.draw_without_rendering()  # the layout tells how high the panel is
    gap = LABEL_POINTS / 72 * axes.figure.dpi / axes.bbox.height
    to_panel = axes.transData + axes.transAxes.inverted()
    places = [to_panel.transform((end.x, end.y)) for end in ends]
    heights = spread_labels([float(place[1]) for place in places], gap, 0.02)
    top = max(1.0, 0.02 + gap * (len(ends) - 1))
    heights = [min(height, top - gap * (len(ends) - 1 - i)) for i, height in enumerate(heights)]
    left = max(float(place[0]) for place in places) + 0.035
    for (x, y), height, end in zip(places, heights, ends, strict=True):
        axes.plot(
            [x + 0.008, left - 0.006], [y, height],
            transform=axes.transAxes, color=end.color, linewidth=0.7, alpha=0.7, clip_on=False,
        )  # fmt: skip
        axes.text(
            left, height, end.name,
            transform=axes.transAxes, va="center", fontsize=9, color=end.color, fontweight="bold",
        )  # fmt: skip


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
