"""AllReduce time at up to 1,024 nodes from the frames of a comparison (see oscar.timeline.scale)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oscar.collective.exchange import ExchangeSchedule
from oscar.collective.frames import Frames
from oscar.collective.ring import Ring
from oscar.config import LinkSection
from oscar.errors import ConfigError
from oscar.plotting import INK, PALETTE, SOFT, End, figure, label_ends, logarithmic
from oscar.results import Results
from oscar.tables import Table
from oscar.timeline.equal import equal_time
from oscar.timeline.link import algbw, busbw
from oscar.timeline.scale import Measured, check_nodes, scale
from oscar_studies.comparison_report import best_rows, kept_link, kept_schedule

TABLE = Table(
    "name:#method <16", "plan <10", "nodes >6", "time_us:time(us) >11.2f", "algbw >8.2f", "busbw >8.2f",
    "bits_per_value:bits/val >8.3f", "speedup >8.2f",
)  # fmt: skip
RAW = {"fp32": 32, "bf16": 16}  # bits per value, the same at every size
RAW_COLOURS = {"fp32": INK, "bf16": SOFT}


def scale_results(
    results: Results, nodes: Sequence[int], *, values: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Model every coded method, with its best plan, at each of `nodes`; fp32 and bf16 beside them.

    values: of the model (default: as measured). Raises ConfigError where the results hold no frames of two
    nodes or more, or were measured with exchange at fewer nodes; ValueError for nodes or values out of range.
    """
    check_nodes(nodes)
    link = kept_link(results)
    total = results["model"]["values"] if values is None else values
    if total < 1:
        raise ValueError(f"expected a model of at least 1 value, got {total}")
    if results["nodes"] < 2:
        raise ConfigError("results of one node have no frames to scale; run with nodes of 2 or more")
    points = [_raw_point(name, bits, total, count, link) for count in nodes for name, bits in RAW.items()]
    for row in best_rows(results):
        if not row["coded"]:
            continue
        schedule = kept_schedule(results, row)
        if isinstance(schedule, ExchangeSchedule) and max(nodes, default=0) > results["nodes"]:
            raise ConfigError(
                f"{row['name']} was measured with the schedule exchange, which has no frames of sums and "
                "sends ever more with more nodes; to scale it, compare with more than 2 nodes or with "
                "schedule.name=direct"
            )
        measured = Measured(Frames.from_tree(row["frames"]), schedule)
        named = {key: row[key] for key in ("name", "plan")}
        scaled = scale(measured, nodes, link=link.model(), values=total, seed=seed)
        points += [named | asdict(point) for point in scaled]
    return {
        "model": {**results["model"], "values": total},
        "quantiser": results["quantiser"],
        "measured_nodes": results["nodes"],
        "link": results["config"]["link"],
        "clock": link.clock_text(),
        "points": points,
    }


def _raw_point(name: str, bits: int, values: int, nodes: int, link: LinkSection) -> dict[str, Any]:
    fp32 = equal_time(Ring(nodes), values, link.model(), coded=False)
    time_s = equal_time(Ring(nodes), values, link.model(), bits=bits, coded=False)
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
        f"# link {link['gbps']:g} Gb/s, {link['latency_us']:g} us a hop; {scaled['clock']}",
        TABLE.heading,
    ]
    for point in scaled["points"]:
        units = {"time_us": point["time_s"] * 1e6, **{key: point[key] / 1e9 for key in ("algbw", "busbw")}}
        lines.append(TABLE.line(point, **units))
    return "\n".join(lines)


def draw_scale(scaled: Mapping[str, Any], path: Path) -> None:
    """Draw time and gain over fp32 against the number of nodes into a PNG at `path`."""
    model, link = scaled["model"], scaled["link"]
    title = (
        f"{model['name']}, {model['values']:,} values, {link['gbps']:g} Gb/s, "
        f"{link['latency_us']:g} us a hop; frames measured at {scaled['measured_nodes']} nodes"
    )
    with figure(path, height=4, title=title) as drawn:
        times, gains = drawn.subplots(1, 2)
        _panel(times, scaled, "time_s", 1e3)
        times.set_title("AllReduce time in ms")
        _panel(gains, scaled, "speedup", 1.0)
        gains.set_title("Gain over fp32")
        drawn.supxlabel(scaled["clock"], x=0.988, ha="right", fontsize=9.5, color=SOFT)


def _panel(axes: Any, scaled: Mapping[str, Any], key: str, factor: float) -> None:
    """Draw one line per method against the nodes, its name at its end."""
    ends = []
    names = [*RAW, *dict.fromkeys(p["name"] for p in scaled["points"] if p["name"] not in RAW)]
    for i, name in enumerate(names):
        line = [p for p in scaled["points"] if p["name"] == name]
        colour = RAW_COLOURS.get(name) or PALETTE[(i - len(RAW)) % len(PALETTE)]
        style = (0, (4, 2)) if name in RAW else "-"
        x, y = [p["nodes"] for p in line], [p[key] * factor for p in line]
        axes.plot(x, y, color=colour, linestyle=style, linewidth=2, marker="o", markersize=3.5)
        ends.append(End(x[-1], y[-1], name, colour))
    nodes = sorted({p["nodes"] for p in scaled["points"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(nodes, [str(n) for n in nodes])
    axes.minorticks_off()
    axes.set_xlim(nodes[0] * 0.9, nodes[-1] * 1.1)
    axes.set_xlabel("nodes")
    axes.grid(axis="y")
    logarithmic(axes.yaxis)
    label_ends(axes, ends)
