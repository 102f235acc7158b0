"""Convert blocks and run their benches on the VHDL (GHDL) and on the Verilog (Icarus)."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from oscar.errors import OscarError
from oscar_hdl.flow.convert import LANGUAGES, PACKAGE, ConvertError, block_name, convert_all
from oscar_sim.cosim.scenarios import LIGHT, SCENARIOS, Recording
from oscar_sim.seeds import VARIABLE, told

SIMULATORS = {"vhdl": ("ghdl", "ghdl-mcode"), "verilog": ("icarus", "iverilog")}  # cocotb's name, apt's
PROGRAM = {"vhdl": "ghdl", "verilog": "iverilog"}
PACKAGES = {"cocotb_tools": "cocotb"}


def missing(languages: Sequence[str]) -> list[str]:
    """Return the commands that install what is missing."""
    lacking = [pip for module, pip in PACKAGES.items() if not _importable(module)]
    commands = [f"pip install {' '.join(lacking)}"] if lacking else []
    tools = [SIMULATORS[language][1] for language in languages if not shutil.which(PROGRAM[language])]
    if not lacking and not _libpython():
        tools.append(f"libpython{sysconfig.get_python_version()}")
    return commands + ([f"apt-get install {' '.join(tools)}"] if tools else [])


def _libpython() -> bool:
    """Whether there is Python as a shared library, which cocotb loads into a simulator."""
    from find_libpython import find_libpython  # comes with cocotb

    return find_libpython() is not None


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent
        return False


def note(recording: Recording, file: Path) -> None:
    """Write a recording for the bench."""
    ways = {port.name: "in" if port.is_input else "out" for port in recording.ports}
    arrays = {f"{ways[name]}_{name}": values for name, values in recording.values.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)


def simulate(recording: Recording, language: str, hdl: Path, out: Path) -> bool:
    """Replay a recording on one language; return whether all outputs were the same. The logs are in `out`."""
    from cocotb_tools.runner import VHDL, Verilog, get_results, get_runner

    block = block_name(recording.top)
    build = (out / language / block).resolve()
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    source = hdl.resolve() / language / f"{block}{LANGUAGES[language]}"
    runner = get_runner(SIMULATORS[language][0])
    arguments = ["--std=08"] if language == "vhdl" else []
    runner.build(
        sources=[VHDL(source.parent / PACKAGE), VHDL(source)] if language == "vhdl" else [Verilog(source)],
        hdl_toplevel=block,
        build_args=arguments,
        build_dir=build,
        always=True,
        timescale=None if language == "vhdl" else ("1ns", "1ps"),
        log_file=build / "build.log",
    )
    note(recording, build / "recording.npz")
    results = runner.test(
        test_module="oscar_sim.cosim.replay",
        hdl_toplevel=block,
        hdl_toplevel_lang=language,
        build_dir=build,
        test_dir=build,
        test_args=arguments,
        results_xml=str(build / "results.xml"),
        extra_env={"RECORDING": str(build / "recording.npz")},
        log_file=build / "test.log",
    )
    ran, failed = get_results(Path(results))
    return ran > 0 and not failed


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="python -m oscar_sim.cosim", description=__doc__)
    p.add_argument("--out", type=Path, default=Path("build/cosim"), help="folder for results (%(default)s)")
    p.add_argument("--block", nargs="+", choices=tuple(SCENARIOS), help="(all; with --light units of a NIC)")
    p.add_argument("--language", nargs="+", choices=tuple(LANGUAGES), default=tuple(LANGUAGES), help="(both)")
    p.add_argument("--light", action="store_true", help="fewer clocks, for each change")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parser().parse_args(argv)
    if lacking := missing(args.language):
        print(f"error: co-simulation needs {' and '.join(lacking)}", file=sys.stderr)
        return 1
    failed = 0
    try:
        print(f"# {VARIABLE}={told()}", flush=True)
        for name in args.block or (LIGHT if args.light else SCENARIOS):
            recording = SCENARIOS[name](args.light)
            convert_all([recording.top], args.out / "hdl", recording.parameters, languages=args.language)
            for language in args.language:
                began = time.monotonic()
                same = simulate(recording, language, args.out / "hdl", args.out)
                failed += not same
                verdict = "the same in every clock" if same else "DIFFERENT"
                seconds = time.monotonic() - began
                shown = f"{name:<16} {SIMULATORS[language][0]:<7} {recording.clocks:>7} clocks"
                print(f"{shown}, {verdict} ({seconds:.0f} s)", flush=True)
                if not same:
                    print(f"  see {args.out / language / block_name(recording.top) / 'test.log'}", flush=True)
    except (ConvertError, OscarError, RuntimeError, SystemExit, ValueError) as error:
        print(f"error: {error}; logs are in {args.out}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
