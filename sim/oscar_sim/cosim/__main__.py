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

from oscar_hdl.build.convert import LANGUAGES, PACKAGE, ConvertError, convert_all
from oscar_hdl.params import LaneParams
from oscar_sim.seeds import VARIABLE, told

BENCHES = ("rans_encoder", "rans_decoder", "asc_tables", "splitter", "asc_encoder", "asc_decoder", "nic_lane")
SIMULATORS = {"vhdl": ("ghdl", "ghdl-mcode"), "verilog": ("icarus", "iverilog")}  # cocotb's name, apt's
PROGRAM = {"vhdl": "ghdl", "verilog": "iverilog"}
PACKAGES = {"cocotb_tools": "cocotb", "cocotbext.axi": "cocotbext-axi", "cocotb_bus": "cocotb-bus"}


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


def simulate(
    block: str, language: str, hdl: Path, out: Path, params: LaneParams, most_frames: int
) -> tuple[int, int]:
    """Run a block's bench on one language; return how many tests ran and failed. The logs are in `out`.

    most_frames: how many of the link's frames to take, 0 for all.
    """
    from cocotb_tools.runner import VHDL, Verilog, get_results, get_runner

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
    settings = {"BLOCK_LOG2": params.block_log2, "WIDTH_MAX": params.width_max, "FRAMES": most_frames}
    results = runner.test(
        test_module=f"oscar_sim.cosim.bench_{block}",
        hdl_toplevel=block,
        hdl_toplevel_lang=language,
        build_dir=build,
        test_dir=build,
        test_args=arguments,
        results_xml=str(build / "results.xml"),
        extra_env={name: str(value) for name, value in settings.items()},
        log_file=build / "test.log",
    )
    return get_results(Path(results))


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="python -m oscar_sim.cosim", description=__doc__)
    p.add_argument("--out", type=Path, default=Path("build/cosim"), help="folder for results (%(default)s)")
    p.add_argument("--block", nargs="+", choices=BENCHES, default=BENCHES, help="blocks (all)")
    p.add_argument("--language", nargs="+", choices=tuple(LANGUAGES), default=tuple(LANGUAGES), help="(both)")
    p.add_argument("--block-log2", type=int, default=SMALL.block_log2, help="of a lane (%(default)s)")
    p.add_argument("--width-max", type=int, default=SMALL.width_max, help="of a lane (%(default)s)")
    p.add_argument("--frames", type=int, default=0, help="take only the first frames of the link (all)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parser().parse_args(argv)
    if lacking := missing(args.language):
        print(f"error: co-simulation needs {' and '.join(lacking)}", file=sys.stderr)
        return 1
    failed = 0
    try:
        params = LaneParams(block_log2=args.block_log2, width_max=args.width_max)
        print(f"# {VARIABLE}={told()}", flush=True)
        convert_all(args.block, args.out / "hdl", params, languages=args.language)
        for block in args.block:
            for language in args.language:
                began = time.monotonic()
                name = f"{block:<16} {SIMULATORS[language][0]:<7}"
                ran, bad = simulate(block, language, args.out / "hdl", args.out, params, args.frames)
                failed += bad > 0 or ran == 0
                verdict = "FAILED" if bad or not ran else "equal to the reference"
                print(f"{name} {ran} tests, {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
                if bad or not ran:
                    print(f"  see {args.out / language / block / 'test.log'}", flush=True)
    except (ConvertError, RuntimeError, SystemExit, ValueError) as error:
        print(f"error: {error}; logs are in {args.out}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
