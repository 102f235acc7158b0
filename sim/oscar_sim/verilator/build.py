"""Converts a top to Verilog and builds it, with a C++ harness, into a shared library that is kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from oscar.errors import OscarError
from oscar_hdl.params import LaneParams

HERE = Path(__file__).parent
DEFAULT_CACHE = Path("build/verilator")


class ToolError(OscarError):
    """A tool is missing or failed; the message says what to install or what it printed."""


def require(tool: str, package: str) -> str:
    """Return the path of a tool; raises ToolError that names the Debian package."""
    found = shutil.which(tool)
    if found is None:
        raise ToolError(f"{tool} is needed to run the converted RTL: sudo apt-get install -y {package}")
    return found


def _run(command: Sequence[str | Path], *, cwd: Path, log: Path, env: dict[str, str] | None = None) -> None:
    with log.open("ab") as out:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            check=False,
        )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise ToolError(f"{command[0]} failed (status {done.returncode}); the end of {log}:\n{tail}")


def _key(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:16]


def verilog_of(top: str, params: LaneParams, folder: Path) -> Path:
    """Convert `top` of oscar_hdl in a fresh process, as conversion wants it; return the Verilog file."""
    sizes = ["--block-log2", str(params.block_log2), "--width-max", str(params.width_max)]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "convert.log"
    _run(
        [sys.executable, "-m", "oscar_hdl.convert", "--out", folder, "--top", top, *sizes, "--no-check"],
        cwd=Path.cwd(),
        log=log,
        env={"PYTHONHASHSEED": "0"},
    )
    found = sorted(folder.rglob(f"{top}.v"))
    if not found:
        raise ToolError(f"the conversion of {top} left no {top}.v in {folder}; see {log}")
    return found[0]


def source_key() -> bytes:
    """Return a digest of all that a conversion depends on: the sources of oscar_hdl."""
    import myhdl

    import oscar_hdl

    files = sorted(Path(oscar_hdl.__file__).parent.rglob("*.py"))
    return _key([myhdl.__version__.encode(), *(f.read_bytes() for f in files)]).encode()


def build(top: str, params: LaneParams, *, harness: Path, cache: Path = DEFAULT_CACHE) -> Path:
    """Return a shared library of `top` and `harness` (C++), built once for each state of the sources.

    params: of the lane that is converted.

    Raises ToolError when verilator or a C++ compiler is missing or fails.
    """
    verilator, compiler = require("verilator", "verilator"), require("g++", "g++")
    require("make", "make")
    key = _key([source_key(), f"{top} {params}".encode(), harness.read_bytes(), Path(__file__).read_bytes()])
    done = cache.resolve() / f"{top}-{key}" / f"lib{top}.so"
    if done.exists():
        return done
    work = done.parent.with_name(f"{done.parent.name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    verilog = verilog_of(top, params, work / "hdl")
    log = work / "build.log"
    _run([verilator, "--getenv", "VERILATOR_ROOT"], cwd=work, log=work / "root.log")
    root = Path((work / "root.log").read_text().strip())
    _run(
        [verilator, "--cc", verilog, "--top-module", top, "--prefix", "Vtop", "--Mdir", "obj", "-O3",
         "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint",
         "-CFLAGS", "-fPIC"],
        cwd=work, log=log,
    )  # fmt: skip
    _run(["make", "-s", "-C", "obj", "-f", "Vtop.mk", "OPT_FAST=-O2", "OPT_SLOW=-O1"], cwd=work, log=log)
    runtime = [
        p for name in ("verilated.cpp", "verilated_threads.cpp") if (p := root / "include" / name).exists()
    ]
    archives = sorted((work / "obj").glob("*.a"))
    _run(
        [compiler, "-std=c++17", "-O2", "-fPIC", "-shared",
         f"-I{root}/include", f"-I{root}/include/vltstd", "-Iobj",
         harness.resolve(), *runtime, *archives, "-pthread", "-o", done.name],
        cwd=work, log=log,
    )  # fmt: skip
    try:
        work.rename(done.parent)
    except OSError:
        if not done.exists():
            raise
        shutil.rmtree(work)  # another process was faster
    return done
