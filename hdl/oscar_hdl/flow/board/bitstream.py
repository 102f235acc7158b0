"""From a board's sources to its bitstream: yosys, nextpnr, Trellis' packer, and what they say of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscar_hdl.flow.placement.ecp5 import BY_DENSITY, CELLS
from oscar_hdl.flow.placement.packing import pack
from oscar_hdl.flow.tools import find, read_verilog, run, yosys

# A board's clock is a fifth of what the NIC's blocks reach: the quick mapper is enough.
SYNTH = "synth_ecp5 -no-rw-check -noabc9"
DEVICE = ["--um5g-85k", "--package", "CABGA381", "--speed", "8"]


@dataclass(frozen=True)
class Built:
    """A bitstream: cells used and there, MHz reached and asked for of each clock."""

    file: Path
    cells: dict[str, tuple[int, int]]
    clocks: dict[str, tuple[float, float]]

    def lines(self) -> list[str]:
        """Return a table."""
        size = self.file.stat().st_size
        return [
            f"# {self.file} ({size:,} bytes)",
            *(f"{name:<10} {used:>7,} of {there:>7,}" for name, (used, there) in self.cells.items()),
            *(f"{name:<24} {got:>6.1f} MHz, needs {need:.1f}" for name, (got, need) in self.clocks.items()),
        ]


def modules(nic: Path) -> list[Path]:
    """Return the files of a converted top: its own, and those of the modules in it, which are beside it."""
    return sorted(nic.parent.glob("*.v"))


def netlist(nic: Path, folder: Path, top: str) -> None:
    """Make <top>.netlist.json of the board's Verilog in `folder`; the NIC stays a module of its own in it."""
    block = nic.stem
    yosys(
        folder,
        f"{read_verilog(modules(nic), folder)}{SYNTH} -top {block} -json {block}.json",
        makes=[f"{block}.json"],
        log=f"{block}.yosys.log",
    )
    core = json.loads((folder / f"{block}.json").read_text())
    pack(core)
    stub = f"{block}.stub.v"  # reading the NIC again takes as long as the rest
    (folder / stub).write_text(_stub(block, core["modules"][block]["ports"]))
    script = f'read_verilog {stub}; read_verilog "{top}.v"; '
    yosys(
        folder, f"{script}{SYNTH} -top {top} -json {top}.json", makes=[f"{top}.json"], log=f"{top}.yosys.log"
    )
    whole = json.loads((folder / f"{top}.json").read_text())
    whole["modules"][block] = core["modules"][block]
    del whole["modules"][block]["attributes"]["top"]
    (folder / f"{top}.netlist.json").write_text(json.dumps(whole))


def _stub(block: str, ports: Mapping[str, Any]) -> str:
    """Return a module of a netlist without what is in it."""
    lines = [f"(* blackbox *) module {block}({', '.join(ports)});"]
    lines += [f"{port['direction']} [{len(port['bits']) - 1}:0] {name};" for name, port in ports.items()]
    return "\n".join([*lines, "endmodule", ""])


def placed(folder: Path, top: str, seed: int, asked_mhz: float) -> dict[str, Any]:
    """Place and route it; make <top>.bit, and return nextpnr's report."""
    config, report, bits = f"{top}.config", f"{top}.report.json", f"{top}.bit"
    command = [find("nextpnr-ecp5"), *DEVICE, "--json", f"{top}.netlist.json", "--lpf", f"{top}.lpf"]
    command += ["--textcfg", config, "--report", report, "--seed", str(seed), "--freq", str(asked_mhz)]
    command += ["--placer", BY_DENSITY, "--timing-allow-fail"]
    run(command, folder, makes=[config, report], log=f"{top}.nextpnr.log")
    run([find("ecppack"), "--compress", config, "--bit", bits], folder, makes=[bits])
    found: dict[str, Any] = json.loads((folder / report).read_text())
    return found


def build(nic: Path, folder: Path, top: str, *, needs: Mapping[str, float], seed: int) -> Built:
    """Make <top>.bit in `folder`, which holds <top>.v and <top>.lpf; raises FlowError.

    needs: MHz by a part of a clock's name; clocks that are not named need nothing.
    """
    netlist(nic, folder, top)
    found = placed(folder, top, seed, max(needs.values()))
    used = found["utilization"]
    cells = {short: (used[name]["used"], used[name]["available"]) for short, name in CELLS.items()}
    clocks = {
        name: (rates["achieved"], next((mhz for part, mhz in needs.items() if part in name), 0.0))
        for name, rates in found["fmax"].items()
    }
    return Built(folder / f"{top}.bit", cells, clocks)
