"""Prove that converted blocks keep the rules of their streams, with yosys and ABC.

For every block and every stream of it, over all inputs, stalls and resets:

* what is offered stays: while tvalid and not tready, tvalid, tdata, tkeep, tlast, tid and tdest hold
  (out: proven, in: assumed);
* a clock after a reset nothing is offered;
* where a block passes words on, what leaves is what came, in order: nothing is lost, doubled or changed, and
  all of it leaves;
* the block's own rules (oscar_hdl.flow.proofs.proofs);
* none of this is empty: each stream can move a word.

Proven for any number of clocks (property directed reachability), or where that is too much for so many
clocks from the start.

    python -m oscar_hdl.flow.proofs.formal [--light] [--top pair_fifo]

With --checkers the rules of streams are those of somebody else, wb2axip, and nothing else is shown.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oscar_hdl.flow.tools import FlowError, find, run, yosys
from oscar_hdl.flow.tops import Value

SOLVER = "berkeley-abc"
NEVER = "1'b0"
HARDEST = 300  # seconds for one block
PARTS = "tdata", "tkeep", "tlast", "tid", "tdest"
CHECKERS = "faxis_master", "faxis_slave", "faxil_slave"  # of wb2axip: who gives, who takes, registers
_PORT = re.compile(r"^ *(input|output) +(?:wire |reg )?(?:\[(\d+):0\] +)?(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Words:
    """Words that pass without a stream: the expressions of their clock, of what they are, and its bits.

    ready: whether one could pass.
    """

    valid: str
    data: str
    bits: int
    ready: str = "1'b1"


@dataclass(frozen=True)
class Proof:
    """A block whose streams are checked; all that is expression or text is SystemVerilog of its ports.

    depth: clocks from the start, 0: any number. passes: what goes on, from stream or Words to stream or
    Words. rules: what else is assumed and asserted. forget: what takes back an offer, as a reset does.
    drains: clocks without a word in and with tready out, behind which all words have left; 0: not said.
    most: words that can be inside. reach: clocks in which each stream moves a word, but those of `still`, 0:
    any number.
    free: memories of more bits give anything when they are read, which is more than they can.
    light: part of the list for each change.
    """

    top: str
    depth: int = 0
    passes: tuple[tuple[str | Words, str | Words], ...] = ()
    rules: str = ""
    forget: str = NEVER
    drains: int = 0
    most: int = 15
    reach: int = 20
    still: tuple[str, ...] = ()
    free: int = 1 << 30
    parameters: Mapping[str, Value] = field(default_factory=dict)
    light: bool = True


class FormalError(Exception):
    """A rule is broken, or could not be checked; the message has the solver's words."""


def ports_of(verilog: str) -> dict[str, tuple[bool, int]]:
    """Return (whether it is an input, width) of every port of converted Verilog."""
    return {name: (way == "input", int(top or 0) + 1) for way, top, name in _PORT.findall(verilog)}


def streams_of(ports: dict[str, tuple[bool, int]]) -> dict[str, bool]:
    """Return the streams among ports, and whether they come in."""
    names = (name.removesuffix("_tvalid") for name in ports if name.endswith("_tvalid"))
    return {name: ports[f"{name}_tvalid"][0] for name in names if f"{name}_tready" in ports}


def wrapper(proof: Proof, ports: dict[str, tuple[bool, int]], *, theirs: bool = False) -> str:
    """Return a module that drives the block with anything and says what must hold.

    Args:
        proof: Block and rules.
        ports: Of the block.
        theirs: Rules are those of `CHECKERS` alone; what ours assume is assumed.
    """
    top, rule = proof.top.rpartition(":")[2], "assume(1)" if theirs else "assert(x)"
    lines = ["`ifdef SEE", "`define RULE(x) assume(1)", "`define SEEN(x) assert(!(x))", "`else"]
    lines += [f"`define RULE(x) {rule}", "`define SEEN(x) assume(1)", "`endif"]
    lines += ["module formal(input clk);", "  reg began = 0; always @(posedge clk) began <= 1;"]
    lines += ["  (* anyseq *) wire again;", "  wire rst = again | !began;"]
    for name, (comes, width) in ports.items():
        if name not in ("clk", "rst"):
            free = "(* anyseq *) " if comes else ""
            lines.append(f"  {free}wire [{width - 1}:0] {name};")
    lines.append(f"  {top} dut({', '.join(f'.{name}({name})' for name in ports)});")
    for stream, comes in streams_of(ports).items():
        lines += _checked(stream, comes, ports) if theirs else _holds(stream, comes, proof.forget, ports)
        if stream not in proof.still:
            lines.append(f"  always @(posedge clk) `SEEN(!rst && {stream}_tvalid && {stream}_tready);")
    for n, (source, sink) in enumerate(proof.passes):
        came, left = _words(source, ports, sink), _words(sink, ports, source)
        lines += _passes(str(n), came, left, proof.most, proof.drains)
    if theirs and "s_axil_awaddr" in ports:
        lines += _checked_registers(ports)
    return "\n".join([*lines, proof.rules, "endmodule", ""])


def _checked(stream: str, comes: bool, ports: dict[str, tuple[bool, int]]) -> list[str]:
    """Return an instance of wb2axip's rules of a stream: assumed of one that comes, else asserted."""
    sizes = {part: ports[name][1] for part in PARTS if (name := f"{stream}_{part}") in ports}
    width = -(-sizes["tdata"] // 8) * 8
    named = {"DATA": width, "ID": sizes.get("tid", 1), "ADDR": sizes.get("tdest", 1)}
    parameters = ", ".join(f".C_S_AXI_{name}_WIDTH({bits})" for name, bits in named.items())
    pins = {f"i_{part}": f"{stream}_{part}" for part in ("tvalid", "tready", *sizes)}
    pins |= {"i_aclk": "clk", "i_aresetn": "!rst"}
    if "tkeep" in sizes:
        pins["i_tstrb"] = f"{stream}_tkeep"  # as AXI has it where there is no tstrb; the checker has ones
    text = f"  {CHECKERS[comes]} #({parameters}) check_{stream}({_pins(pins)});"
    return [text] if comes else ["`ifndef SEE", text, "`endif"]


def _checked_registers(ports: dict[str, tuple[bool, int]]) -> list[str]:
    """Return an instance of wb2axip's rules of AXI4-Lite."""
    pins = {name.replace("s_axil", "i_axi"): name for name in ports if name.startswith("s_axil_")}
    pins |= {"i_clk": "clk", "i_axi_reset_n": "!rst", "i_axi_awprot": "3'd0", "i_axi_arprot": "3'd0"}
    parameters = f".C_AXI_ADDR_WIDTH({ports['s_axil_awaddr'][1]}), .F_AXI_MAXWAIT(0), .F_AXI_MAXRSTALL(0)"
    return ["`ifndef SEE", f"  {CHECKERS[2]} #({parameters}) check_s_axil({_pins(pins)});", "`endif"]


def _pins(pins: Mapping[str, str]) -> str:
    return ", ".join(f".{pin}({name})" for pin, name in pins.items())


def _holds(stream: str, comes: bool, forget: str, ports: dict[str, tuple[bool, int]]) -> list[str]:
    """What is offered stays, and a reset takes it back."""
    parts = [f"{stream}_{part}" for part in PARTS if f"{stream}_{part}" in ports]
    same = " && ".join([f"{stream}_tvalid", *(f"{part} == $past({part})" for part in parts)])
    say, back = ("assume", "rst") if comes else ("`RULE", f"rst || {forget}")
    return [
        "  always @(posedge clk) begin",
        f"    if (began && !$past({back}) && $past({stream}_tvalid && !{stream}_tready))",
        f"      {say}({same});",
        f"    if (began && $past({back})) {say}(!{stream}_tvalid);",
        "  end",
    ]


def _words(of: str | Words, ports: dict[str, tuple[bool, int]], other: str | Words) -> Words:
    """Return the words of a stream: the parts that the other stream has, too."""
    if not isinstance(of, str):
        return of
    both = [s for s in (of, other) if isinstance(s, str)]
    parts = [p for p in ("tdata", "tkeep", "tlast") if all(f"{stream}_{p}" in ports for stream in both)]
    return Words(
        f"{of}_tvalid && {of}_tready", f"{{{', '.join(f'{of}_{part}' for part in parts)}}}",
        sum(ports[f"{of}_{part}"][1] for part in parts), f"{of}_tready",
    )  # fmt: skip


def _passes(i: str, source: Words, sink: Words, most: int, clocks: int) -> list[str]:
    """What leaves is what came, in order: shown for one word, whichever it is; see `drains` of Proof."""
    high = most.bit_length() - 1
    lines = [
        f"  (* anyseq *) wire pick_{i};  // once, of what comes",
        f"  reg picked_{i} = 0; reg [{high}:0] inside_{i} = 0, ahead_{i};",
        f"  reg [{source.bits - 1}:0] word_{i};",
        f"  wire came_{i} = {source.valid}, left_{i} = {sink.valid};",
        f"  wire [{high}:0] rest_{i} = inside_{i} - left_{i};",
        "  always @(posedge clk) begin",
        f"    inside_{i} <= rst ? 0 : rest_{i} + came_{i};",
        f"    if (left_{i} && !rst) `RULE(inside_{i} != 0);",
        f"    if (left_{i} && !rst && picked_{i} && ahead_{i} == 0) `RULE({sink.data} == word_{i});",
        f"    if (came_{i} && pick_{i} && !picked_{i}) begin",
        f"      picked_{i} <= 1; ahead_{i} <= rest_{i}; word_{i} <= {source.data};",
        f"    end else if (left_{i} && picked_{i}) begin",
        f"      ahead_{i} <= ahead_{i} - 1; picked_{i} <= ahead_{i} != 0; end",
        f"    if (rst) picked_{i} <= 0;",
        "  end",
    ]
    if clocks:
        bits = clocks.bit_length()
        lines += [
            f"  reg [{bits - 1}:0] quiet_{i} = 0; always @(posedge clk) begin",
            f"    if (rst || came_{i} || !({sink.ready})) quiet_{i} <= 0;",
            f"    else if (quiet_{i} != {clocks}) quiet_{i} <= quiet_{i} + 1;",
            f"    if (quiet_{i} == {clocks}) `RULE(rst || inside_{i} == 0); end",
        ]
    return lines


def prove(proof: Proof, verilog: Path, out: Path, checkers: Path | None = None) -> float | None:
    """Check a converted block; return seconds of a processor, or None if `checkers` say nothing of it.

    Raises FormalError with the broken rule.

    Args:
        proof: Block and rules.
        verilog: The converted block.
        out: Folder of results.
        checkers: Folder with wb2axip's rules, which take the place of ours.
    """
    began, name = _worked(), proof.top.rpartition(":")[2]
    text = verilog.read_text(encoding="utf-8")
    ports = ports_of(text)
    named = {s for pair in proof.passes for s in pair if isinstance(s, str)} | set(proof.still)
    for stream in named - set(streams_of(ports)):
        there = ", ".join(streams_of(ports)) or "none"
        raise FormalError(f"{name}: expected a stream {stream!r}, got {there}")
    rules = wrapper(proof, ports, theirs=checkers is not None)
    theirs = [shutil.copy(checkers / f"{name}.v", out) for name in CHECKERS] if checkers else []
    (out / f"{name}.v").write_text(text, encoding="utf-8")
    (out / f"{name}.formal.sv").write_text(rules, encoding="utf-8")
    asserted = _model(name, out, proof.free, "", theirs)
    if not asserted and checkers:
        return None
    if not asserted:
        raise FormalError(f"{name}: there is nothing to prove: no stream out, no `RULE")
    check = f"bmc3 -F {proof.depth} -T {HARDEST}" if proof.depth else f"pdr -T {HARDEST}"
    said = _abc(name, out, check)
    if broken := re.search(r"Output (\d+) of miter .* was asserted in frame (\d+)", said):
        place = asserted[int(broken[1])]
        if checkers:
            raise FormalError(f"{name}: a rule is broken in clock {broken[2]}: {place}")
        line = int(place.split(":")[-1].split("$")[0].split(".")[0])
        rule = rules.split("\n")[line - 1].strip()
        raise FormalError(
            f"{name}: a rule is broken in clock {broken[2]}, line {line} of {name}.formal.sv: {rule}"
        )
    if (f"No output asserted in {proof.depth} frames" if proof.depth else "Property proved") not in said:
        raise FormalError(f"{name}: neither proven nor broken in {HARDEST} s; see {out / name}.abc.log")
    seen = _model(name, out, proof.free, "-D SEE", theirs)
    if seen:
        # ABC's bmc3 has crashed where all is seen in the first clocks.
        bounded = proof.reach and not checkers
        search = f"bmc3 -a -g -F {proof.reach}" if bounded else f"pdr -a -T {HARDEST}"
        said = _abc(name, out, search)
        can = {int(n) for n in re.findall(r"Output +(\d+) was asserted", said)}
        if lacking := [place for n, place in enumerate(seen) if n not in can]:
            when = f"in {proof.reach} clocks" if bounded else "ever"
            raise FormalError(f"{name}: cannot happen {when}: {', '.join(lacking)}")
    return _worked() - began


def _worked() -> float:
    """Seconds of a processor that tools have taken, whatever else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _model(name: str, out: Path, free: int, defines: str, theirs: Sequence[str]) -> list[str]:
    """Write the block with its rules as an and-inverter graph; return the places of the asserts."""
    script = "".join(f"read_verilog -formal -sv {Path(file).name}; " for file in theirs)
    script += f"read_verilog {name}.v; read_verilog -formal -sv {defines} {name}.formal.sv; "
    script += "prep -top formal -flatten; chformal -cover -remove; async2sync; opt -full; memory -nomap; "
    script += f"delete t:$mem_v2 r:SIZE>{free} %i; setundef -undriven -anyseq; memory_map; "
    script += "opt -full; dffunmap; opt_clean; "
    script += "techmap; simplemap; dffunmap; opt_clean; formalff -clk2ff -ff2anyinit; "
    script += "setundef -undriven -anyseq; opt_clean; simplemap; aigmap; opt_clean; "
    script += f"write_aiger -zinit -ywmap {name}.json {name}.aig"
    made = [f"{name}.aig", f"{name}.json"]
    yosys(out, script, makes=made, log=f"{name}.formal.log")
    return [path[-1] for path in json.loads((out / made[1]).read_text())["asserts"]]


def _abc(name: str, out: Path, check: str) -> str:
    """Return what ABC says."""
    return run(
        [find(SOLVER), "-c", f"read_aiger {name}.aig; fold; strash; {check}"], out, log=f"{name}.abc.log"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Check all blocks, or those named; return 1 if one breaks a rule, 2 if tools are missing."""
    from oscar_hdl.flow.convert import ConvertError, convert_top
    from oscar_hdl.flow.proofs.proofs import PROOFS

    parser = argparse.ArgumentParser(
        prog="python -m oscar_hdl.flow.proofs.formal",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/formal"), help="folder of results")
    parser.add_argument("--top", nargs="*", metavar="BLOCK", help=", ".join(PROOFS))
    parser.add_argument("--light", action="store_true", help="the part of the list for each change")
    parser.add_argument("--checkers", type=Path, metavar="FOLDER", help="bench/formal of a clone of wb2axip")
    args = parser.parse_args(argv)
    # What takes an offer back is no AXI4-Stream: inside the NIC there are some.
    tops = args.top or [
        name
        for name, proof in PROOFS.items()
        if (proof.light or not args.light) and (proof.forget == NEVER or not args.checkers)
    ]
    unknown = [top for top in tops if top not in PROOFS]
    if unknown:
        parser.error(f"no proof of {', '.join(unknown)}; there are {', '.join(PROOFS)}")
    missing = [
        f"{name}.v" for name in CHECKERS if args.checkers and not (args.checkers / f"{name}.v").is_file()
    ]
    if missing:
        what = f"a folder without {', '.join(missing)}"
        parser.error(f"{args.checkers}: expected bench/formal of a clone of wb2axip, got {what}")
    args.out.mkdir(parents=True, exist_ok=True)
    total = 0.0
    try:
        find(SOLVER)
        for name in tops:
            proof = PROOFS[name]
            file = convert_top(proof.top, "verilog", args.out, proof.parameters)
            seconds = prove(proof, file, args.out, args.checkers)
            if seconds is None:
                print(f"{name:<20} has no stream out", flush=True)
                continue
            total += seconds
            clocks = f"{proof.depth} clocks" if proof.depth else "for ever"
            print(f"{name:<20} {clocks:>9}, proven in {seconds:.0f} s", flush=True)
    except FormalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (FlowError, ConvertError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(tops)} blocks in {total:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
