"""The table of a comparison, its figure, and the files of `oscar allreduce`, from results.json alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oscar.coding.registry import is_codec
from oscar.collective.frames import Stats
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import make_schedule
from oscar.config import Config, LinkSection, ScheduleSection
from oscar.files import write_text
from oscar.plotting import GRID, INK, PALETTE, SOFT, End, figure, label_ends
from oscar.results import Results, write_results
from oscar.tables import Row, Table
from oscar.timeline.link import LinkModel, algbw, busbw
from oscar.timeline.nic import NicFile, parse_nic
from oscar.timeline.replay import Span, replay
from oscar_studies.perfetto import write_trace
from oscar_studies.recording import Recording

_TABLE = Table(
    "size(B) >9", "count >8", "type >5", "redop >5", "root >4", "name:method <16", "plan <11",
    "time(us) >9.2f", "algbw >7.2f", "busbw >7.2f", "wrong:#wrong >6", "wire_bytes:wire_B >10.0f",
    "bits_per_value:bits/val >8.3f", "step_sync_bits:sync >7.3f", "ratio_vs_fp32:ratio >6.2f",
    "speedup_vs_fp32:speedup >7.2f", "rtl(us) >9.2f", "rtl_speedup_vs_fp32:rtl x >6.2f", "exact >5",
)  # fmt: skip


def kept_nic(results: Results, which: str) -> NicFile:
    """Return the NIC whose clock results have: of the link ("clock"), or the "rtl"; raises ConfigError."""
    return parse_nic(json.dumps(results["nic"].get(which)), f"nic.{which} of the results")


def kept_link(results: Results) -> LinkSection:
    """Return the link of results with the clock that they were modelled with; raises ConfigError."""
    return LinkSection.as_kept(results["config"]["link"], kept_nic(results, "clock"))


def heading(results: Results) -> list[str]:
    """Return the lines above the table, without marks: what was run and what the columns mean."""
    config, model = results["config"], results["model"]
    link, quantiser = config["link"], config["quantiser"]
    sigma = quantiser["scale"] == "sigma"
    whose = " of each value" if quantiser.get("step") == "value" else ""
    step = f"step {quantiser['coarseness']:g} sigma{whose}" if sigma else "one step for all tensors"
    feedback = ", error feedback" if quantiser["error_feedback"] else ""
    bits = results.get("quantiser_bits", quantiser["bits"])
    losses = [loss for loss in results["loss"] if loss is not None]
    last = f", the last {results['rtl_iterations']} AllReduces" if "rtl_iterations" in results else ""
    trained = results.get("trained", 0)
    after = f" after {trained} of training with the float mean" if trained else ""
    lines = [
        f"oscar {results['oscar']} allreduce: {model['name']}, {model['values']:,} values in "
        f"{model['tensors']} tensors, {results['nodes']} nodes, seed {config['seed']}",
        f"{results['iterations']} iterations{after}, means over all but the first {results['warm_up']}, "
        "in which tables, steps and plans warm up",
        f"quantiser {results['quantiser']} ({bits} bits, {step}, {quantiser['rounding']}"
        f"{feedback}); fp32 and bf16 send floats",
        f"link {link['gbps']:g} Gb/s, {link['latency_us']:g} us a hop; times are modelled, bytes are real",
        f"time(us), speedup, algbw, busbw with {results['clock']}",
        f"rtl(us), rtl x (its speedup) with {results['rtl_clock']}{last}; -: no RTL of it",
    ]
    if losses:
        known = ", ".join(f"{name} {value:.4g}" for name, value in results["evaluation"].items())
        held_out = f"; held out: {known}" if known else ""
        lines.append(f"training loss {losses[0]:.4f} -> {losses[-1]:.4f}{held_out}")
    same = ["exact: same: of a scheme, whose nodes ended bit-identical; nothing else tells its sums right"]
    return [
        *lines,
        "bits/val: bytes sent, headers too, over values that crossed a link; sync: as if every link sent",
        "what the busiest one does, which is what a step waits for; ratio, speedup: fp32's sync bytes and",
        "time over these; algbw, busbw = algbw 2(N-1)/N: GB/s of fp32 bytes, so both may exceed the line",
        "rate; #wrong: AllReduces in which a node differed or a lossless sum was not exact; * best plan",
        *(same if any(of_scheme(row) and not row["lossless"] for row in results["methods"]) else []),
    ]


def nccl_cells(values: int, nodes: int, time_s: float) -> Row:
    """Return the cells that nccl-tests' tables have, of an AllReduce of so many float32 values."""
    rate = algbw(values, time_s) if time_s else 0.0
    return {
        "size(B)": 4 * values,
        "count": values,
        "type": "float",
        "redop": "sum",
        "root": -1,
        "time(us)": time_s * 1e6,
        "algbw": rate / 1e9,
        "busbw": busbw(rate, nodes) / 1e9,
    }


def _cells(row: Mapping[str, Any], results: Results) -> Row:
    star = "*" if row["best"] and _rivals(row, results) > 1 else ""
    rtl_us = None if row["rtl_time_s"] is None else row["rtl_time_s"] * 1e6
    own = {"plan": row["plan"] + star, "rtl(us)": rtl_us, "exact": verdict(row)}
    return {**row, **nccl_cells(results["model"]["values"], results["nodes"], row["time_s"]), **own}


def _rivals(row: Mapping[str, Any], results: Results) -> int:
    return sum(other["name"] == row["name"] for other in results["methods"])


def verdict(row: Mapping[str, Any]) -> str:
    """Return "yes" (sums exact, nodes identical) or "NO"; without exact sums to compare with, if identical,
    "lossy" of a codec and "same" of a scheme."""
    if row["wrong"]:
        return "NO"
    if row["lossless"]:
        return "yes"
    return "same" if of_scheme(row) else "lossy"


def of_scheme(row: Mapping[str, Any]) -> bool:
    """Whether a scheme was run, which is no codec around one schedule."""
    return not is_codec(row["codec"])


def text_table(results: Results) -> str:
    """Return heading and table as text; every line that is no row of the table starts with #."""
    lines = [f"# {line}" for line in heading(results)]
    lines.append("#" + _TABLE.heading[1:])
    lines += [_TABLE.line(_cells(row, results)) for row in results["methods"]]
    return "\n".join([*lines, *clipped_lines(results), *clock_lines(results)])


def clipped_lines(results: Results) -> list[str]:
    """Return a line for all rows in which as many values saturated."""
    rows: dict[str, list[str]] = {}
    for row in results["methods"]:
        if row["clipped"] and "clipped_energy" in row:
            lost = f"{row['clipped']:.4g} values an AllReduce, {row['clipped_energy']:.2g} of the energy"
            rows.setdefault(lost, []).append(f"{row['name']} {row['plan']}")
    return [f"# cut off {lost}: {', '.join(names)}" for lost, names in rows.items()]


def _nic(nic: str | list[str | None]) -> str:
    """Return what codes, as a reader knows it: the NIC, or that of each rank."""
    return nic if isinstance(nic, str) else f"of each rank ({', '.join(n or 'software' for n in nic)})"


def clock_lines(results: Results) -> list[str]:
    """Return the clocks that a simulated NIC's units took for the blocks of each step; [] without one."""
    config, lines = results["config"], []
    for row in results["methods"]:
        if not row.get("clocks"):
            continue
        lines.append(f"# {row['name']} {row['plan']} on nic {_nic(config['nic'])}, slowest node:")
        for step, values in enumerate(row["clocks"]["values"]):
            parts = []
            for kind in ("encode", "decode"):
                clocks = row["clocks"][kind][step]
                if clocks:
                    parts.append(f"{kind} {clocks:.0f} clocks")
            lines.append(f"#   step {step}: {values:.0f} values, {', '.join(parts)}")
    return lines


_MARKDOWN = {  # columns of the table, and what they are called where there is room
    "name": "method",
    "plan": "plan",
    "step_sync_bits": "sync bits/value",
    "bits_per_value": "bits/value",
    "ratio_vs_fp32": "ratio",
    "time(us)": "time (us), codec: {clock}",
    "speedup_vs_fp32": "speedup",
    "rtl(us)": "time (us), codec: rtl",
    "rtl_speedup_vs_fp32": "speedup, codec: rtl",
    "exact": "exact",
}
_SAID = 6  # lines of the heading that say what was run; the others explain columns


def markdown_table(results: Results) -> str:
    """Return the heading as a list and the main columns as a Markdown table."""
    clock = kept_link(results).clock
    headings = {key: name.format(clock=clock) for key, name in _MARKDOWN.items()}
    cells = [_cells(row, results) for row in results["methods"]]
    rows = [{**row, "plan": row["plan"].replace("*", " (best)")} for row in cells]
    lines = [*(f"- {line}" for line in heading(results)[:_SAID]), "", *_TABLE.markdown(rows, headings)]
    cut = [f"- {line.removeprefix('# ')}" for line in clipped_lines(results)]
    return "\n".join([*lines, "", *cut] if cut else lines) + "\n"


def best_rows(results: Results) -> Sequence[Mapping[str, Any]]:
    """Return the row with the best plan of every method, in the order of the methods."""
    return [row for row in results["methods"] if row["best"]]


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


def write_outputs(results: Results, folder: Path) -> list[Path]:
    """Write results.json, table.md and allreduce.png; return their paths."""
    paths = [folder / name for name in ("results.json", "table.md", "allreduce.png")]
    write_results(paths[0], results)
    write_text(paths[1], markdown_table(results))
    draw(results, paths[2])
    return paths


def kept_schedule(results: Results, row: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a row of a comparison's results."""
    options = ScheduleSection(**results["config"]["schedule"]).named(row["schedule"])
    adopt = not row["lossless"]
    return make_schedule(nodes=results["nodes"], adopt=adopt, **options.model_dump())


def write_timeline(recording: Recording, config: Config, path: Path) -> None:
    """Write the timeline of the last AllReduce of the training run, for ui.perfetto.dev."""
    stats = recording.stats[-1]
    meta = {"config": config.model_dump(mode="json"), "iteration": stats.iteration, "plan": stats.plan}
    meta["clock"] = config.link.clock_text()
    write_trace(path, _spans(stats, config.link.model()), meta)


def _spans(stats: Stats, link: LinkModel) -> list[Span]:
    """Return the bars of all messages, one message after the other."""
    bars, began = [], 0.0
    for one in stats.moved:
        played = replay(one.schedule, one.frames, link, coded=one.coded, spans=True)
        bars += [replace(bar, start_s=began + bar.start_s) for bar in played.spans]
        began += played.total_s
    return bars
