"""The lab's report: JSON, and of it a table in the form of nccl-tests and a figure of time against rate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oscar.files import write_text
from oscar.plotting import End, figure, label_ends, logarithmic, look
from oscar.results import Results
from oscar.tables import Table
from oscar_studies.comparison_report import nccl_cells

LATE_S = 0.005  # a run counts where no host begins later than its method's median by more than this
TABLE = Table(
    "name:method <22", "size(B):size >10", "count >10", "type >9", "redop >5", "root >4", "time(us) >9.0f",
    "algbw >7.4f", "busbw >7.4f", "wrong:#wrong >6", "wire_bytes:wire_B >11.0f",
    "bits_per_value:bits/val >8.3f", "ratio >6.2f", "quartiles(us) >17", "cpu(ms) >8.0f", "model(us) >9.0f",
    "predict(us) >11.0f",
)  # fmt: skip


def text_report(results: Results) -> str:
    """Return the whole report; ratio is the time of the first method over this one's."""
    machine = results["machine"]
    lines = [
        f"# {results['source']}, {results['values']:,} values; {machine['cores']} cores, "
        f"kernel {machine['kernel']}, {machine['congestion']}",
        "# size, count: of one host's float32 gradient. time: from the common start to the end of the",
        "#   slowest host, median. algbw, busbw: GB/s on uncompressed bytes, may exceed the link. wire_B:",
        "#   all hosts, all headers, by tc. bits/val: payload per value that crosses a link. ratio: against",
        "#   the first method. cpu: all hosts. model: these frames on this wire by the time model, with what",
        "#   a message takes a host; no codec. predict: what `oscar predict` says for such bits per value.",
    ]
    for case in results["cases"]:
        lines += ["", *_case(results, case)]
    for case in results.get("refused", ()):
        lines += ["", f"# {_conditions(case)}: refused: {case['why']}"]
    return "\n".join(lines)


def _case(results: Results, case: Mapping[str, Any]) -> list[str]:
    goodput = min(case["goodput_mbps"]), max(case["goodput_mbps"])
    lines = [
        f"# {_conditions(case)}, goodput {goodput[0]:.2f} to {goodput[1]:.2f} "
        f"(expected {case['expected_mbps']:.2f}), latency {case['latency_us']:.0f} us"
        + (f", {case['message_us']:.0f} us a message" if "message_us" in case else ""),
        TABLE.heading,
    ]
    first, values = case["methods"][0]["time_s"], results["values"]
    for row in case["methods"]:
        low, high = (1e6 * t for t in row["quartiles_s"])
        cells = {
            **nccl_cells(values, case["hosts"], row["time_s"]),
            "type": row["type"],
            "ratio": first / row["time_s"],
            "quartiles(us)": f"{low:.0f}-{high:.0f}",
            "cpu(ms)": row["cpu_s"] * 1e3,
            "model(us)": None if row["model_s"] is None else row["model_s"] * 1e6,
            "predict(us)": None if row.get("predicted_s") is None else row["predicted_s"] * 1e6,
        }
        lines.append(TABLE.line(row, **cells))
    return lines + [line for row in case["methods"] for line in _late(row)]


def _conditions(case: Mapping[str, Any]) -> str:
    return (
        f"{case['hosts']} hosts, {case['mbps']:g} Mb/s"
        + (", a core each" if case["pin"] else "")
        + (f", {case['loss']:.2%} of packets lost" if case.get("loss") else "")
        + (f", delayed by {case['delay_ms']:g} ms" if case.get("delay_ms") else "")
    )


def _late(row: Mapping[str, Any]) -> list[str]:
    """Return the lines about runs that a host began late."""
    name, late_s, left_out = row["name"], row.get("late_s", 0.0), row.get("left_out", 0)
    lines = []
    if left_out:
        measured = left_out + len(row["times_s"])
        lines.append(f"# {name}: {left_out} of {measured} runs began later than usual and are left out")
    if late_s > LATE_S:
        lines.append(
            f"# {name}: hosts began up to {late_s * 1e3:.0f} ms after the start, which is in its time"
        )
    return lines


def write_report(results: Results, folder: Path) -> list[Path]:
    """Write table.txt, and lab.png where there is a case to draw; return their paths."""
    paths = [folder / "table.txt"]
    write_text(paths[0], text_report(results) + "\n")
    if results["cases"]:
        paths.append(folder / "lab.png")
        draw(results, paths[1])
    return paths


def draw(results: Results, path: Path) -> None:
    """Draw time against link rate into a PNG, a panel per number of hosts; no loss or delay if possible."""
    plain = [case for case in results["cases"] if not (case.get("loss") or case.get("delay_ms"))]
    cases = plain or results["cases"]
    hosts = sorted({case["hosts"] for case in cases}, reverse=True)
    names = list(dict.fromkeys(row["name"] for case in cases for row in case["methods"]))
    title = (
        f"Measured: {results['values']:,} gradient values of {results['source']}, "
        f"{results['machine']['cores']} cores for all hosts"
    )
    with figure(path, height=0.6 + 4.6 * len(hosts), title=title) as drawn:
        panels = drawn.subplots(len(hosts), 1, squeeze=False)[:, 0]
        for axes, count in zip(panels, hosts, strict=True):
            mine = sorted(
                (case for case in cases if case["hosts"] == count), key=lambda case: float(case["mbps"])
            )
            rates = sorted({case["mbps"] for case in mine})
            if len(rates) == 1:
                _bars(axes, mine, names)
                axes.set_title(f"{count} hosts at {rates[0]:g} Mb/s: AllReduce in ms")
            else:
                _lines(axes, mine, names)
                axes.set_title(
                    f"{count} hosts: AllReduce in ms against the link's rate; dashed: NIC replayed"
                )


def _lines(axes: Any, cases: list[Mapping[str, Any]], names: list[str]) -> None:
    """One line per method over the rates, with quartiles, its name at its end."""
    ends = []
    for index, name in enumerate(names):
        points = [(case["mbps"], row) for case in cases for row in case["methods"] if row["name"] == name]
        if not points:
            continue
        x, y = [mbps for mbps, _ in points], [row["time_s"] * 1e3 for _, row in points]
        style = "--" if points[0][1]["kind"] == "replay" else "-"
        spread = _quartiles([row for _, row in points])
        axes.errorbar(x, y, spread, linestyle=style, markersize=5, **look(index))
        ends.append(End(x[-1], y[-1], name, look(index)["color"]))
    for axis in (axes.xaxis, axes.yaxis):
        logarithmic(axis)
    rates = sorted({case["mbps"] for case in cases})
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.set_xlim(rates[0] * 0.9, rates[-1] * 1.05)
    axes.set_xlabel("link rate, Mb/s")
    axes.grid()
    label_ends(axes, ends)


def _bars(axes: Any, cases: list[Mapping[str, Any]], names: list[str]) -> None:
    """One bar per method at a single rate, the slowest first; of several cases the first that has it."""
    rows = {row["name"]: row for case in reversed(cases) for row in case["methods"]}
    order = sorted(rows, key=lambda name: -rows[name]["time_s"])
    times = [rows[name]["time_s"] * 1e3 for name in order]
    colours = [look(names.index(name))["color"] for name in order]
    spread = _quartiles([rows[name] for name in order])
    drawn = axes.barh(order, times, xerr=spread, color=colours, error_kw={"ecolor": "0.3", "elinewidth": 1})
    axes.bar_label(drawn, labels=[f"{time:.3g}" for time in times], padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(axis="x")


def _quartiles(rows: list[Mapping[str, Any]]) -> list[list[float]]:
    """Return how far the quartiles lie below and above the median, in ms."""
    below = [max(0.0, row["time_s"] - row["quartiles_s"][0]) * 1e3 for row in rows]
    return [below, [max(0.0, row["quartiles_s"][1] - row["time_s"]) * 1e3 for row in rows]]
