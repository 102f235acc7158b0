"""The one table of an AllReduce comparison, for terminals (after nccl-tests) and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oscar.coding.registry import CODECS
from oscar.config import LinkSection
from oscar.results import Results
from oscar.tables import Row, Table
from oscar.timeline.link import algbw, busbw
from oscar.timeline.nic import NicFile, parse_nic

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
    return row["codec"] not in CODECS


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


def clock_lines(results: Results) -> list[str]:
    """Return the clocks that a simulated NIC's engines took for the blocks of each step; [] without one."""
    config, lines = results["config"], []
    for row in results["methods"]:
        if not row.get("clocks"):
            continue
        lines.append(f"# {row['name']} {row['plan']} on nic {config['nic']}, slowest node:")
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
