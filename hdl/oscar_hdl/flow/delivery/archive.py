"""Write what an engineer needs beside the RTL of converted tops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from oscar_hdl.flow import vhdl_bench
from oscar_hdl.flow.delivery.fusesoc import core_file
from oscar_hdl.flow.tools import write_text

HERE = Path(__file__).parent
BENCH = "sim/tb_oscar_nic.vhd"  # and in Verilog beside it
BENCH_OF = "oscar_nic"
BENCH_SHAPE = {"units": 1, "bus_bits": 64}  # parameters for which the bench has ports
MHZ = {"xdc": 250, "lpf": 150, "sdc": 150}  # UltraScale+, and ECP5 in Diamond or Radiant
CONSTRAINTS = {
    "xdc": """\
# Timing of {top} in Vivado: one clock, no path from or to another.
# For a {top} that is a top by itself, or is synthesised out of context.
create_clock -name clk -period {period:.3f} [get_ports clk]
# rst is synchronous, and all other ports belong to this clock, too.
""",
    "lpf": """\
# Timing of {top} in Lattice Diamond and nextpnr-ecp5: one clock, no path from or to another.
FREQUENCY PORT "clk" {mhz} MHz;
""",
    "sdc": """\
# Timing of {top} in Lattice Radiant and Quartus: one clock, no path from or to another.
create_clock -name clk -period {period:.3f} [get_ports clk]
""",
}


def write(blocks: Sequence[str], files: Sequence[Path], out: Path, shapes: Mapping[str, str]) -> list[str]:
    """Write all that comes with converted tops; return the names of the files.

    Args:
        blocks: Tops, the largest one last.
        files: Their files, in an order in which they compile.
        out: Folder that has them.
        shapes: Parameters of each top, as text.
    """
    names = [file.relative_to(out).as_posix() for file in files]
    texts = {"files.txt": "".join(f"{name}\n" for name in names)}
    has_bench = BENCH_OF in blocks and fits(shapes[BENCH_OF])
    for block in blocks:
        for language in ("vhdl", "verilog"):
            if listed := of_top(names, language, block):
                texts[f"{language}/{block}.f"] = "".join(f"{name}\n" for name in listed)
        if vhdl := of_top(names, "vhdl", block):
            ports = vhdl_bench.ports_of(out / vhdl[-1])
            texts[f"templates/{block}.vhd"] = vhdl_template(block, ports)
            texts[f"templates/{block}.v"] = verilog_template(block, ports)
        for kind, text in CONSTRAINTS.items():
            mhz = MHZ[kind]
            texts[f"constraints/{block}.{kind}"] = text.format(top=block, mhz=mhz, period=1000 / mhz)
    if has_bench:
        for suffix, comment in ((".vhd", "--"), (".v", "//")):
            name = str(PurePosixPath(BENCH).with_suffix(suffix))
            text = (HERE / PurePosixPath(name).name).read_text(encoding="utf-8")
            texts[name] = f"{comment} For {BENCH_OF} ({shapes[BENCH_OF]}).\n{text}"
    texts["oscar.core"] = core_file(blocks, names, BENCH if has_bench else "")
    for name, text in texts.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(out / name, text)
    return list(texts)


def fits(shape: str) -> bool:
    """Return True if a NIC of these parameters has the ports that the bench drives."""
    return all(f"{name}={value}" in shape.split(", ") for name, value in BENCH_SHAPE.items())


def of_top(names: Sequence[str], language: str, block: str) -> list[str]:
    """Return a top's files of a language, those that all tops share first."""
    shared = [name for name in names if name.startswith(f"{language}/") and name.count("/") == 1]
    own = [name for name in names if name.startswith(f"{language}/{block}/")]
    return [*shared, *own] if own else []


def vhdl_template(block: str, ports: Sequence[tuple[str, str, str]]) -> str:
    """Return signals and an instance to copy; ports: name, direction and type of each."""
    signals = "\n".join(f"signal {name}: {kind};" for name, _, kind in ports)
    pins = ",\n".join(f"        {name} => {name}" for name, _, _ in ports)
    return (
        f"-- Template: copy the signals into a declarative part, and the instance behind its `begin`.\n"
        f"{signals}\n\n{block}_0: entity work.{block}\n    port map (\n{pins}\n    );\n"
    )


def verilog_template(block: str, ports: Sequence[tuple[str, str, str]]) -> str:
    """Return wires and an instance to copy, as `vhdl_template` does."""
    wires = "\n".join(f"wire {_range(kind)}{name};" for name, _, kind in ports)
    pins = ",\n".join(f"    .{name}({name})" for name, _, _ in ports)
    return f"// Template: copy the wires and the instance.\n{wires}\n\n{block} {block}_0 (\n{pins}\n);\n"


def _range(kind: str) -> str:
    high = kind.partition("(")[2].partition(" ")[0]
    return f"[{high}:0] " if high else ""
