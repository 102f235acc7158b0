"""Put several copies of a block on one device, with so few pins that they do not matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oscar_hdl.flow.tools import read_verilog, yosys

COLUMNS, ROWS = 126, 95  # of an 85F
MEMORY_ROWS = range(10, 95, 12)  # have block RAM and multipliers instead of logic


def ports_of(verilog: Path, top: str, out: Path) -> dict[str, tuple[str, int]]:
    """Return direction and width of each port of a Verilog module, in order."""
    listing = out / f"{top}.ports.json"
    script = read_verilog([verilog], out) + f"hierarchy -top {top}; proc; write_json {listing.name}"
    yosys(out, script, makes=[listing.name])
    module = json.loads(listing.read_text())["modules"][top]
    return {name: (port["direction"], len(port["bits"])) for name, port in module["ports"].items()}


def array_verilog(name: str, block: str, ports: dict[str, tuple[str, int]], count: int) -> str:
    """Return a module with `count` copies of a block.

    Inputs come from one shift register that passes all copies, outputs are registered and folded into one
    bit over several clocks, so that every copy is alive and no wire is longer than from copy to copy.
    """
    clocks = ("clk", "rst")
    inputs = [(port, width) for port, (way, width) in ports.items() if way == "input" and port not in clocks]
    outputs = [(port, width) for port, (way, width) in ports.items() if way == "output"]
    wide = sum(width for _, width in inputs)
    lines = [f"module {name}(input clk, input rst, input si, output so);"]
    lines += [f"  wire [{count}:0] chain;", f"  wire [{count}:0] fold;"]
    lines += ["  assign chain[0] = si;", "  assign fold[0] = 1'b0;", f"  assign so = fold[{count}];"]
    for n in range(count):
        lines += [f"  reg [{wide - 1}:0] in{n};", f"  reg rst{n};", f"  reg fold{n};"]
        lines += [f"  always @(posedge clk) in{n} <= {{in{n}[{wide - 2}:0], chain[{n}]}};"]
        lines += [f"  always @(posedge clk) rst{n} <= {'rst' if n == 0 else f'rst{n - 1}'};"]
        lines += [f"  assign chain[{n + 1}] = in{n}[{wide - 1}];", f"  assign fold[{n + 1}] = fold{n};"]
        connections, at = [".clk(clk)", f".rst(rst{n})"], 0
        for port, width in inputs:
            connections.append(f".{port}(in{n}[{at + width - 1}:{at}])")
            at += width
        partial = []
        for port, width in outputs:
            lines += [f"  wire [{width - 1}:0] {port}_{n};", f"  reg [{width - 1}:0] {port}_{n}_r;"]
            lines += [f"  reg {port}_{n}_x;"]
            lines += [f"  always @(posedge clk) {port}_{n}_r <= {port}_{n};"]
            lines += [f"  always @(posedge clk) {port}_{n}_x <= ^{port}_{n}_r;"]
            connections.append(f".{port}({port}_{n})")
            partial.append(f"{port}_{n}_x")
        lines.append(f"  {block} u{n}({', '.join(connections)});")
        lines += [f"  reg [{len(partial) - 1}:0] folding{n};"]
        lines.append(f"  always @(posedge clk) folding{n} <= {{{', '.join(partial)}}};")
        lines += [f"  always @(posedge clk) fold{n} <= fold[{n}] ^ (^folding{n});"]
    return "\n".join([*lines, "endmodule", ""])


def places(count: int) -> list[str]:
    """Return a flip-flop in the middle of each of so many parts of the device, neighbours in order."""
    across = max(1, round(count**0.5))
    down = -(-count // across)
    found = []
    for n in range(count):
        row, column = divmod(n, across)
        if row % 2:
            column = across - 1 - column
        x, y = int((column + 0.5) * COLUMNS / across), int((row + 0.5) * ROWS / down)
        found.append(f"X{x}/Y{y + (y in MEMORY_ROWS)}/SLICEA.FF0")
    return found


def anchor(module: dict[str, Any], count: int) -> None:
    """Give each copy a place: one flip-flop of its inputs is put in the middle of its part of the device.

    Without pins nothing else tells the placer where to begin, and it has to pull all copies out of one point.
    Copies that are neighbours in the chain become neighbours in place.
    """
    for n, place in enumerate(places(count)):
        inputs = sorted(name for name in module["cells"] if name.startswith(f"in{n}_TRELLIS_FF_Q"))
        if inputs:
            module["cells"][inputs[len(inputs) // 2]]["attributes"]["BEL"] = place
