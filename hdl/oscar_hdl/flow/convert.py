"""Convert blocks to VHDL-2008 and Verilog, the same bytes each time, and have GHDL check the VHDL.

MyHDL's converters keep state between conversions and order signals by hash, so every file is made in a
process of its own with a fixed hash seed and every keyword given.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from oscar.version import __version__
from oscar_hdl.flow import vhdl_bench
from oscar_hdl.flow.corrections import COMMENT, ConvertError, rename
from oscar_hdl.flow.elaboration import shallow_stacks
from oscar_hdl.flow.tools import write_text
from oscar_hdl.flow.tops import TOP_HELP, TOPS, WITH_HELP, Value, check_parameters, find, parameter, shape
from oscar_hdl.nic.control import register_header

PACKAGE = "pck_myhdl_011.vhd"
# Parts of bundles that a block may leave alone: who knows how many words come needs no tlast, and raw_decoder
# no bank, which is that of its counts.
UNUSED = (r"(s_axis|decoder_bytes)\w*_tlast", r"job_bank")
UNLINTED = "WIDTH", "CASEINCOMPLETE", "INITIALDLY"  # MyHDL's way to write Verilog
LANGUAGES = {"vhdl": ".vhd", "verilog": ".v"}
# What GHDL says of each memory that it finds: a line, the line of the source, and where in it.
_FOUND_RAM = re.compile(r"^.*:note: found RAM .*(?:\n.*){0,2}(?:\n|\Z)", re.MULTILINE)
GHDL_MISSING = (
    "GHDL checks the VHDL and is not installed: apt-get install ghdl-mcode "
    "(or leave the check out: --no-check of oscar_hdl.flow.convert)"
)

REFUSED = 3  # exit status of the fresh process: a block does not take its parameters


def block_name(name: str) -> str:
    """Return the entity of a top: its name, or the function in "module:function"."""
    return name.rpartition(":")[2]


def convert_here(name: str, language: str, out: Path, parameters: Mapping[str, Value]) -> None:
    """Write one top in one language into `out`; for a fresh process (see above).

    Raises ConvertError in the block's own words where it refuses the parameters that are given.
    """
    try:
        instance = find(name)(**parameters)
    except ValueError as error:
        if not parameters:
            raise
        raise ConvertError(str(error)) from None
    # Registers begin as in MyHDL, also in simulators where they would be unknown; on an FPGA this is free.
    common = {"path": str(out), "name": block_name(name), "initial_values": True, "no_myhdl_header": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="(?s).*Signal is driven but not read")
        for name in UNUSED:  # MyHDL makes it an input, as it should be
            warnings.filterwarnings("ignore", message=f"(?s).*Port is not used: {name}$")
        if language == "vhdl":
            instance.convert(
                hdl="VHDL",
                std_logic_ports=True,
                no_myhdl_package=False,
                library="work",
                architecture="MyHDL",
                header="",
                component_declarations=None,
                use_clauses=None,
                **common,
            )
        else:
            instance.convert(
                hdl="Verilog",
                testbench=False,
                trace=False,
                timescale="1ns/1ps",
                standard="2001",
                prefer_blocking_assignments=True,
                radix="",
                header="",
                **common,
            )


def here(name: str, language: str, out: Path, parameters: Mapping[str, Value]) -> int:
    """Do what convert_here does; say an error in its own words and return the exit status."""
    try:
        convert_here(name, language, out, parameters)
    except ConvertError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except Exception as error:  # MyHDL's errors and warnings, and whatever a block's checks raise
        print(f"{type(error).__name__}: {str(error).strip()}", file=sys.stderr)
        return 1
    return 0


def _head(name: str, language: str, made: Path, parameters: Mapping[str, Value]) -> list[str]:
    """Return the first lines of a file: what it is, of which shape, and what linters need not say."""
    said = shape(name, parameters) if made.name != PACKAGE else ""
    about = f"{made.stem} ({said})" if said else made.stem
    first = f"{COMMENT[language]} {about}: converted from MyHDL by oscar_hdl.flow.convert; do not edit."
    return [first, *(f"/* verilator lint_off {rule} */" for rule in UNLINTED if language == "verilog")]


def convert_top(name: str, language: str, out: Path, parameters: Mapping[str, Value] | None = None) -> Path:
    """Convert one top in a fresh process and return its file, `out`/<language>/<block>.<suffix>.

    Raises ConvertError with MyHDL's message; nothing old is left in the place of a failed result.
    """
    folder = out / language
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / (block_name(name) + LANGUAGES[language])
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "oscar_hdl.flow.convert", "--here", language, "--out", temporary]
        command += ["--top", name]
        if parameters:
            command += ["--with", *(f"{key}={json.dumps(value)}" for key, value in parameters.items())]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False
        )
        if done.returncode == REFUSED:
            raise ConvertError(done.stderr.strip())
        if done.returncode != 0:
            raise ConvertError(f"{name} does not convert to {language}:\n{done.stdout}{done.stderr}".rstrip())
        for made in Path(temporary).iterdir():
            text = made.read_text().strip().split("\n")
            head = _head(name, language, made, parameters or {})
            whole = "\n".join([*head, "", *(line.rstrip() for line in text)]) + "\n"
            write_text(folder / made.name, whole if made.name == PACKAGE else rename(whole, language))
    if not target.exists():
        raise ConvertError(f"{name} was converted to {language} without {target.name}")
    return target


def run_tool(command: Sequence[str | Path], what: str, *, stdout: Path | None = None) -> str:
    """Run a tool; return what it printed, or put it into the file `stdout`.

    Raises ConvertError, with the tool's message, when it fails.
    """
    if stdout is not None:
        stdout.unlink(missing_ok=True)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = _FOUND_RAM.sub("", done.stdout + done.stderr).strip()
        message = "\n".join(said.split("\n")[-40:])
        raise ConvertError(f"{what}: {Path(command[0]).name} failed ({done.returncode}):\n{message}")
    if stdout is not None:
        write_text(stdout, done.stdout)
    return done.stdout


def check_vhdl(names: Sequence[str], out: Path, *, note: bool = True) -> None:
    """Analyse, elaborate, clock and synthesise converted tops with GHDL; netlists go to `out`/synth.

    Raises ConvertError when GHDL is missing, refuses a file, or warns of a number while it simulates.
    """
    if not (ghdl := shutil.which("ghdl")):
        raise ConvertError(f"{GHDL_MISSING}; files are in {out}, unchecked")
    work, netlists = out / "ghdl", out / "synth"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    netlists.mkdir(exist_ok=True)
    options = ["--std=08", f"--workdir={work}"]
    run_tool([ghdl, "-a", *options, out / "vhdl" / PACKAGE], PACKAGE)
    for block in map(block_name, names):
        if note:
            print(f"{block:<16} GHDL: analyse, elaborate, simulate, synthesise", flush=True)
        run_tool([ghdl, "-a", *options, out / "vhdl" / f"{block}.vhd"], f"analysis of {block}")
        run_tool([ghdl, "-e", *options, block], f"elaboration of {block}")
        bench = vhdl_bench.write(out / "vhdl" / f"{block}.vhd", work)
        run_tool([ghdl, "-a", *options, bench], f"analysis of a bench of {block}")
        run_tool([ghdl, "-r", *options, bench.stem, *vhdl_bench.STRICT], f"simulation of {block}")
        run_tool(
            [ghdl, "--synth", *options, "--out=verilog", block],
            f"synthesis of {block}",
            stdout=netlists / f"{block}.v",
        )


def core_file(names: Sequence[str]) -> str:
    """Return a FuseSoC description (CAPI2) with a target for each top, in VHDL and in Verilog."""
    blocks = [block_name(name) for name in names]
    lines = [
        "CAPI=2:",
        f"name: oscar:nic:oscar:{__version__}",
        "description: OSCAR NIC, converted from MyHDL",
        "filesets:",
    ]
    for language, kind in (("vhdl", "vhdlSource-2008"), ("verilog", "verilogSource")):
        for block in blocks:
            package = [f"vhdl/{PACKAGE}"] if language == "vhdl" else []
            files = [*package, f"{language}/{block}{LANGUAGES[language]}"]
            lines += [f"  {block}_{language}:", f"    files: [{', '.join(files)}]", f"    file_type: {kind}"]
    lines.append("targets:")
    for n, block in enumerate(reversed(blocks)):  # the last top is the largest
        for language in LANGUAGES:
            target = "default: &default" if n == 0 and language == "vhdl" else f"{block}_{language}:"
            lines += [f"  {target}", f"    filesets: [{block}_{language}]", f"    toplevel: {block}"]
            lines += [f"  {block}_vhdl: *default"] * target.startswith("default")
    return "\n".join(lines) + "\n"


def convert_all(
    names: Sequence[str],
    out: Path,
    parameters: Mapping[str, Value] | None = None,
    *,
    languages: Sequence[str] = tuple(LANGUAGES),
) -> list[Path]:
    """Convert tops to each language, one line of progress each; write a list, oscar.core, a C header."""
    files: list[Path] = []
    for name in names:
        for language in languages:
            print(f"{block_name(name):<16} MyHDL to {language}", flush=True)
            files.append(convert_top(name, language, out, parameters))
    every = {*files, *((out / "vhdl" / PACKAGE,) if "vhdl" in languages else ())}
    listed = sorted(every, key=lambda file: (file.name != PACKAGE, file))  # the package is compiled first
    write_text(out / "files.txt", "".join(f"{file.relative_to(out)}\n" for file in listed))
    write_text(out / "oscar.core", core_file(names))
    write_text(out / register_header.NAME, register_header.header())
    return files


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="python -m oscar_hdl.flow.convert", description=__doc__)
    p.add_argument("--out", type=Path, default=Path("build/hdl"), help="folder for results (%(default)s)")
    p.add_argument("--top", nargs="+", metavar="NAME", help=TOP_HELP)
    p.add_argument(
        "--with", type=parameter, nargs="+", default=[], metavar="NAME=VALUE", dest="parameters",
        help=WITH_HELP,
    )  # fmt: skip
    p.add_argument("--no-check", action="store_true", help="do not have GHDL check the VHDL")
    p.add_argument("--here", choices=tuple(LANGUAGES), help=argparse.SUPPRESS)  # the fresh process
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parser().parse_args(argv)
    shallow_stacks()
    names, parameters = args.top or list(TOPS), dict(args.parameters)
    try:
        if args.here:
            return here(names[0], args.here, args.out, parameters)
        for name in names:
            check_parameters(name, parameters)
        convert_all(names, args.out, parameters)
        if not args.no_check:
            check_vhdl(names, args.out)
    except (ConvertError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(names)} tops in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
