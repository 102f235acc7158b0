"""Register packing: what qualifies, what does not, and that the packed netlist does the same."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from needs import needs
from oscar_hdl.coder.encode.divide import divide
from oscar_hdl.flow import tools
from oscar_hdl.flow.convert import convert_top
from oscar_hdl.flow.placement.array import ports_of
from oscar_hdl.flow.placement.ecp5 import LEAST_SHARED, synthesise, synthesise_array
from oscar_hdl.flow.placement.packing import pack
from oscar_hdl.flow.placement.replay import compare
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.seeds import dice


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    needs("fpga", "iverilog")


PORTS = """input clk, rst, en, we, input [17:0] a, b, input [8:0] wa, ra, input [35:0] d,
  output reg [35:0] p, output reg [17:0] q"""
# Each body names its ranks: what is expected to be packed, as factors, products, reads.
BODIES = {
    "all ranks": (
        "reg [17:0] x, y; always @(posedge clk) begin x <= a; y <= b; p <= x * y; q <= x; end",
        (1, 1, 0),
    ),
    "enables": (
        "reg [17:0] x, y; always @(posedge clk) begin if (en) x <= a; y <= b; if (we) p <= x * y; end",
        (1, 1, 0),
    ),
    "a factor with reset": (
        "reg [17:0] x, y; always @(posedge clk) begin x <= rst ? 0 : a; y <= b; p <= x * y; end",
        (0, 1, 0),
    ),
    "one factor without a rank": (
        "reg [17:0] x; always @(posedge clk) begin x <= a; p <= x * b; end",
        (0, 1, 0),
    ),
    "factors of two enables": (
        "reg [17:0] x, y; always @(posedge clk) begin x[8:0] <= a; y <= b;"
        "if (en) x[17:9] <= a[17:9]; p <= x * y; end",
        (0, 1, 0),
    ),
    "a product read twice": (
        "wire [35:0] m = a * b; always @(posedge clk) begin p <= m; q <= m ^ (m >> 9); end",
        (0, 0, 0),
    ),
    "a product through logic": ("always @(posedge clk) p <= (a * b) ^ d;", (0, 0, 0)),
    "36 bits": (
        "reg [35:0] m [0:511], o; always @(posedge clk) begin if (we) m[wa] <= d;"
        "o <= m[ra]; if (en) p <= o; end",
        (0, 0, 1),
    ),
    "18 bits": (
        "reg [17:0] m [0:1023], o; always @(posedge clk) begin if (we) m[{wa, d[0]}] <= d;"
        "if (en) o <= m[{ra, d[1]}]; q <= o; end",
        (0, 0, 1),
    ),
    "9 bits": (
        "reg [8:0] m [0:2047], o; always @(posedge clk) begin if (we) m[{wa, d[1:0]}] <= d;"
        "o <= m[{ra, d[3:2]}]; q <= o; end",
        (0, 0, 1),
    ),
    "a read with reset": (
        "reg [17:0] m [0:511], o; always @(posedge clk) begin if (we) m[wa] <= d; o <= m[ra];"
        "q <= rst ? 0 : o; end",
        (0, 0, 0),
    ),
    "a ROM": (
        "reg [17:0] m [0:1023], o; integer i; initial for (i = 0; i < 1024; i = i + 1) m[i] = i * 7919;"
        "always @(posedge clk) begin o <= m[{ra, en}]; q <= o; end",
        (0, 0, 1),
    ),
    "product into factor": (
        "reg [17:0] x, y, z; reg [35:0] m; always @(posedge clk) begin x <= a; y <= b; m <= x * y; z <= b;"
        "p <= m[17:0] * z; end",
        (2, 1, 0),
    ),
}


def stimulus(clocks: int, seed: int = 1):
    """Random inputs; no read of an address in the clock in which it is written."""
    rng = dice(seed)
    for _ in range(clocks):
        now = {"rst": rng.random() < 0.1, "en": rng.getrandbits(1), "a": rng.getrandbits(18)}
        now |= {"b": rng.getrandbits(18), "we": rng.getrandbits(1), "d": rng.getrandbits(36)}
        now |= {"wa": rng.randrange(0, 40, 2), "ra": rng.randrange(0, 40, 2)}
        if now["wa"] == now["ra"]:
            now["ra"] += 1
        yield now


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with all cases in one design, synthesised and packed."""
    folder = tmp_path_factory.mktemp("packing")
    names = ["in_" + case.replace(" ", "_") for case in BODIES]
    text = ["module dut(input clk, rst, en, we, input [17:0] a, b, input [8:0] wa, ra, input [35:0] d,"]
    text.append(", ".join(f"output [35:0] {n}_p, output [17:0] {n}_q" for n in names) + ");")
    for n, name in enumerate(names):  # rotated inputs, or yosys would merge what cases have in common
        rotated = f"{{a[{n}:0], a[17:{n + 1}]}}, {{b[{n}:0], b[17:{n + 1}]}}"
        text.append(f"case_{name} u_{name}(clk, rst, en, we, {rotated}, wa, ra, d, {name}_p, {name}_q);")
    text.append("endmodule")
    for name, (body, _) in zip(names, BODIES.values(), strict=True):
        text.append(f"module case_{name}({PORTS});\n{body}\nendmodule")
    (folder / "dut.v").write_text("\n".join(text) + "\n")
    synthesise([folder / "dut.v"], "dut", folder)
    return folder


@pytest.mark.parametrize("case", BODIES)
def test_ranks(case: str, packed: Path) -> None:
    """The ranks that may move do, the others stay."""
    module = json.loads((packed / "dut.netlist.json").read_text())["modules"]["dut"]
    part = f"in_{case.replace(' ', '_')}"
    cells = [cell["parameters"] for name, cell in module["cells"].items() if part in name]
    found = (
        sum("REG_INPUTA_CLK" in cell and "REG_INPUTB_CLK" in cell for cell in cells),
        sum("REG_OUTPUT_CLK" in cell for cell in cells),
        sum("OUTREG" in (cell.get("REGMODE_A"), cell.get("REGMODE_B")) for cell in cells),
    )
    assert found == BODIES[case][1]


@pytest.mark.usefixtures("seed")
def test_the_packed_netlist_does_the_same(packed: Path) -> None:
    """Outputs are those of the source in every clock."""
    ports = ports_of(packed / "dut.v", "dut", packed)
    compared = compare(packed / "dut.v", packed / "dut.netlist.json", "dut", ports, stimulus(2000), packed)
    assert compared.clocks == 2000
    assert compared.known > 2000 * 36 * 10  # the rest are outputs that a case does not have


@pytest.mark.usefixtures("seed")
def test_compare_finds_a_difference(tmp_path: Path) -> None:
    """A rank too many does not pass."""
    source = tmp_path / "dut.v"
    source.write_text(f"module dut({PORTS});\n{BODIES['all ranks'][0]}\nendmodule\n")
    synthesise([source], "dut", tmp_path, packing=False)
    netlist = json.loads((tmp_path / "dut.json").read_text())
    multiplier = next(c for c in netlist["modules"]["dut"]["cells"].values() if c["type"] == "MULT18X18D")
    multiplier["parameters"]["REG_OUTPUT_CLK"] = "CLK0"
    clock = netlist["modules"]["dut"]["ports"]["clk"]["bits"]
    multiplier["connections"] |= {"CLK0": clock, "CE0": ["1"]}
    multiplier["port_directions"] |= {"CLK0": "input", "CE0": "input"}
    (tmp_path / "dut.netlist.json").write_text(json.dumps(netlist))
    ports = ports_of(source, "dut", tmp_path)
    with pytest.raises(tools.FlowError, match=r"dut: the netlist differs from its source"):
        compare(source, tmp_path / "dut.netlist.json", "dut", ports, stimulus(100), tmp_path)


def division() -> Any:
    """The encoder's division as a top: its multipliers are what packing is for."""
    return divide(bit(), word(5), word(11), word(24), word(16), word(10), word(24))


@pytest.mark.parametrize("least", [(1, 1), LEAST_SHARED])
@pytest.mark.usefixtures("seed")
def test_a_packed_division_does_the_same(
    least: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All outputs, in thousands of clocks; alone, and as in an array."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # conversion imports this file
    source = convert_top(f"{__name__}:division", "verilog", tmp_path / "hdl")
    packed = synthesise([source], "division", tmp_path, least=least)
    assert packed.factors + packed.products > 0
    ports, rng = ports_of(source, "division", tmp_path), dice(1)
    clocks = [
        {"phase": n % 32}
        | {name: rng.getrandbits(w) for name, (way, w) in ports.items() if way == "input" and name != "clk"}
        for n in range(2000)
    ]
    clocks = [now | {"phase": n % 32} for n, now in enumerate(clocks)]
    compared = compare(source, tmp_path / "division.netlist.json", "division", ports, clocks, tmp_path)
    assert compared.clocks == len(clocks)
    assert compared.unknown < 0.2 * compared.known  # before the first values nothing is in the registers


def test_pack_needs_one_top() -> None:
    """A netlist that is not flat is refused."""
    with pytest.raises(ValueError, match="expected one top module in the netlist, found 0"):
        pack({"modules": {"a": {"cells": {}, "ports": {}}}})


def test_array_keeps_every_copy(tmp_path: Path) -> None:
    """An array of two has twice the multipliers, and four pins."""
    source = tmp_path / "dut.v"
    source.write_text(f"module dut({PORTS});\n{BODIES['all ranks'][0]}\nendmodule\n")
    assert ports_of(source, "dut", tmp_path)["d"] == ("input", 36)
    done = synthesise_array(source, "dut", "two", 2, tmp_path)
    assert (done.factors, done.products) == (1, 1)
    netlist = json.loads((tmp_path / "two.netlist.json").read_text())
    of_type = Counter(
        cell["type"] for module in netlist["modules"].values() for cell in module["cells"].values()
    )
    assert (of_type["dut"], of_type["MULT18X18D"]) == (2, 1)
    top = next(m for m in netlist["modules"].values() if "top" in m["attributes"])
    assert sum(len(port["bits"]) for port in top["ports"].values()) == 4
    assert sum("BEL" in cell["attributes"] for cell in top["cells"].values()) == 2
