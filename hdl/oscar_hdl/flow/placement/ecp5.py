"""Synthesise, pack and place one design on the ECP5."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oscar_hdl.flow.placement.array import anchor, array_verilog, ports_of
from oscar_hdl.flow.placement.packing import Packed, pack
from oscar_hdl.flow.tools import FlowError, find, read_verilog, run, yosys

# LFE5UM5G-85F and LFE5U-85F; a clock target out of reach makes the placer try its best.
DEVICES = {
    "um5g": ["--um5g-85k", "--package", "CABGA756", "--speed", "8"],
    "u": ["--85k", "--package", "CABGA756", "--speed", "8"],
}
TARGET_MHZ = 400
# nextpnr's placers. By density a whole NIC has a fifth less wire, and the router needs a quarter of the time;
# a unit alone is a twentieth faster with the other one (docs/results/hardware.md).
BY_DENSITY, BY_WIRES = "static", "heap"
# What synth_ecp5 lets flip-flops be, and how many of an array's have to share a clock enable, and a reset.
# Resets have been the slowest paths: a set of flip-flops on one reset is spread over the part.
FLIP_FLOPS = (
    "-cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r -cell $_DFFE_??_ 01 -cell $_DFFE_?P??_ r "
    "-cell $_SDFFE_?P??_ r -cell $_DLATCH_?_ x"
)
LEAST_SHARED = 3, 24
CELLS = {"COMB": "TRELLIS_COMB", "FF": "TRELLIS_FF", "MULT18": "MULT18X18D", "DP16KD": "DP16KD"}


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


def synthesise(
    verilog: Sequence[Path],
    top: str,
    out: Path,
    *,
    packing: bool = True,
    least: tuple[int, int] = (1, 1),
) -> Packed:
    """Make `out`/<top>.json (as yosys wrote it) and `out`/<top>.packed.json (for the placer).

    least: a clock enable, and a reset, of fewer flip-flops becomes logic. Two flip-flops of a slice
    share both, so each set of few leaves half a slice empty, which matters when a part is full.
    """
    plain, packed = out / f"{top}.json", out / f"{top}.packed.json"
    packed.unlink(missing_ok=True)
    synth = f"synth_ecp5 -no-rw-check -top {top}"
    script = read_verilog(verilog, out)
    if max(least) > 1:
        script += f"{synth} -run begin:map_ffs; opt_clean; "
        script += f"dfflegalize {FLIP_FLOPS} -mince {least[0]} -minsrst {least[1]}; {synth} -run map_ffs: "
    else:
        script += f"{synth} "
    script += f"-json {plain.name}"
    yosys(out, script, makes=[plain.name], log=f"{top}.yosys.log")
    netlist = json.loads(plain.read_text())
    done = pack(netlist) if packing else Packed()
    packed.write_text(json.dumps(netlist))
    return done


def synthesise_array(
    verilog: Path, block: str, top: str, count: int, out: Path, *, packing: bool = True
) -> Packed:
    """Make `out`/<top>.packed.json: `count` copies of `block` in `top`; return what was packed in one copy.

    The block is synthesised once and stays a module of the netlist (the placer flattens it), so the time of
    synthesis does not grow with the number of copies.
    """
    done = synthesise([verilog], block, out, packing=packing, least=LEAST_SHARED)
    array, plain = out / f"{top}.v", out / f"{top}.json"
    array.write_text(array_verilog(top, block, ports_of(verilog, block, out), count))
    script = read_verilog([verilog, array], out) + f"blackbox {block}; "
    script += f"synth_ecp5 -no-rw-check -top {top} -json {plain.name}"
    yosys(out, script, makes=[plain.name], log=f"{top}.yosys.log")
    netlist = json.loads(plain.read_text())
    one = json.loads((out / f"{block}.packed.json").read_text())["modules"][block]
    del one["attributes"]["top"]
    anchor(netlist["modules"][top], count)
    netlist["modules"][block] = one
    (out / f"{top}.packed.json").write_text(json.dumps(netlist))
    return done


def path_lines(report: dict[str, object]) -> list[str]:
    """Describe the slowest path between flip-flops in a nextpnr report: a line for each cell and wire."""
    paths: list[dict[str, object]] = report.get("critical_paths", [])  # type: ignore[assignment]
    lines = []
    for found in paths:
        if found["from"] != found["to"] or "posedge" not in str(found["from"]):
            continue
        total = 0.0
        for step in found["path"]:  # type: ignore[attr-defined]
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
    top: str,
    out: Path,
    seeds: Sequence[int],
    packed: Packed,
    *,
    placer: str = BY_WIRES,
    device: str = "um5g",
    note: Callable[[str], None] = lambda _: None,
) -> Placed:
    """Place and route `out`/<top>.packed.json, which holds `block`, once for each seed."""
    mhz: dict[int, float] = {}
    slowest: list[str] = []
    cells: dict[str, int] = {}
    available: dict[str, int] = {}
    for seed in seeds:
        report = f"{top}.{seed}.report.json"
        command = [find("nextpnr-ecp5"), *DEVICES[device], "--json", f"{top}.packed.json"]
        command += ["--freq", str(TARGET_MHZ), "--seed", str(seed), "--out-of-context", "--timing-allow-fail"]
        command += ["--placer", placer, "--report", report]
        run(command, out, makes=[report], log=f"{top}.{seed}.nextpnr.log")
        read = json.loads((out / report).read_text())
        if len(read["fmax"]) != 1:
            raise FlowError(f"{name}: expected one clock in nextpnr's report, found {sorted(read['fmax'])}")
        mhz[seed] = next(iter(read["fmax"].values()))["achieved"]
        if mhz[seed] == min(mhz.values()):
            slowest = path_lines(read)
            cells = {short: read["utilization"][long]["used"] for short, long in CELLS.items()}
            available = {short: read["utilization"][long]["available"] for short, long in CELLS.items()}
        note(f"seed {seed}: {mhz[seed]:.0f} MHz")
    return Placed(name, block, cells, available, mhz, packed, slowest)
