"""Place and route a netlist with nextpnr, once for each seed: what all parts have in common."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oscar_hdl.flow.placement.packing import Packed
from oscar_hdl.flow.tools import FlowError, find, run

TARGET_MHZ = 400  # a clock target out of reach makes the placer try its best


@dataclass(frozen=True)
class Part:
    """An FPGA that nextpnr places.

    Attributes:
        tool: name of the program, for example nextpnr-ecp5.
        arguments: what names the part, and how it is placed.
        cells: names of kinds of cells in nextpnr's report, by the name in ours. Sites of LUTs come first.
        notes: lines of the report about area and MHz of this part.
        array_placer: placer of whole NICs; blocks have nextpnr's default, heap.
        pinless: blocks are placed out of context, instead of behind four pins.
    """

    tool: str
    arguments: Sequence[str]
    cells: Mapping[str, str]
    notes: Sequence[str]
    array_placer: str = "heap"
    pinless: bool = False


@dataclass(frozen=True)
class Placed:
    """A placed design (top: the block in it): cells, clock rate of each seed, slowest path of the worst."""

    name: str
    top: str
    cells: dict[str, int]
    available: dict[str, int]
    mhz: dict[int, float]
    packed: Packed
    slowest: list[str] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """Clock rate of the worst seed in MHz."""
        return min(self.mhz.values())

    @property
    def median(self) -> float:
        """Median clock rate in MHz."""
        return statistics.median(self.mhz.values())

    @property
    def best(self) -> float:
        """Clock rate of the best seed in MHz."""
        return max(self.mhz.values())

    @property
    def luts(self) -> int:
        """Number of LUT sites."""
        return next(iter(self.cells.values()))


def path_lines(report: dict[str, object]) -> list[str]:
    """Describe the slowest path between flip-flops in a nextpnr report: a line for each cell and wire."""
    paths: list[dict[str, object]] = report.get("critical_paths", [])  # type: ignore[assignment]
    lines = []
    for path in paths:
        if path["from"] != path["to"] or "posedge" not in str(path["from"]):
            continue
        total = 0.0
        for step in path["path"]:  # type: ignore[attr-defined]
            if step["delay"] < 0.005 and step["type"] != "setup":
                continue  # links of a carry chain
            total += step["delay"]
            to = step["to"]
            lines.append(f"{total:6.2f} +{step['delay']:.2f} {step['type']:<11} {to['cell']}.{to['port']}")
        break
    return lines


def place(
    name: str,
    block: str,
    netlist: Path,
    seeds: Sequence[int],
    part: Part,
    packed: Packed,
    *,
    placer: str = "heap",
    note: Callable[[str], None] = lambda _: None,
) -> Placed:
    """Place and route a netlist (JSON), which holds `block`, once for each seed."""
    out, top = netlist.parent, netlist.name.partition(".")[0]
    mhz: dict[int, float] = {}
    slowest: list[str] = []
    cells: dict[str, int] = {}
    available: dict[str, int] = {}
    for seed in seeds:
        report = f"{top}.{seed}.report.json"
        command = [find(part.tool), *part.arguments, "--json", netlist.name, "--placer", placer]
        command += ["--freq", str(TARGET_MHZ), "--seed", str(seed), "--timing-allow-fail", "--report", report]
        run(command, out, makes=[report], log=f"{top}.{seed}.nextpnr.log")
        read = json.loads((out / report).read_text())
        if len(read["fmax"]) != 1:
            raise FlowError(f"{name}: expected one clock in nextpnr's report, found {sorted(read['fmax'])}")
        mhz[seed] = next(iter(read["fmax"].values()))["achieved"]
        if mhz[seed] == min(mhz.values()):
            slowest = path_lines(read)
            cells = {short: read["utilization"][long]["used"] for short, long in part.cells.items()}
            available = {short: read["utilization"][long]["available"] for short, long in part.cells.items()}
        note(f"seed {seed}: {mhz[seed]:.0f} MHz")
    return Placed(name, block, cells, available, mhz, packed, slowest)
