"""Replay inputs on a source and on its netlist, and compare every output in every clock.

yosys has no simulation models of the cells that `packing` changes and of multipliers that `gowin` maps to;
a `Library` adds those. The other cells come from yosys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oscar_hdl.flow.tools import FlowError, find, run, yosys

Ports = Mapping[str, tuple[str, int]]  # direction and width


def _bus(name: str, width: int) -> str:
    return "{" + ", ".join(f"{name}{n}" for n in reversed(range(width))) + "}"


def _pins(*buses: tuple[str, int]) -> str:
    return ", ".join(f"{name}{n}" for name, width in buses for n in range(width))


def _multiplier() -> str:
    ranks = ("INPUTA", "INPUTB", "OUTPUT")
    parameters = ", ".join(f'REG_{r}_CLK = "NONE", REG_{r}_CE = "CE0", REG_{r}_RST = "RST0"' for r in ranks)
    unused = 'CLK0_DIV = "ENABLED", GSR = "ENABLED", RESETMODE = "SYNC", MULT_BYPASS = "DISABLED"'
    select = "\n".join(
        f'  wire ce_{r} = REG_{r}_CE == "CE0" ? CE0 : REG_{r}_CE == "CE1" ? CE1'
        f' : REG_{r}_CE == "CE2" ? CE2 : CE3;'
        for r in ranks
    )
    return f"""module MULT18X18D #(parameter {parameters}, {unused}) (
  input {_pins(("A", 18), ("B", 18), ("C", 18))}, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
  input CLK0, CE0, CE1, CE2, CE3, output {_pins(("P", 36))});
  wire [17:0] a = {_bus("A", 18)}, b = {_bus("B", 18)};
{select}
  reg [17:0] a_reg = 0, b_reg = 0;
  reg [35:0] p_reg = 0;
  wire [17:0] fa = REG_INPUTA_CLK == "CLK0" ? a_reg : a;
  wire [17:0] fb = REG_INPUTB_CLK == "CLK0" ? b_reg : b;
  wire [35:0] xa = {{{{18{{SIGNEDA & fa[17]}}}}, fa}}, xb = {{{{18{{SIGNEDB & fb[17]}}}}, fb}};
  wire [35:0] p = xa * xb;
  always @(posedge CLK0) begin
    if (ce_INPUTA) a_reg <= a;
    if (ce_INPUTB) b_reg <= b;
    if (ce_OUTPUT) p_reg <= p;
  end
  assign {_bus("P", 36)} = REG_OUTPUT_CLK == "CLK0" ? p_reg : p;
endmodule
"""


def _block_ram() -> str:
    rows = [f"INITVAL_{n:02X}" for n in range(64)]
    initial = ", ".join(f"{row} = 320'b0" for row in rows)
    other = "ASYNC_RESET_RELEASE CLKAMUX CLKBMUX GSR RESETMODE INIT_DATA WID"
    other = ", ".join(f'{name} = ""' for name in other.split())
    own, pins = [], []
    for s in "AB":
        own.append(
            f'DATA_WIDTH_{s} = 18, REGMODE_{s} = "NOREG", WRITEMODE_{s} = "NORMAL", CSDECODE_{s} = "0b000"'
        )
        pins.append(f"input {_pins((f'DI{s}', 18), (f'AD{s}', 14), (f'CS{s}', 3))}")
        pins.append(f"input CE{s}, OCE{s}, CLK{s}, WE{s}, RST{s}, output {_pins((f'DO{s}', 18))}")
    sides = ""
    for s in "AB":
        sides += f"""
  wire [13:0] ad_{s} = {_bus(f"AD{s}", 14)};
  wire [17:0] di_{s} = {_bus(f"DI{s}", 18)};
  wire on_{s} = CE{s} & ({_bus(f"CS{s}", 3)} == 3'b000);
  reg [17:0] out_{s} = 0, oreg_{s} = 0;
  wire [10:0] byte_{s} = ad_{s}[13:3];
  always @(posedge CLK{s}) begin
    if (OCE{s}) oreg_{s} <= out_{s};
    if (on_{s} & ~PDP) begin
      if (WE{s}) case (DATA_WIDTH_{s})
        18: begin
          if (ad_{s}[0]) mem[{{ad_{s}[13:4], 1'b0}}] <= di_{s}[8:0];
          if (ad_{s}[1]) mem[{{ad_{s}[13:4], 1'b1}}] <= di_{s}[17:9];
        end
        9: mem[byte_{s}] <= di_{s}[8:0];
        4: mem[byte_{s}][4 * ad_{s}[2] +: 4] <= di_{s}[3:0];
        2: mem[byte_{s}][2 * ad_{s}[2:1] +: 2] <= di_{s}[1:0];
        1: mem[byte_{s}][ad_{s}[2:0]] <= di_{s}[0];
      endcase
      if (~WE{s} | WRITEMODE_{s} == "READBEFOREWRITE") case (DATA_WIDTH_{s})
        18: out_{s} <= {{mem[{{ad_{s}[13:4], 1'b1}}], mem[{{ad_{s}[13:4], 1'b0}}]}};
        9: out_{s} <= mem[byte_{s}];
        4: out_{s} <= mem[byte_{s}][4 * ad_{s}[2] +: 4];
        2: out_{s} <= mem[byte_{s}][2 * ad_{s}[2:1] +: 2];
        1: out_{s} <= mem[byte_{s}][ad_{s}[2:0]];
      endcase
    end
  end
  assign {_bus(f"DO{s}", 18)} = REGMODE_{s} == "OUTREG" ? oreg_{s} : out_{s};"""
    return f"""module DP16KD #(parameter {", ".join(own)}, {other}, {initial}) (
  {", ".join(pins)});
  localparam PDP = DATA_WIDTH_A == 36;
  localparam [20479:0] INITIAL = {{{", ".join(reversed(rows))}}};
  reg [8:0] mem [0:2047];
  integer i;
  initial for (i = 0; i < 1024; i = i + 1) begin
    mem[2 * i] = INITIAL[20 * i +: 9];
    mem[2 * i + 1] = INITIAL[20 * i + 9 +: 9];
  end{sides}
  // 36 bits: port A writes, port B reads, halves in both.
  always @(posedge CLKA) if (PDP & on_A & WEA) begin
    if (ad_A[0]) mem[{{ad_A[13:5], 2'd0}}] <= di_A[8:0];
    if (ad_A[1]) mem[{{ad_A[13:5], 2'd1}}] <= di_A[17:9];
    if (ad_A[2]) mem[{{ad_A[13:5], 2'd2}}] <= di_B[8:0];
    if (ad_A[3]) mem[{{ad_A[13:5], 2'd3}}] <= di_B[17:9];
  end
  always @(posedge CLKB) if (PDP & on_B) begin
    out_A <= {{mem[{{ad_B[13:5], 2'd1}}], mem[{{ad_B[13:5], 2'd0}}]}};
    out_B <= {{mem[{{ad_B[13:5], 2'd3}}], mem[{{ad_B[13:5], 2'd2}}]}};
  end
endmodule
"""


@dataclass(frozen=True)
class Library:
    """Models of a part's cells: the script that makes yosys read its own, and Verilog of those it lacks."""

    script: str
    verilog: str


def _gowin_multipliers() -> str:
    """Both cells as far as `gowin` uses them: factors in two's complement, all registers bypassed."""
    control = "input [1:0] CLK, CE, RESET, input PSEL, PADDSUB, input [25:0] D"
    added = "input [47:0] C, CASI, input ACCSEL, ASEL, CSEL, CASISEL, input [1:0] ADDSUB"
    return f"""module MULTALU27X18 (input [26:0] A, SIA, input [17:0] B, {added},
  {control}, output signed [47:0] DOUT);
  assign DOUT = $signed(A) * $signed(B);
endmodule
module MULT27X36 (input [26:0] A, input [35:0] B, {control}, output signed [62:0] DOUT);
  assign DOUT = $signed(A) * $signed(B);
endmodule
"""


ECP5 = Library(
    "read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v; delete DP16KD; ", _multiplier() + _block_ram()
)
GOWIN = Library("read_verilog +/gowin/cells_sim.v; ", _gowin_multipliers())


def netlist_verilog(netlist: Path, top: str, out: Path, library: Library) -> Path:
    """Write a netlist as Verilog module <top>_netlist, with cells of library.verilog left as they are."""
    made, alone = out / f"{top}_netlist.v", out / f"{top}.alone.json"
    modules = json.loads(netlist.read_text())["modules"]
    alone.write_text(json.dumps({"modules": {top: modules[top]}}))  # without yosys's black boxes
    script = (
        f"{library.script}read_json {alone.name}; "
        f"hierarchy -top {top}; proc; flatten; clean; rename {top} {top}_netlist; "
        f"write_verilog -noattr {made.name}"
    )
    yosys(out, script, makes=[made.name])
    return made


@dataclass(frozen=True)
class Compared:
    """Output bits over all clocks: compared, and left out because the source did not know them."""

    clocks: int
    known: int
    unknown: int


def compare(
    source: Path,
    netlist: Path,
    top: str,
    ports: Ports,
    stimulus: Iterable[Mapping[str, int]],
    out: Path,
    library: Library = ECP5,
) -> Compared:
    """Simulate the Verilog of a block and its netlist (JSON) side by side.

    stimulus: for each clock the values of inputs other than clk; those not given are 0. An output bit that
    is X in the source is not compared. Raises FlowError that names the first difference.
    """
    inputs = [(name, width) for name, (way, width) in ports.items() if way == "input" and name != "clk"]
    outputs = [(name, width) for name, (way, width) in ports.items() if way == "output"]
    wide, width_out = sum(w for _, w in inputs), sum(w for _, w in outputs)
    rows = []
    for values in stimulus:
        unknown = set(values) - {name for name, _ in inputs}
        if unknown:
            raise ValueError(f"{top} has no inputs {sorted(unknown)}")
        packed = 0
        for name, width in inputs:
            packed = (packed << width) | (values.get(name, 0) & ((1 << width) - 1))
        rows.append(f"{packed:x}")
    memory, bench, program = out / f"{top}.stimulus", out / f"{top}_bench.v", out / f"{top}.vvp"
    memory.write_text("\n".join(rows) + "\n")
    given = "".join(f", .{name}(i_{name})" for name, _ in inputs)
    declared = "\n".join(
        f"  wire [{w - 1}:0] i_{name}, s_{name}, n_{name};" for name, w in [*inputs, *outputs]
    )
    bench.write_text(f"""`timescale 1ns/1ps
module bench;
  reg clk = 0;
  reg [{wide - 1}:0] stimulus [0:{len(rows) - 1}], now = 0;
{declared}
  assign {{{", ".join(f"i_{name}" for name, _ in inputs)}}} = now;
  {top} source (.clk(clk){given}{"".join(f", .{n}(s_{n})" for n, _ in outputs)});
  {top}_netlist netlist (.clk(clk){given}{"".join(f", .{n}(n_{n})" for n, _ in outputs)});
  wire [{width_out - 1}:0] s = {{{", ".join(f"s_{n}" for n, _ in outputs)}}};
  wire [{width_out - 1}:0] n = {{{", ".join(f"n_{n}" for n, _ in outputs)}}};
  integer t, b, known = 0, unknown = 0, different = 0;
  initial begin
    $readmemh("{memory.name}", stimulus);
    for (t = 0; t < {len(rows)} && !different; t = t + 1) begin
      now = stimulus[t];
      #5;
      for (b = 0; b < {width_out}; b = b + 1)
        if (s[b] === 1'bx) unknown = unknown + 1;
        else begin
          known = known + 1;
          if (s[b] !== n[b]) different = 1;
        end
      if (different) $display("clock %0d: source %h netlist %h", t, s, n);
      clk = 1;
      #5 clk = 0;
    end
    $display("compared %0d %0d %0d", t, known, unknown);
    $finish;
  end
endmodule
""")
    models = out / "cell_models.v"
    models.write_text(library.verilog)
    post = netlist_verilog(netlist, top, out, library)
    command = [find("iverilog"), "-g2012", "-o", program.name, "-s", "bench"]
    run([*command, bench.name, str(source.resolve()), post.name, models.name], out, makes=[program.name])
    said = run([find("vvp"), "-n", program.name], out)
    last = said.strip().split("\n")[-1].split()
    if "clock " in said or last[:1] != ["compared"]:
        names = ", ".join(name for name, _ in outputs)
        raise FlowError(f"{top}: the netlist differs from its source ({names}):\n{said}")
    return Compared(*map(int, last[1:]))
