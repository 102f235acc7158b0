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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from oscar_hdl.flow import vhdl_bench
from oscar_hdl.flow.corrections import COMMENT, ConvertError, rename
from oscar_hdl.flow.delivery import archive, datasheets
from oscar_hdl.flow.elaboration import shallow_stacks
from oscar_hdl.flow.hierarchy import tree
from oscar_hdl.flow.hierarchy.capture import capture
from oscar_hdl.flow.hierarchy.design import unmarked
from oscar_hdl.flow.hierarchy.verilog import UNLINTED
from oscar_hdl.flow.tools import write_text
from oscar_hdl.flow.tops import TOP_HELP, TOPS, WITH_HELP, Value, check_parameters, find, parameter, shape
from oscar_hdl.nic.control import register_header

PACKAGE = "pck_myhdl_011.vhd"
# Parts of bundles that a block may leave alone: who knows how many words come needs no tlast.
UNUSED = (r"(s_axis|raw_bytes)\w*_tlast",)
RECORD = "tree.json"  # what the fresh process says of the top's blocks
LANGUAGES = {"vhdl": ".vhd", "verilog": ".v"}
# What GHDL says of each memory that it finds: a line, the line of the source, and where in it.
_FOUND_RAM = re.compile(r"^.*:note: found RAM .*(?:\n.*){0,2}(?:\n|\Z)", re.MULTILINE)
GHDL_MISSING = (
    "GHDL checks the VHDL and is not installed: apt-get install ghdl-mcode "
    "(or leave the check out: --no-check of oscar_hdl.flow.convert)"
)

AT_ONCE = 2  # tops in work
REFUSED = 3  # exit status of the fresh process: a block does not take its parameters


def block_name(name: str) -> str:
    """Return the entity of a top: its name, or the function in "module:function"."""
    return name.rpartition(":")[2]


def convert_here(name: str, language: str, out: Path, parameters: Mapping[str, Value]) -> None:
    """Write one top in one language into `out`, with its tree of blocks; for a fresh process (see above).

    Raises ConvertError in the block's own words where it refuses the parameters that are given.
    """
    try:
        instance = find(name)(**parameters)
    except ValueError as error:
        if not parameters:
            raise
        raise ConvertError(str(error)) from None
    record = capture(language)
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
    write_text(out / RECORD, json.dumps(record))


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


def _origin(name: str, parameters: Mapping[str, Value]) -> str:
    """Return what a file says of its origin."""
    said = shape(name, parameters)
    top = f"{block_name(name)} ({said})" if said else block_name(name)
    return f"{top}: converted from MyHDL by oscar_hdl.flow.convert; do not edit."


@dataclass(frozen=True)
class Flat:
    """What MyHDL makes of a top: its text with a mark before each process, its tree, and files besides."""

    text: str
    record: dict[str, Any]
    others: dict[str, str]


def convert_flat(name: str, language: str, parameters: Mapping[str, Value]) -> Flat:
    """Convert a top in a fresh process. Raises ConvertError with MyHDL's message."""
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
        made = {file.name: file.read_text(encoding="utf-8") for file in Path(temporary).iterdir()}
    record = json.loads(made.pop(RECORD))
    texts = {
        name: "\n".join(line.rstrip() for line in text.strip().split("\n")) for name, text in made.items()
    }
    top = texts.pop(block_name(name) + LANGUAGES[language], "")
    if not top:
        raise ConvertError(
            f"{name} was converted to {language} without {block_name(name)}{LANGUAGES[language]}"
        )
    # MyHDL leaves an empty line before the text.
    return Flat(rename(f"\n{top}\n", language), record, texts)


def convert_top(name: str, language: str, out: Path, parameters: Mapping[str, Value] | None = None) -> Path:
    """Convert one top to one flat file, and return it: `out`/<language>/<block>.<suffix>.

    For tools that flatten anyway. Nothing old is left in the place of a failed result.

    Raises:
        ConvertError: MyHDL refuses the top; with its message.
    """
    target = out / language / (block_name(name) + LANGUAGES[language])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    flat = convert_flat(name, language, parameters or {})
    head = [f"{COMMENT[language]} {_origin(name, parameters or {})}"]
    head += [f"/* verilator lint_off {rule} */" for rule in UNLINTED if language == "verilog"]
    _write_others(flat, language, target.parent)
    write_text(target, "\n".join(head) + "\n" + unmarked(flat.text))
    return target


def convert_tree(
    name: str, language: str, out: Path, parameters: Mapping[str, Value] | None = None
) -> list[Path]:
    """Convert one top to a file for each block, in `out`/<language>/<top>.

    Returns:
        The files, in an order in which they compile.

    Raises:
        ConvertError: MyHDL refuses the top, or a signal of it belongs to no block.
    """
    folder = out / language / block_name(name)
    shutil.rmtree(folder, ignore_errors=True)
    flat = convert_flat(name, language, parameters or {})
    try:
        made = tree.files(block_name(name), language, flat.text, flat.record, _origin(name, parameters or {}))
    except tree.HierarchyError as error:
        raise ConvertError(f"{name} has no tree in {language}: {error}") from None
    folder.mkdir(parents=True)
    for file, text in made.items():
        write_text(folder / file, text)
    return [*_write_others(flat, language, folder.parent), *(folder / file for file in made)]


def _write_others(flat: Flat, language: str, folder: Path) -> list[Path]:
    """Write MyHDL's package, which all tops share."""
    for name, text in flat.others.items():
        first = f"{COMMENT[language]} {Path(name).stem}: MyHDL's package; do not edit."
        write_text(folder / name, f"{first}\n\n{text}\n")
    return [folder / name for name in flat.others]


def run_tool(
    command: Sequence[str | Path], what: str, *, stdout: Path | None = None, silent: bool = False
) -> str:
    """Run a tool; return what it printed, or put it into the file `stdout`.

    Raises ConvertError, with the tool's message, when it fails, and if it has to be silent, when it warns.
    """
    if stdout is not None:
        stdout.unlink(missing_ok=True)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0 or (silent and "warning" in done.stdout + done.stderr):
        said = _FOUND_RAM.sub("", done.stdout + done.stderr).strip()
        message = "\n".join(said.split("\n")[-40:])
        raise ConvertError(f"{what}: {Path(command[0]).name} failed ({done.returncode}):\n{message}")
    if stdout is not None:
        write_text(stdout, done.stdout)
    return done.stdout


def sources(out: Path, language: str, name: str) -> list[Path]:
    """Return the files of a converted top, the first that others need, as `out`/files.txt lists them."""
    listed = (out / "files.txt").read_text(encoding="utf-8").split()
    wanted = f"{language}/{block_name(name)}/"
    return [out / file for file in listed if file.startswith(wanted) or file == f"{language}/{PACKAGE}"]


def check_vhdl(names: Sequence[str], out: Path, *, note: bool = True) -> None:
    """Analyse, elaborate, clock and synthesise converted tops with GHDL; netlists go to `out`/synth.

    Raises ConvertError when GHDL is missing, refuses a file, or warns, of a number while it simulates, too.
    """
    if not (ghdl := shutil.which("ghdl")):
        raise ConvertError(f"{GHDL_MISSING}; files are in {out}, unchecked")
    (out / "synth").mkdir(exist_ok=True)

    def check(name: str) -> None:
        if note:
            print(f"{block_name(name):<16} GHDL: analyse, elaborate, simulate, synthesise", flush=True)
        _check_top(ghdl, name, out)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(check, names))


def _check_top(ghdl: str, name: str, out: Path) -> None:
    block, work = block_name(name), out / "ghdl" / block_name(name)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    options = ["--std=08", f"--workdir={work}"]
    files = sources(out, "vhdl", name)
    run_tool([ghdl, "-a", *options, *files], f"analysis of {block}", silent=True)
    run_tool([ghdl, "-e", *options, block], f"elaboration of {block}", silent=True)
    bench = vhdl_bench.write(files[-1], work)
    run_tool([ghdl, "-a", *options, bench], f"analysis of a bench of {block}", silent=True)
    simulation = [ghdl, "-r", *options, bench.stem, *vhdl_bench.STRICT]
    run_tool(simulation, f"simulation of {block}", silent=True)
    netlist = out / "synth" / f"{block}.v"
    run_tool([ghdl, "--synth", *options, "--out=verilog", block], f"synthesis of {block}", stdout=netlist)


def convert_all(
    names: Sequence[str],
    out: Path,
    parameters: Mapping[str, Value] | None = None,
    *,
    languages: Sequence[str] = tuple(LANGUAGES),
) -> list[Path]:
    """Convert tops to each language, one line of progress each; write a list, oscar.core, a C header."""
    out.mkdir(parents=True, exist_ok=True)

    def convert(pair: tuple[str, str]) -> list[Path]:
        name, language = pair
        made = convert_tree(name, language, out, parameters)
        print(f"{block_name(name):<16} MyHDL to {language}: {len(made)} files", flush=True)
        return made

    with ThreadPoolExecutor(AT_ONCE) as pool:
        trees = list(pool.map(convert, product(names, languages)))
    files = dict.fromkeys(file for tree in trees for file in tree)  # each once, the first that others need
    shapes = {block_name(name): shape(name, parameters or {}) for name in names}
    archive.write([block_name(name) for name in names], [*files], out, shapes)
    write_text(out / register_header.NAME, register_header.header())
    return [*files]


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
        datasheets.write(names, args.out, parameters)
        if not args.no_check:
            check_vhdl(names, args.out)
    except (ConvertError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(names)} tops in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
