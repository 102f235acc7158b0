"""AllReduce time at up to 1,024 nodes from the frames of a comparison (see oscar.timing.scale)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oscar.config import LinkSection
from oscar.errors import ConfigError
from oscar.experiment.figure import GRID, INK, PALETTE, SOFT, clean, spread_labels, without_math
from oscar.experiment.table import Results, best_rows
from oscar.files import save_figure
from oscar.timing.link import algbw, busbw
from oscar.timing.recurrence import equal_ring_time
from oscar.timing.scale import Measured, check_nodes, scale

RAW = {"fp32": 32, "bf16": 16}  # bits per value, the same at every size


def scale_results(
    results: Results, nodes: Sequence[int], *, values: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Model every coded method, with its best plan, at each of `nodes`; fp32 and bf16 beside them.

    values: of the model (default: as measured). `model_ms` of a point is what modelling this one AllReduce
    took, compilation excluded: drawing its frames, the recurrence, and fp32 to compare with. Raises
    ConfigError where the results hold no frames of two nodes or more, ValueError for nodes or values out of
    range.
    """
    check_nodes(nodes)
    link = LinkSection(**results["config"]["link"])
    total = results["model"]["values"] if values is None else values
    if total < 1:
        raise ValueError(f"expected a model of at least 1 value, got {total}")
    if results["nodes"] < 2:
        raise ConfigError("results of one node have no frames to scale; run with nodes of 2 or more")
    points = []
    for count in nodes:
        for name, bits in RAW.items():
            points.append(_timed(_raw_point, name, bits, total, count, link))
    for row in best_rows(results):
        if not row["coded"]:
            continue
        gather, frames = row["gather"], row["frames"]
        measured = Measured(frames["bytes"], frames["counts"], boomerang=gather != "forward")
        how = {"link": link.model(), "values": total, "seed": seed, "duplex": gather == "duplex"}
        for count in nodes:
            point = _timed(_coded_point, measured, count, **how)
            points.append({"name": row["name"], "plan": row["plan"], **point})
    return {
        "model": {**results["model"], "values": total},
        "quantiser": results["quantiser"],
        "measured_nodes": results["nodes"],
        "link": link.model_dump(),
        "points": points,
    }


def _timed(model: Callable[..., dict[str, Any]], *args: Any, **how: Any) -> dict[str, Any]:
    """Return a point with the milliseconds that modelling it took, the best of seven after a first."""
    point, took = model(*args, **how), []
    for _ in range(7):
        began = time.perf_counter()
        model(*args, **how)
        took.append(time.perf_counter() - began)
    return point | {"model_ms": 1e3 * min(took)}


def _coded_point(measured: Measured, nodes: int, **how: Any) -> dict[str, Any]:
    (point,) = scale(measured, [nodes], **how)
    return asdict(point)


def _raw_point(name: str, bits: int, values: int, nodes: int, link: LinkSection) -> dict[str, Any]:
    fp32 = equal_ring_time(values, nodes, link.model())
    time_s = equal_ring_time(values, nodes, link.model(), bits_per_value=bits)
    rate = algbw(values, time_s)
    return {
        "name": name,
        "plan": "equal",
        "nodes": nodes,
        "values": values,
        "time_s": time_s,
        "fp32_time_s": fp32,
        "speedup": fp32 / time_s,
        "bits_per_value": float(bits),
        "algbw": rate,
        "busbw": busbw(rate, nodes),
    }


def scale_table(scaled: Mapping[str, Any]) -> str:
    """Return the points as text."""
    link, model = scaled["link"], scaled["model"]
    lines = [
        f"# {model['name']}, {model['values']:,} values, quantiser {scaled['quantiser']}; frames measured at "
        f"{scaled['measured_nodes']} nodes, larger rings modelled",
        f"# link {link['gbps']:g} Gb/s, {link['latency_us']:g} us a hop",
        f"#{'method':15} {'plan':10} {'nodes':>6} {'time(us)':>11} {'algbw':>8} {'busbw':>8} "
        f"{'bits/val':>8} {'speedup':>8} {'model ms':>9}",
    ]
    for p in scaled["points"]:
        lines.append(
            f"{p['name']:16} {p['plan']:10} {p['nodes']:6} {p['time_s'] * 1e6:11.2f} {p['algbw'] / 1e9:8.2f} "
            f"{p['busbw'] / 1e9:8.2f} {p['bits_per_value']:8.3f} {p['speedup']:8.2f} "
            f"{p['model_ms']:9.3f}"
        )
    return "\n".join(lines)


def draw_scale(scaled: Mapping[str, Any], path: Path) -> None:
    """Draw time and gain over fp32 against the number of nodes into a PNG at `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scaled = without_math(scaled)
    figure = Figure(figsize=(12.5, 4.8), dpi=160, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2)
    names = [*RAW, *dict.fromkeys(p["name"] for p in scaled["points"] if p["name"] not in RAW)]
    for axes, key, factor in zip(panels, ("time_s", "speedup"), (1e3, 1.0), strict=True):
        ends = []
        for i, name in enumerate(names):
            line = [p for p in scaled["points"] if p["name"] == name]
            colour = SOFT if name in RAW else PALETTE[(i - len(RAW)) % len(PALETTE)]
            style = (0, (4, 2)) if name in RAW else "-"
            y = [p[key] * factor for p in line]
            axes.plot(
                [p["nodes"] for p in line], y, color=colour, linestyle=style, linewidth=2, marker="o", ms=3.5
            )
            ends.append((y[-1], line[-1]["nodes"], name, colour))
        _axes(axes, sorted({p["nodes"] for p in scaled["points"]}), logarithmic=key == "time_s")
        _names(axes, ends)
    clean(panels[0], "AllReduce time in ms")
    clean(panels[1], "Gain over fp32")
    model, link = scaled["model"], scaled["link"]
    figure.suptitle(
        f"{model['name']}, {model['values']:,} values, {link['gbps']:g} Gb/s, "
        f"{link['latency_us']:g} us a hop; frames measured at {scaled['measured_nodes']} nodes",
        x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK,
    )  # fmt: skip
    save_figure(figure, path)


def _axes(axes: Any, nodes: Sequence[int], *, logarithmic: bool) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_xticks(nodes, [str(n) for n in nodes])
    axes.minorticks_off()
    axes.set_xlim(nodes[0] * 0.9, nodes[-1] * (nodes[-1] / nodes[0]) ** 0.35 * 1.1)
    axes.set_xlabel("nodes", fontsize=9.5, color=SOFT, loc="left")
    axes.grid(axis="y", color=GRID)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)


def _names(axes: Any, ends: Sequence[tuple[float, int, str, str]]) -> None:
    """Write the names at the ends of the lines, in screen space."""
    ends = sorted(ends)
    screen = axes.transAxes.inverted()
    places = [screen.transform(axes.transData.transform((x, y))) for y, x, _, _ in ends]
    heights = spread_labels([float(place[1]) for place in places], 0.06, 0.02)
    for place, height, (_, _, name, colour) in zip(places, heights, ends, strict=True):
        axes.text(float(place[0]) + 0.015, height, name, transform=axes.transAxes, va="center", fontsize=9,
                  color=colour, fontweight="bold")  # fmt: skip
