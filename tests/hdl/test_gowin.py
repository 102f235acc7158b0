"""Products on the Gowin GW5AST-138C: which cells they become, and that these multiply the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from needs import needs
from oscar_hdl.flow.placement.array import ports_of
from oscar_hdl.flow.placement.gowin import synthesise
from oscar_hdl.flow.placement.replay import GOWIN, compare
from oscar_sim.seeds import dice

# Bits of both factors, negative where signed, and the cell: at and beside the widths of both multipliers.
PRODUCTS = [
    (4, 17, "MULTALU27X18"),
    (26, 17, "MULTALU27X18"),
    (-27, -18, "MULTALU27X18"),
    (-18, 26, "MULTALU27X18"),
    (9, -12, "MULTALU27X18"),
    (18, 18, "MULT27X36"),
    (26, 35, "MULT27X36"),
    (-36, -27, "MULT27X36"),
    (3, 12, "logic"),
]


@pytest.mark.usefixtures("seed")
def test_products(tmp_path: Path) -> None:
    """Each becomes the smallest cell that has it; results are the source's, at the extremes and at random."""
    needs("fpga", "iverilog")
    ports, lines = ["input clk"], []
    for n, (a, b, _) in enumerate(PRODUCTS):
        signs = ["signed " if bits < 0 else "" for bits in (a, b)]
        ports += [f"input {signs[0]}[{abs(a) - 1}:0] a{n}", f"input {signs[1]}[{abs(b) - 1}:0] b{n}"]
        ports.append(f"output reg [{abs(a) + abs(b) - 1}:0] p{n}")
        factors = [x if bits < 0 else f"$signed({{1'b0, {x}}})" for x, bits in ((f"a{n}", a), (f"b{n}", b))]
        lines.append(f"always @(posedge clk) p{n} <= {' * '.join(factors)};")
    source = tmp_path / "dut.v"
    source.write_text("\n".join([f"module dut({', '.join(ports)});", *lines, "endmodule", ""]))
    synthesise([source], "dut", tmp_path)
    netlist = tmp_path / "dut.netlist.json"
    cells = json.loads(netlist.read_text())["modules"]["dut"]["cells"].values()
    counted = Counter(cell["type"] for cell in cells if cell["type"].startswith("MULT"))
    assert counted == Counter(cell for *_, cell in PRODUCTS if cell != "logic")

    declared, rng = ports_of(source, "dut", tmp_path), dice(1)
    inputs = {name: width for name, (way, width) in declared.items() if way == "input" and name != "clk"}
    clocks = [
        {name: rng.choice([0, 1, 2**w - 1, 2 ** (w - 1), rng.getrandbits(w)]) for name, w in inputs.items()}
        for _ in range(300)
    ]
    assert compare(source, netlist, "dut", declared, clocks, tmp_path, GOWIN).clocks == len(clocks)
