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
    title = "OSCAR: 22 times fewer bits than fp32, and faster on links of up to 5 Gb/s"
    with figure(path, height=3.9, title=title) as drawn:
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


LAB_COMMANDS = (
    "oscar lab configs/lab_short.yaml",
    "oscar lab FILE   # configs/lab_short.yaml with nodes: 4, "
    "the case {hosts: 4, mbps: [100, 1000, 5000, 10000]}, repetitions: 4",
)


def lab_gains(command: str = LAB_COMMANDS[0]) -> dict[str, dict[float, float]]:
    """Return what `command` measured as gains over Gloo fp32, by method and rate (Gb/s)."""
    gains: dict[str, dict[float, float]] = {}
    gbps = base = 0.0
    for line in block("results/lab.md", command):
        if case := re.match(r"# \d+ hosts, (\d+) Mb/s", line):
            gbps = int(case[1]) / 1000
        elif row := MEASURED.match(line):
            base = float(row["us"]) if row["name"].strip() == "gloo fp32" else base
            gains.setdefault(row["name"].strip(), {})[gbps] = base / float(row["us"])
    return gains


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the rows below the table's `heading`, without bold marks."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text.count(f"\n{heading}\n") == 1, f"{page}: {heading}"
    lines = text.partition(f"\n{heading}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in lines]


def first_number(cell: str) -> float:
    """Return the number at the start of a cell."""
    match = re.match(r"-?[\d,]*\.?\d+", cell)
    assert match is not None, cell
    return float(match[0].replace(",", ""))


LAB = {  # the lab's methods: name, colour and style
    "gloo bf16": ("Gloo bf16", PALETTE[0], "-"),
    "asc": ("asc", PALETTE[3], "-"),
    "asc c=1": ("asc c=1", PALETTE[3], "--"),
    "asc 8 bits": ("asc 8 bits", PALETTE[2], "-"),
}


def lab(path: Path) -> None:
    """Draw how many times as fast as Gloo fp32 two and four hosts were, by rate."""
    title = "asc beats bf16 up to 2.5 Gb/s with two hosts, up to 1 Gb/s with four"
    with figure(path, height=3.9, title=title) as drawn:
        every = drawn.subplots(1, 2, sharey=True)
        for axes, hosts, command in zip(every, ("Two", "Four"), LAB_COMMANDS, strict=True):
            gains = lab_gains(command)
            for method, (name, colour, style) in LAB.items():
                if method in gains:
                    rates, times = list(gains[method]), list(gains[method].values())
                    axes.plot(rates, times, style, color=colour, marker="o", label=name)
            axes.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
            axes.text(0.1, 1.06, "Gloo fp32")
            for axis in (axes.xaxis, axes.yaxis):
                logarithmic(axis)
            axes.set(xlim=(0.08, 12.5), ylim=(0.35, 16), xticks=[0.1, 1, 5, 10])
            axes.set_xticklabels(["0.1", "1", "5", "10"])
            axes.grid(axis="y")
            axes.set_xlabel("Gb/s of the link")
            axes.set_title(f"{hosts} hosts: times as fast as fp32")
        every[0].legend(loc="upper right")


def tuning(path: Path) -> None:
    """Draw the milliseconds of a transformer's iteration by the rate of the link."""
    rows = table("results/tuning.md", "| Gb/s | none | all ASC | `espresso` | joint | none over joint |")
    rates, names = [first_number(row[0]) for row in rows], ("no compression", "all ASC", "espresso", "joint")
    with figure(
        path, height=3.6, title="Compressing this model pays up to 1 Gb/s, and gains nothing at 10 Gb/s"
    ) as drawn:
        axes = drawn.subplots()
        for place, (name, colour) in enumerate(zip(names, PALETTE, strict=False), 1):
            times = [first_number(row[place]) for row in rows]
            axes.plot(rates, times, marker="o", color=colour, linewidth=2, label=name)
        for axis in (axes.xaxis, axes.yaxis):
            logarithmic(axis)
        axes.set(xticks=rates, ylim=(35, 800), yticks=[40, 50, 100, 200, 500])
        axes.set_xticklabels([f"{rate:g}" for rate in rates])
        axes.grid(axis="y")
        axes.set_xlabel("Gb/s of the link")
        axes.set_title("Milliseconds of a transformer's iteration, four nodes, modelled")
        axes.legend(loc="upper right")


def sparse_exchanges(path: Path) -> None:
    """Draw the kilobytes of the busiest port by exchange, value by value."""
    rows = table(
        "results/sparse.md", "| exchange | N = 8, values | N = 8, rows | N = 16, values | N = 16, rows |"
    )
    names = [row[0].partition(" (")[0] for row in rows]
    with figure(path, height=3.9, title="Zen sends seven to nine times less than a dense ring") as drawn:
        for axes, place, nodes in zip(drawn.subplots(1, 2, sharey=True), (1, 3), (8, 16), strict=True):
            sizes = [first_number(row[place]) for row in rows]
            axes.barh(names, sizes, color=[PALETTE[3 if "Zen" in name else 0] for name in names])
            for height, size in enumerate(sizes):
                axes.text(size + 60, height, f"{size:,.0f}", va="center")
            axes.set(xlim=(0, 1.25 * max(sizes)), xticks=[])
            axes.set_title(f"{nodes} nodes: kilobytes of the busiest port")
        axes.invert_yaxis()


DENSITIES = 0.01, 0.05, 0.1


def sparse_density(path: Path) -> None:
    """Draw the union over k at three densities."""
    heading = "| union over k | embedding 0.01 | 0.05 | 0.1 | CNN 0.01 | 0.05 | 0.1 |"
    rows = {row[0]: row[1:] for row in table("results/sparse.md", heading)}
    title = "Workers that choose for themselves send two to five times the values asked for"
    with figure(path, height=3.6, title=title) as drawn:
        for axes, start, name in zip(
            drawn.subplots(1, 2, sharey=True), (0, 3), ("embedding", "CNN"), strict=True
        ):
            for index, rule in enumerate(("topk", "deft", "micro", "exdyna")):
                heights = [first_number(cell) for cell in rows[rule][start : start + 3]]
                axes.bar(
                    [place + 0.2 * (index - 1.5) for place in range(3)], heights, 0.19,
                    color=PALETTE[(6, 0, 1, 3)[index]], label=rule,
                )  # fmt: skip
            axes.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
            axes.set_xticks(range(3), [f"{100 * density:g} %" for density in DENSITIES])
            axes.set_xlabel("share of the values asked for (k)")
            axes.set_title(f"{name}: values sent over k, eight nodes")
        axes.legend(loc="upper right")


STAGES = "choose", "name positions", "add", "apply"


def sparse_select(path: Path) -> None:
    """Draw each rule's microseconds, stage upon stage."""
    heading = "| | embedding: select | index | reduce | apply | CNN: select | index | reduce | apply |"
    rows = [row for row in table("results/sparse.md", heading) if row[2]][::-1]
    names = [row[0].partition(" (")[0] for row in rows]
    title = "Naming positions takes longer than choosing them, except for DEFT"
    with figure(path, height=4.2, title=title) as drawn:
        for axes, start, name in zip(
            drawn.subplots(1, 2, sharey=True), (1, 5), ("embedding", "CNN"), strict=True
        ):
            left = [0.0] * len(rows)
            for place, (stage, colour) in enumerate(zip(STAGES, PALETTE, strict=False)):
                took = [first_number(row[start + place]) for row in rows]
                axes.barh(names, took, left=left, color=colour, label=stage)
                left = [a + b for a, b in zip(left, took, strict=True)]
            for height, total in enumerate(left):
                axes.text(total, height, f" {total:,.0f}", va="center")
            axes.set(xlim=(0, 1.2 * max(left)), xticks=[])
            axes.set_title(f"{name}: microseconds of the busiest rank")
        axes.legend(loc="center right")


def sparse_loss(path: Path) -> None:
    """Draw the held-out loss against bits per value."""
    points: dict[str, list[tuple[float, float]]] = {}
    method = ""
    for row in table("results/sparse.md", "| method | setting | loss | bits/value | waits for |"):
        method = row[0] or method
        points.setdefault(method, []).append((first_number(row[3]), first_number(row[2])))
    ((_, reference),) = points.pop("fp32")
    with figure(path, height=4.2, title="Below 0.2 bits a value ScaleCom coded by ASC loses least") as drawn:
        axes = drawn.subplots()
        axes.axhline(reference, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(0.042, reference - 0.008, "fp32, 32 bits")
        for (name, line), colour in zip(
            points.items(), (PALETTE[3], PALETTE[4], PALETTE[2], PALETTE[5]), strict=True
        ):
            bits, losses = zip(*sorted(line), strict=True)
            axes.plot(bits, losses, marker="o", color=colour, linewidth=2, label=name)
        logarithmic(axes.xaxis)
        axes.set(xlim=(0.04, 0.8), ylim=(4.25, 3.6))
        axes.grid()
        axes.set_xlabel("bits per value (logarithmic)")
        axes.set_title("Held-out loss of the embedding after 300 iterations: up is better")
        axes.legend(loc="lower right")


PICTURES: dict[str, Callable[[Path], None]] = {
    "allreduce": readme,
    "lab": lab,
    "tuning": tuning,
    "sparse_exchanges": sparse_exchanges,
    "sparse_density": sparse_density,
    "sparse_select": sparse_select,
    "sparse_loss": sparse_loss,
}
