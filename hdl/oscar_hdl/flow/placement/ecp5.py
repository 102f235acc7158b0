"""Synthesise and pack one design for the ECP5."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from oscar_hdl.flow.placement.array import anchor, array_verilog, ports_of
from oscar_hdl.flow.placement.nextpnr import Part
from oscar_hdl.flow.placement.packing import Packed, pack
from oscar_hdl.flow.tools import read_verilog, yosys

# By density a whole NIC has a fifth less wire, and the router needs a quarter of the time; a unit alone is
# a twentieth faster with nextpnr's default placer (docs/results/hardware.md).
BY_DENSITY = "static"
# What synth_ecp5 lets flip-flops be, and how many of an array's have to share a clock enable, and a reset.
# Resets have been the slowest paths: a set of flip-flops on one reset is spread over the part.
FLIP_FLOPS = (
    "-cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r -cell $_DFFE_??_ 01 -cell $_DFFE_?P??_ r "
    "-cell $_SDFFE_?P??_ r -cell $_DLATCH_?_ x"
)
LEAST_SHARED = 3, 24
CELLS = {"COMB": "TRELLIS_COMB", "FF": "TRELLIS_FF", "MULT18": "MULT18X18D", "DP16KD": "DP16KD"}
NOTES = (
    "# COMB: LUT4 sites, carries and distributed RAM included. Out of context: pins cost nothing.",
    "# In the 5G model a block RAM without output register answers in 1.4 ns, a third of the plain part's",
    "# 4.3 ns, more than its higher voltage explains: --part lfe5u_85f asks the plain part's model.",
    "# Paths inside a multiplier between its own registers are not in either model.",
    f"# In an array (x N) and a NIC clock enables of fewer than {LEAST_SHARED[0]} flip-flops, and resets of",
    f"# fewer than {LEAST_SHARED[1]}, are made logic.",
)


def _part(device: str) -> Part:
    package = ("--package", "CABGA756", "--speed", "8", "--out-of-context")
    return Part("nextpnr-ecp5", (device, *package), CELLS, NOTES, array_placer=BY_DENSITY, pinless=True)


PARTS = {"lfe5um5g_85f": _part("--um5g-85k"), "lfe5u_85f": _part("--85k")}


def synthesise(
    verilog: Sequence[Path],
    top: str,
    out: Path,
    *,
    packing: bool = True,
    least: tuple[int, int] = (1, 1),
) -> Packed:
    """Make `out`/<top>.json (as yosys wrote it) and `out`/<top>.netlist.json (for the placer).

    least: a clock enable, and a reset, of fewer flip-flops becomes logic. Two flip-flops of a slice
    share both, so each set of few leaves half a slice empty, which matters when a part is full.
    """
    plain, placed = out / f"{top}.json", out / f"{top}.netlist.json"
    placed.unlink(missing_ok=True)
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
    placed.write_text(json.dumps(netlist))
    return done


def synthesise_array(
    verilog: Path, block: str, top: str, count: int, out: Path, *, packing: bool = True
) -> Packed:
    """Make `out`/<top>.netlist.json: `count` copies of `block` in `top`; return what was packed in one copy.

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
    one = json.loads((out / f"{block}.netlist.json").read_text())["modules"][block]
    del one["attributes"]["top"]
    anchor(netlist["modules"][top], count)
    netlist["modules"][block] = one
    (out / f"{top}.netlist.json").write_text(json.dumps(netlist))
    return done
