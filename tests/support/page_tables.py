"""Pictures of the documentation, drawn from the tables of its pages alone.

`PICTURES[name](path)` draws one: how a picture is made anew, and what a test holds the kept one to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oscar.plotting import INK, PALETTE, figure, logarithmic

README_ROW = re.compile(
    r"^\| \**(\w+)[^|]*\| \**([\d.]+)\** \|", re.MULTILINE
)  # a method's first word, its bits
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MEASURED = re.compile(r"^(?P<name>.{22}) +\d+ +\d+ +\w+ +sum +-1 +(?P<us>\d+) ")


def block(page: str, command: str) -> list[str]:
    """Return the lines of what a command printed, as its page has them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.partition(f"\n$ {command}\n")[2].partition("\n```")[0].splitlines()


def readme(path: Path) -> None:
    """Draw README's picture: bits from its table, speed over fp32 from the lab's table of today's coder."""
    table = dict(README_ROW.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    bits = {"fp32": 32.0, "bf16": 16.0, "int8": 8.0, "Atalanta": float(table["Atalanta"])}
    bits |= {name: float(table[name]) for name in ("zstd", "OSCAR")}
    with figure(path, height=3.6, title="") as drawn:
        left, right = drawn.subplots(1, 2, width_ratios=[1, 1.25])
        colours = [PALETTE[0]] * (len(bits) - 1) + [PALETTE[3]]
        left.barh(list(bits), list(bits.values()), color=colours)
        for place, value in enumerate(bits.values()):
            left.text(
                value + 0.5, place, f"{value:g}", va="center", fontweight="bold" if place == 5 else None
            )
        left.set(xlim=(0, 37), xticks=[])
        left.invert_yaxis()
        left.set_title("Bits per gradient value\non the busiest link")
        _speed_ups(right)


LINES = {  # of the lab's methods: name, colour, style, and where the name stands
    "gloo int8": ("Gloo int8", PALETTE[0], "-", (2.3, 4.5)),
    "asc": ("OSCAR, fine steps (dashed)", PALETTE[3], "--", (0.1, 2.9)),
    "asc c=1": ("OSCAR, coarse steps", PALETTE[3], "-", (0.25, 10.5)),
}


def _speed_ups(axes: Any) -> None:
    """Draw how many times as fast as Gloo fp32 methods were, by rate."""
    gains = lab_gains()
    for method, (name, colour, style, place) in LINES.items():
        rates, times = list(gains[method]), list(gains[method].values())
        axes.plot(rates, times, style, color=colour, marker="o", linewidth=2)
        axes.text(*place, name, color=colour, fontweight="bold")
    axes.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.text(0.1, 1.06, "Gloo fp32")
    for axis in (axes.xaxis, axes.yaxis):
        logarithmic(axis)
    axes.set(xlim=(0.08, 12.5), ylim=(0.25, 16), xticks=[0.1, 1, 2.5, 5, 10], yticks=[0.25, 0.5, 1, 2, 4, 8])
    axes.set_xticklabels(["0.1", "1", "2.5", "5", "10"])
    axes.grid(axis="y")
    axes.set_xlabel("Gb/s of the link")
    axes.set_title("Measured on CPUs, two hosts:\ntimes as fast as Gloo fp32")


def lab_gains() -> dict[str, dict[float, float]]:
    """Return the measured gains over Gloo fp32 with today's coder, by method and rate (Gb/s)."""
    gains: dict[str, dict[float, float]] = {}
    gbps = base = 0.0
    for line in block("results/lab.md", "oscar lab configs/lab_short.yaml"):
        if case := re.match(r"# \d+ hosts, (\d+) Mb/s", line):
            gbps = int(case[1]) / 1000
        elif row := MEASURED.match(line):
            base = float(row["us"]) if row["name"].strip() == "gloo fp32" else base
            gains.setdefault(row["name"].strip(), {})[gbps] = base / float(row["us"])
    return gains


PICTURES: dict[str, Callable[[Path], None]] = {
    "allreduce": readme,
}
