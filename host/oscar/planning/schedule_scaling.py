"""Modelled time of every built-in schedule against the number of ranks, on one switch, from assumed sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.schedules import SCHEDULES, make_schedule
from oscar.plotting import INK, PALETTE, SOFT, End, figure, label_ends, logarithmic
from oscar.tables import Table
from oscar.timeline.equal import equal_time, in_switch_time
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.scale import PLAYED, check_nodes

FEW = ("star",)  # frames that a replay is fast
IN_SWITCH = "star in the switch"
RAW = ("ring", "direct")  # by which fp32 goes
RAW_COLOURS = {"fp32 ring": INK, "fp32 direct": SOFT}
TABLE = Table("name:#schedule <20", "nodes >6", "time_us:time(us) >12.2f", "speedup:x fp32 >8.2f")


def schedule_points(
    nodes: Sequence[int],
    values: int,
    link: LinkModel,
    *,
    bits: float = 1.25,
    doubling: float = 0.55,
    subframes: int = 1,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Model all built-in schedules at each of `nodes` (2 to 1,024); fp32's ring and direct beside them.

    A frame that sums t workers has `bits + doubling * log2(t)` bits of payload per value, and a header; fp32
    has neither header nor codec. progress: told the stage, networks done, all. Hierarchical and exchange end
    at PLAYED ranks, and the star in the switch, which counts as a rank, before 1,024. Raises ValueError
    for numbers out of range.
    """
    check_nodes(nodes)
    whole = bits + doubling * math.log2(max(nodes, default=2))
    if values < 1 or not all(0 < number < math.inf for number in (bits, whole)):
        raise ValueError(
            f"expected values of 1 or more and bits above 0 for any number of workers, got {values}, {bits} "
            f"and {doubling} for each doubling"
        )

    def rate(terms: int) -> float:
        return bits + doubling * math.log2(terms)

    points = []
    for done, count in enumerate(wanted := sorted(set(nodes))):
        progress("modelling", done, len(wanted))
        raw = {
            f"fp32 {name}": equal_time(
                make_schedule(name, count, subframes=subframes), values, link, bits=FP32_BITS, coded=False
            )
            for name in RAW
        }
        times = raw | _coded(count, values, link, rate, subframes)
        ring_s, direct_s = raw.values()
        points += [
            {"name": name, "nodes": count, "time_s": time_s, "speedup": ring_s / time_s,
             "speedup_direct": direct_s / time_s}
            for name, time_s in times.items()
        ]  # fmt: skip
    progress("modelling", len(wanted), len(wanted))
    assumed = {"values": values, "bits": bits, "doubling": doubling, "subframes": subframes}
    network = {"gbps": link.bandwidth_bps / 1e9, "latency_us": link.latency_s * 1e6}
    return {**assumed, **network, "codec_values_per_s": link.codec_values_per_s, "points": points}


def _coded(
    nodes: int, values: int, link: LinkModel, rate: Callable[[int], float], subframes: int
) -> dict[str, float]:
    """Return the seconds of coded frames by name of the schedule."""
    times = {}
    for name in SCHEDULES:
        schedule = make_schedule(name, nodes, subframes=subframes)
        if nodes <= PLAYED or schedule.alike or name in FEW:
            times[name] = equal_time(schedule, values, link, bits=rate, header_bytes=HEADER_BYTES)
    if nodes < 1024:
        times[IN_SWITCH] = in_switch_time(
            nodes, values, link, bits=rate, header_bytes=HEADER_BYTES, subframes=subframes
        )
    return times


def points_table(found: Mapping[str, Any]) -> str:
    """Return the points as text."""
    lines = [f"# {_assumed(found)}", TABLE.heading]
    if max(point["nodes"] for point in found["points"]) > PLAYED:
        lines.insert(1, f"# hierarchical and exchange to {PLAYED} ranks: a replay of more takes seconds each")
    lines += [TABLE.line(point, time_us=point["time_s"] * 1e6) for point in found["points"]]
    return "\n".join(lines)


def _assumed(found: Mapping[str, Any]) -> str:
    rate = found["codec_values_per_s"]
    return (
        f"{found['values']:,} values, {found['bits']:g} + {found['doubling']:g} log2(terms) bits/value, "
        f"K = {found['subframes']}; {found['gbps']:g} Gb/s, {found['latency_us']:g} us, "
        + ("ideal codec" if rate is None else f"codec {rate / 1e9:g} G values/s")
    )


def draw_points(found: Mapping[str, Any], path: Path) -> None:
    """Draw time against the number of ranks, a line for each schedule, into a PNG at `path`."""
    names = list(dict.fromkeys(point["name"] for point in found["points"]))
    nodes = sorted({point["nodes"] for point in found["points"]})
    with figure(path, height=5, title="AllReduce time in us, modelled") as drawn:
        axes, ends = drawn.subplots(), []
        for name in names:
            line = [point for point in found["points"] if point["name"] == name]
            raw = name in RAW_COLOURS
            colour = RAW_COLOURS.get(name) or PALETTE[1 + names.index(name) % (len(PALETTE) - 1)]
            x, y = [point["nodes"] for point in line], [point["time_s"] * 1e6 for point in line]
            style = (0, (4, 2)) if raw else "-"
            axes.plot(x, y, color=colour, linestyle=style, linewidth=2, marker="o", markersize=3.5)
            ends.append(End(x[-1], y[-1], name, colour))
        axes.set_xscale("log", base=2)
        axes.set_xticks(nodes, [str(count) for count in nodes])
        axes.minorticks_off()
        axes.set_xlim(nodes[0] * 0.9, nodes[-1] * 1.1)
        logarithmic(axes.yaxis)
        axes.set(xlabel="ranks")
        axes.set_title(_assumed(found))
        axes.grid(axis="y")
        label_ends(axes, ends)
