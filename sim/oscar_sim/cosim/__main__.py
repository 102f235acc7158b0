"""Convert blocks and run their benches on the VHDL (GHDL) and on the Verilog (Icarus)."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oscar.errors import OscarError
from oscar_hdl.flow.convert import LANGUAGES, ConvertError, block_name, convert_all, sources
from oscar_sim.cosim.nic_bench import SIZES
from oscar_sim.cosim.scenarios import LIGHT, SCENARIOS, Recording
from oscar_sim.seeds import VARIABLE, numbers, told

SIMULATORS = {"vhdl": ("ghdl", "ghdl-mcode"), "verilog": ("icarus", "iverilog")}  # cocotb's name, apt's
PROGRAM = {"vhdl": "ghdl", "verilog": "iverilog"}
PACKAGES = {"cocotb_tools": "cocotb", "cocotbext.axi": "cocotbext-axi"}
# NIC and switch by somebody else's bus models, and the NIC on Ethernet: right by themselves, not compared
# clock by clock.
BUSES, SWITCH, ETHERNET = "nic_buses", "switch_buses", "nic_ethernet"
ALONE = BUSES, SWITCH, ETHERNET
ETHERNET_PACKAGES = {"liteeth": "liteeth", "cocotbext.eth": "cocotbext-eth"}


def missing(languages: Sequence[str], blocks: Sequence[str] = ()) -> list[str]:
    """Return the commands that install what is missing for these blocks."""
    packages = PACKAGES | (ETHERNET_PACKAGES if ETHERNET in blocks else {})
    lacking = [pip for module, pip in packages.items() if not _importable(module)]
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


@dataclass(frozen=True)
class Bench:
    """What runs in the simulator: a module of this package with cocotb tests, and the block that it drives.

    environment: what the module reads there. passed, failed: what to print. around: a module of Verilog that
    has the block in it and is driven instead. verilog: in no other language.
    """

    module: str
    top: str
    parameters: dict[str, int | str | bool]
    environment: dict[str, str]
    passed: str
    failed: str
    around: str = ""
    verilog: bool = False


def bench(name: str, light: bool, out: Path) -> Bench:
    """Return a block's bench; a block that is replayed is first driven under Verilator."""
    if name in ALONE:
        told_it = {"LIGHT": str(int(light)), "SEED": str(int(numbers(34).integers(1 << 32)))}
        if name == ETHERNET:
            return Bench(
                name, "oscar_nic", dict(SIZES), told_it, "Ethernet and host agree", "FAILED",
                around="gmii_nic", verilog=True,
            )  # fmt: skip
        passed, sizes, top = "bus models and host agree", dict(SIZES), "oscar_nic"
        if name == SWITCH:
            sizes, top = sizes | {"ports": 2}, "switch_slice"
        return Bench(name, top, sizes, told_it, passed, "FAILED", verilog=light)
    recording = SCENARIOS[name](light)
    file = (out / "recordings" / f"{name}.npz").resolve()
    note(recording, file)
    passed = f"{recording.clocks:>7} clocks, the same in every clock"
    return Bench("replay", recording.top, recording.parameters, {"RECORDING": str(file)}, passed, "DIFFERENT")


def simulate(bench: Bench, language: str, hdl: Path, build: Path) -> bool:
    """Run a bench on one language; return whether it passed, and cut no number. The logs are in `build`."""
    from cocotb_tools.runner import VHDL, Verilog, get_results, get_runner

    block = block_name(bench.top)
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    kind = VHDL if language == "vhdl" else Verilog
    files = sources(hdl.resolve(), language, bench.top)
    if bench.around:
        files.append(_surround(files[-1], build))
        block = bench.around
    runner = get_runner(SIMULATORS[language][0])
    arguments = ["--std=08"] if language == "vhdl" else []
    runner.build(
        sources=[kind(file) for file in files],
        hdl_toplevel=block,
        build_args=arguments,
        build_dir=build,
        always=True,
        timescale=None if language == "vhdl" else ("1ns", "1ps"),
        log_file=build / "build.log",
    )
    results = runner.test(
        test_module=f"oscar_sim.cosim.{bench.module}",
        hdl_toplevel=block,
        hdl_toplevel_lang=language,
        build_dir=build,
        test_dir=build,
        test_args=arguments,
        results_xml=str(build / "results.xml"),
        extra_env=bench.environment,
        log_file=build / "test.log",
    )
    ran, failed = get_results(Path(results))
    log = (build / "test.log").read_text(encoding="utf-8", errors="replace")
    return ran > 0 and not failed and "vector truncated" not in log  # which numeric_std only warns of


def _surround(nic: Path, build: Path) -> Path:
    """Write the NIC's Ethernet in `build`; return the file."""
    from oscar_hdl.flow.board import gmii_nic

    out = build / f"{gmii_nic.TOP}.v"
    gmii_nic.write(nic, out)
    return out


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="python -m oscar_sim.cosim", description=__doc__)
    p.add_argument("--out", type=Path, default=Path("build/cosim"), help="folder for results (%(default)s)")
    blocks = (*SCENARIOS, *ALONE)
    p.add_argument(
        "--block",
        nargs="+",
        choices=blocks,
        help="(all; with --light units of a NIC, its Ethernet, a switch)",
    )
    p.add_argument("--language", nargs="+", choices=tuple(LANGUAGES), default=tuple(LANGUAGES), help="(both)")
    p.add_argument(
        "--light", action="store_true", help="fewer clocks, for each change; bus models in Verilog alone"
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parser().parse_args(argv)
    blocks = args.block or ((*LIGHT, ETHERNET, SWITCH) if args.light else (*SCENARIOS, *ALONE))
    if lacking := missing(args.language, blocks):
        print(f"error: co-simulation needs {' and '.join(lacking)}", file=sys.stderr)
        return 1
    failed = 0
    try:
        print(f"# {VARIABLE}={told()}", flush=True)
        for name in blocks:
            what = bench(name, args.light, args.out)
            languages = [language for language in args.language if language == "verilog" or not what.verilog]
            convert_all([what.top], args.out / "hdl", what.parameters, languages=languages)
            for language in languages:
                began = time.monotonic()
                build = (args.out / language / name).resolve()
                passed = simulate(what, language, args.out / "hdl", build)
                failed += not passed
                seconds = time.monotonic() - began
                verdict = what.passed if passed else what.failed
                print(f"{name:<16} {SIMULATORS[language][0]:<7} {verdict} ({seconds:.0f} s)", flush=True)
                if not passed:
                    print(f"  see {args.out / language / name / 'test.log'}", flush=True)
    except (ConvertError, OscarError, RuntimeError, SystemExit, ValueError) as error:
        print(f"error: {error}; logs are in {args.out}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
