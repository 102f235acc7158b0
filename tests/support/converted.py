"""Holds the converted Verilog of a top to what MyHDL's block did in every clock."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oscar_hdl.flow import convert

Ports = Sequence[tuple[str, Any]]


def compare_verilog(
    name: str,
    ports: tuple[Ports, Ports],
    trace: Sequence[tuple[Sequence[int], Sequence[int]]],
    folder: Path,
    warm: int,
    **parameters: int,
) -> None:
    """Simulate a top (oscar_hdl.flow.tops.find) with Icarus; fail in the first clock in which it differs.

    ports: inputs and outputs with their names; trace: their values in each clock. Before clock `warm` nothing
    is compared: combinational processes do not run before one of their inputs changes.
    """
    flat = convert.convert_top(name, "verilog", folder, parameters)
    name = convert.block_name(name)
    inputs, outputs = ([(n, len(s) or 1) for n, s in side] for side in ports)
    lines = []
    for sides in trace:
        number = 0
        for side, numbers in zip((inputs, outputs), sides, strict=True):
            for (_, width), value in zip(side, numbers, strict=True):
                number = number << width | value
        lines.append(f"{number:x}")
    (folder / "vectors.hex").write_text("\n".join(lines) + "\n")
    names = [n for n, _ in inputs], [n for n, _ in outputs]
    wide_in, wide_out = sum(w for _, w in inputs), sum(w for _, w in outputs)
    declared = "\n".join(f"  wire [{w - 1}:0] {n};" for n, w in (*inputs, *outputs))
    pins = ", ".join(f".{n}({n})" for n in (*names[0], *names[1]))
    (folder / "tb.v").write_text(f"""module tb;
  reg clk = 0; reg [{wide_in + wide_out - 1}:0] vectors [0:{len(lines) - 1}];
  reg [{wide_in - 1}:0] stimulus; reg [{wide_out - 1}:0] expected; integer i;
{declared}
  assign {{{", ".join(names[0])}}} = stimulus;
  {name} u(.clk(clk), {pins});
  initial begin
    $readmemh("vectors.hex", vectors);
    for (i = 0; i < {len(lines)}; i = i + 1) begin
      {{stimulus, expected}} = vectors[i];
      #1 if (i >= {warm} && {{{", ".join(names[1])}}} !== expected) begin
        $display("differs in clock %0d", i); $finish;
      end
      clk = 1; #1 clk = 0;
    end
    $display("equal"); $finish;
  end
endmodule
""")
    subprocess.run(["iverilog", "-g2005", "-o", "t", "tb.v", str(flat)], cwd=folder, check=True)
    told = subprocess.run(["vvp", "t"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert told.split() == ["equal"], told
