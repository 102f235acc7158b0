"""Synthesise one design for Gowin's GW5AST-138C.

yosys infers no multipliers for this family, so `MULTIPLIERS` maps products to cells. nextpnr places nothing
without pins here, so a block stands behind four of them, as a whole NIC does. Registers of multipliers and
block RAMs stay unused: nextpnr's model of this part has no delays for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oscar_hdl.flow.placement.array import array_verilog, ports_of
from oscar_hdl.flow.placement.nextpnr import Part
from oscar_hdl.flow.placement.packing import Packed
from oscar_hdl.flow.tools import read_verilog, write_text, yosys

PINS = {"clk": "V22", "rst": "AB13", "si": "AA13", "so": "AB15"}
# Both cells multiply numbers in two's complement, so an unsigned factor needs a 0 on top. MULT27X36 takes the
# place of two MULTALU27X18. Logic is cheaper for an unsigned factor of less than 4 bits, a signed one of less
# than 5, and a constant one.
MULTIPLIERS = """(* techmap_celltype = "$mul" *)
module oscar_product (A, B, Y);
  parameter A_SIGNED = 0, B_SIGNED = 0, A_WIDTH = 1, B_WIDTH = 1, Y_WIDTH = 1;
  parameter _TECHMAP_CONSTMSK_A_ = 0, _TECHMAP_CONSTMSK_B_ = 0;
  input [A_WIDTH-1:0] A;
  input [B_WIDTH-1:0] B;
  output [Y_WIDTH-1:0] Y;
  localparam A_BITS = A_WIDTH + (A_SIGNED ? 0 : 1), B_BITS = B_WIDTH + (B_SIGNED ? 0 : 1);
  localparam LONGER = A_BITS > B_BITS ? A_BITS : B_BITS, SHORTER = A_BITS > B_BITS ? B_BITS : A_BITS;
  wire _TECHMAP_FAIL_ = SHORTER < 5 || SHORTER > 27 || LONGER > 36
    || &_TECHMAP_CONSTMSK_A_ || &_TECHMAP_CONSTMSK_B_;
  wire [35:0] a = {{36{A_SIGNED ? A[A_WIDTH-1] : 1'b0}}, A}, b = {{36{B_SIGNED ? B[B_WIDTH-1] : 1'b0}}, B};
  wire [35:0] longer = A_BITS > B_BITS ? a : b, shorter = A_BITS > B_BITS ? b : a;
  wire [62:0] product;
  assign Y = {{Y_WIDTH{product[62]}}, product};
  generate
    if (LONGER <= 27 && SHORTER <= 18) begin
      MULTALU27X18 cell_ (
        .DOUT(product[47:0]), .A(longer[26:0]), .B(shorter[17:0]), .C(48'b0), .D(26'b0), .SIA(27'b0),
        .CASI(48'b0), .ACCSEL(1'b0), .PSEL(1'b0), .ASEL(1'b0), .PADDSUB(1'b0), .CSEL(1'b0), .CASISEL(1'b0),
        .ADDSUB(2'b0), .CLK(2'b0), .CE(2'b0), .RESET(2'b0));
      assign product[62:48] = {15{product[47]}};
    end else
      MULT27X36 cell_ (
        .DOUT(product), .A(shorter[26:0]), .B(longer), .D(26'b0), .PSEL(1'b0), .PADDSUB(1'b0), .CLK(2'b0),
        .CE(2'b0), .RESET(2'b0));
  endgenerate
endmodule
"""
PARTS = {
    "gw5ast_138c": Part(
        tool="nextpnr-himbaechel-gowin",
        arguments=(
            *("--device", "GW5AST-LV138PG484AC1/I0", "--vopt", "family=GW5AST-138C"),
            *("--vopt", "cst=pins.cst"),
        ),
        cells={"LUT4": "LUT4", "ALU": "ALU", "FF": "DFF", "MULTALU": "MULTALU27X18", "BSRAM": "BSRAM"},
        notes=(
            "# LUT4: sites, with distributed RAM and those that a flip-flop's input passes. Blocks stand",
            "# behind shift registers, which count. MULTALU: unsigned factors of 18 bits or more take two.",
            "# nextpnr has no delays of multipliers for this part: MHz leaves out all paths through them.",
        ),
    )
}


def synthesise(verilog: Sequence[Path], top: str, out: Path, **_: object) -> Packed:
    """Make `out`/<top>.netlist.json and `out`/pins.cst, for a top with the ports of PINS; pack nothing."""
    netlist = f"{top}.netlist.json"
    write_text(out / "multipliers.v", MULTIPLIERS)
    write_text(out / "pins.cst", "".join(f'IO_LOC "{port}" {pin};\n' for port, pin in PINS.items()))
    script = read_verilog(verilog, out) + f"hierarchy -top {top}; proc; flatten; opt; wreduce; opt_clean; "
    script += f"techmap -map multipliers.v; synth_gowin -family gw5a -no-rw-check -top {top} -json {netlist}"
    yosys(out, script, makes=[netlist], log=f"{top}.yosys.log")
    return Packed()


def synthesise_array(verilog: Path, block: str, top: str, count: int, out: Path, **_: object) -> Packed:
    """Make `out`/<top>.netlist.json: `count` copies of `block` in `top`."""
    array = out / f"{top}.v"
    array.write_text(array_verilog(top, block, ports_of(verilog, block, out), count))
    return synthesise([verilog, array], top, out)
