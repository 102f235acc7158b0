"""Prove that converted blocks keep the rules of their streams: bounded model checking by yosys and z3.

For every block and every stream of it, over all inputs, stalls and resets of so many clocks from the start:

* what is offered stays: while tvalid and not tready, tvalid, tdata, tkeep and tlast hold (out: proven, in:
  assumed);
* a clock after a reset nothing is offered;
* where a block passes a stream on, the k-th word that leaves is the k-th that came, for any k: nothing is
  lost, doubled or changed, and no more leaves than came.

    python -m oscar_hdl.build.formal [--top fifo] [--depth 24]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oscar_hdl.build.tools import FlowError, find, run, yosys

SOLVER = "z3"
_PORT = re.compile(r"^(input|output)\s+(?:\[(\d+):0\]\s+)?(\w+);", re.MULTILINE)


@dataclass(frozen=True)
class Proof:
    """A block whose streams are checked: for so many clocks, with what it passes on from stream to stream."""

    top: str
    depth: int = 20
    passes: tuple[tuple[str, str], ...] = ()


class FormalError(Exception):
    """A rule is broken, or could not be checked; the message has the solver's words."""


def ports_of(verilog: str) -> dict[str, tuple[bool, int]]:
    """Return (whether it is an input, width) of every port of converted Verilog."""
    return {name: (way == "input", int(top or 0) + 1) for way, top, name in _PORT.findall(verilog)}


def streams_of(ports: dict[str, tuple[bool, int]]) -> dict[str, bool]:
    """Return the streams among ports, and whether they come in."""
    names = (name.removesuffix("_tvalid") for name in ports if name.endswith("_tvalid"))
    return {name: ports[f"{name}_tvalid"][0] for name in names if f"{name}_tready" in ports}


def wrapper(top: str, ports: dict[str, tuple[bool, int]], passes: Iterable[tuple[str, str]]) -> str:
    """Return a module that drives `top` with anything and says what must hold."""
    lines = ["module formal(input clk);", "  reg began = 0; always @(posedge clk) began <= 1;"]
    lines += ["  (* anyseq *) wire again;", "  wire rst = again | !began;"]
    for name, (comes, width) in ports.items():
        if name not in ("clk", "rst"):
            free = "(* anyseq *) " if comes else ""
            lines.append(f"  {free}wire [{width - 1}:0] {name};")
    lines.append(f"  {top} dut({', '.join(f'.{name}({name})' for name in ports)});")
    streams = streams_of(ports)
    for stream, comes in streams.items():
        lines += _holds(stream, "assume" if comes else "assert", ports)
    for source, sink in passes:
        lines += _passes(source, sink, ports)
    return "\n".join([*lines, "endmodule", ""])


def _holds(stream: str, say: str, ports: dict[str, tuple[bool, int]]) -> list[str]:
    """What is offered stays, and a reset takes it back."""
    parts = [f"{stream}_{part}" for part in ("tdata", "tkeep", "tlast") if f"{stream}_{part}" in ports]
    same = " && ".join([f"{stream}_tvalid", *(f"{part} == $past({part})" for part in parts)])
    return [
        "  always @(posedge clk) begin",
        f"    if (began && !$past(rst) && $past({stream}_tvalid && !{stream}_tready)) {say}({same});",
        f"    if (began && $past(rst)) {say}(!{stream}_tvalid);",
        "  end",
    ]


def _passes(source: str, sink: str, ports: dict[str, tuple[bool, int]]) -> list[str]:
    """What leaves is what came, in order: shown for one word, whichever it is."""
    parts = [p for p in ("tdata", "tkeep", "tlast") if f"{source}_{p}" in ports and f"{sink}_{p}" in ports]
    width = sum(ports[f"{source}_{part}"][1] for part in parts)
    came, left = (f"{{{', '.join(f'{stream}_{part}' for part in parts)}}}" for stream in (source, sink))
    i = f"{source}_{sink}"
    return [
        f"  (* anyconst *) wire [7:0] which_{i};",
        f"  reg [7:0] in_{i} = 0, out_{i} = 0; reg [{width - 1}:0] word_{i};",
        "  always @(posedge clk) begin",
        f"    if ({source}_tvalid && {source}_tready) begin in_{i} <= in_{i} + 1;",
        f"      if (in_{i} == which_{i}) word_{i} <= {came}; end",
        f"    if ({sink}_tvalid && {sink}_tready) begin out_{i} <= out_{i} + 1;",
        f"      assert(rst || out_{i} != in_{i});",
        f"      if (!rst && out_{i} == which_{i}) assert({left} == word_{i}); end",
        f"    if (rst) begin in_{i} <= 0; out_{i} <= 0; end",
        "  end",
    ]


def prove(proof: Proof, verilog: Path, out: Path, *, depth: int | None = None) -> float:
    """Check a converted block; return the seconds it took. Raises FormalError, with what breaks a rule."""
    began, name = time.monotonic(), proof.top.rpartition(":")[2]
    text = verilog.read_text(encoding="utf-8")
    ports = ports_of(text)
    for stream in {s for pair in proof.passes for s in pair} - set(streams_of(ports)):
        there = ", ".join(streams_of(ports)) or "none"
        raise FormalError(f"{name}: expected a stream {stream!r}, got {there}")
    (out / f"{name}.v").write_text(text, encoding="utf-8")
    (out / f"{name}.formal.sv").write_text(wrapper(name, ports, proof.passes), encoding="utf-8")
    script = f"read_verilog {name}.v; read_verilog -formal -sv {name}.formal.sv; prep -top formal -flatten; "
    script += f"async2sync; memory_map -rom-only; opt -full; dffunmap; write_smt2 -wires {name}.smt2"
    yosys(out, script, makes=[f"{name}.smt2"], log=f"{name}.formal.log")
    command = [find("yosys-smtbmc"), "-s", SOLVER, "-t", str(depth or proof.depth), "--presat"]
    try:
        said = run([*command, f"{name}.smt2"], out, log=f"{name}.smtbmc.log")
    except FlowError as error:
        raise FormalError(f"{name}: a rule is broken, or the solver failed; {error}") from None
    if "Status: PASSED" not in said:
        raise FormalError(f"{name}: the solver did not say that it passed; see {out / name}.smtbmc.log")
    return time.monotonic() - began


def main(argv: Sequence[str] | None = None) -> int:
    """Check all blocks, or those named; return 1 if one breaks a rule, 2 if tools are missing."""
    from oscar_hdl.build.convert import ConvertError, convert_top
    from oscar_hdl.build.proofs import PROOFS

    parser = argparse.ArgumentParser(
        prog="python -m oscar_hdl.build.formal",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/formal"), help="folder of results")
    parser.add_argument("--top", nargs="*", default=list(PROOFS), metavar="BLOCK", help=", ".join(PROOFS))
    parser.add_argument("--depth", type=int, metavar="CLOCKS", help="instead of each block's own")
    args = parser.parse_args(argv)
    unknown = [top for top in args.top if top not in PROOFS]
    if unknown:
        parser.error(f"no proof of {', '.join(unknown)}; there are {', '.join(PROOFS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        find(SOLVER)
        for name in args.top:
            proof = PROOFS[name]
            file = convert_top(proof.top, "verilog", args.out)
            seconds = prove(proof, file, args.out, depth=args.depth)
            print(f"{name:<18} {args.depth or proof.depth:>3} clocks proven in {seconds:.0f} s", flush=True)
    except FormalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (FlowError, ConvertError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
