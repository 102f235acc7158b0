"""Describe converted tops for FuseSoC (CAPI2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from oscar.version import __version__

LANGUAGES = {"vhdl": "vhdlSource-2008", "verilog": "verilogSource"}
VECTORS = "sim/oscar_nic.vectors"


def core_file(blocks: Sequence[str], names: Sequence[str], bench: str) -> str:
    """Return the description: filesets of each top, and targets to simulate, lint and synthesise.

    Args:
        blocks: Tops, the largest one last: it is the default.
        names: Their files, in an order in which they compile.
        bench: Test bench of the largest top, or "".
    """
    lines = [
        "CAPI=2:",
        f"name: oscar:nic:oscar:{__version__}",
        "description: NIC that adds and codes gradients, converted from MyHDL",
        "filesets:",
    ]
    for language, kind in LANGUAGES.items():
        for block in blocks:
            files = [
                name
                for name in names
                if name.startswith((f"{language}/{block}/",)) or str(PurePosixPath(name).parent) == language
            ]
            lines += [f"  {block}_{language}:", "    files:", *(f"      - {name}" for name in files)]
            lines.append(f"    file_type: {kind}")
    if bench:
        vectors = f"      - {VECTORS}: {{file_type: user, copyto: {VECTORS}}}"
        for language, file in (("vhdl", bench), ("verilog", str(PurePosixPath(bench).with_suffix(".v")))):
            lines += [f"  bench_{language}:", "    files:"]
            lines += [f"      - {file}: {{file_type: {LANGUAGES[language]}}}", vectors]
    lines.append("targets:")
    largest = blocks[-1]
    lines += ["  default:", f"    filesets: [{largest}_vhdl]", f"    toplevel: {largest}"]
    for block in blocks:
        for language in LANGUAGES:
            lines += [
                f"  {block}_{language}:",
                f"    filesets: [{block}_{language}]",
                f"    toplevel: {block}",
            ]
    return "\n".join([*lines, *_tasks(largest, bench)]) + "\n"


def _tasks(block: str, bench: str) -> list[str]:
    """Return targets of the largest top: simulation with a bench, lint, synthesis for three families."""
    lines = []
    if bench:
        lines += [
            "  sim:",
            "    description: A frame each way in GHDL, against vectors; the waveform is oscar_nic.ghw",
            "    default_tool: ghdl",
            f"    filesets: [{block}_vhdl, bench_vhdl]",
            f"    toplevel: {PurePosixPath(bench).stem}",
            "    tools:",
            "      ghdl:",
            "        analyze_options: [--std=08]",
            "        run_options: [--wave=oscar_nic.ghw]",
        ]
        for tool, options in (
            ("icarus", ["iverilog_options: [-g2005]"]),
            ("verilator", ["mode: binary", "verilator_options: [--timing, -Wno-lint]"]),
        ):
            lines += [
                f"  sim_{tool}:",
                f"    description: The same in Verilog, with {tool}",
                f"    default_tool: {tool}",
                f"    filesets: [{block}_verilog, bench_verilog]",
                f"    toplevel: {PurePosixPath(bench).stem}",
                "    tools:",
                f"      {tool}:",
                *(f"        {option}" for option in options),
            ]
    lines += [
        "  lint:",
        "    description: Verilator's lint of the Verilog",
        "    default_tool: verilator",
        f"    filesets: [{block}_verilog]",
        f"    toplevel: {block}",
        "    tools:",
        "      verilator:",
        "        mode: lint-only",
        "        verilator_options: [-Wno-fatal]",
    ]
    for tool, options in (
        ("yosys", ["arch: ecp5", "output_format: json"]),
        ("vivado", ["part: xcu55c-fsvh2892-2L-e", "pnr: none"]),
        ("radiant", ["part: LFCPNX-100-9LFG672C"]),
    ):
        lines += [
            f"  synth_{tool}:",
            f"    description: Synthesis with {tool}",
            f"    default_tool: {tool}",
            f"    filesets: [{block}_verilog]",
            f"    toplevel: {block}",
            "    tools:",
            f"      {tool}:",
            *(f"        {option}" for option in options),
        ]
    return lines
