"""Converts a top to Verilog and builds it, with C++ around it, into a shared library that is kept."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from threading import Event, Thread

from oscar import version
from oscar.coding import frame
from oscar.coding.asc import params
from oscar.errors import OscarError
from oscar_hdl.flow.convert import ConvertError, block_name, convert_top, convert_tree
from oscar_hdl.flow.proofs.formal import ports_of
from oscar_hdl.flow.tops import Value

HERE = Path(__file__).parent
DEFAULT_CACHE = Path("build/verilator")
OF_THE_HOST = version.__file__, frame.__file__, params.__file__  # what hdl imports of it
SHIM = (HERE / "model.h", HERE / "model.cpp")
QUIET_SECONDS = 20.0, 60.0  # until the first line about a step that takes long, and between two
RUNTIME = "verilated.cpp", "verilated_threads.cpp"
WAVE_RUNTIME = "verilated_fst_c.cpp"
ADDRESS = """#include "model.h"
extern "C" void* port_address(Model* m, int port) {{
  Vtop& p = *m->top;
  switch (port) {{
{cases}
  }}
  return nullptr;
}}
extern "C" uint64_t port_bytes(int port) {{
  switch (port) {{
{sizes}
  }}
  return 0;
}}
"""


class ToolError(OscarError):
    """A tool is missing or failed; the message says what to install or what it printed."""


@dataclass(frozen=True)
class Built:
    """A compiled block: its library, its Verilog, and of each port whether it is an input, and its bits."""

    library: Path
    verilog: Path
    ports: dict[str, tuple[bool, int]]


def require(tool: str, package: str) -> str:
    """Return the path of a tool; raises ToolError that names the Debian package."""
    result = shutil.which(tool)
    if result is None:
        raise ToolError(f"{tool} is needed to run the converted RTL: sudo apt-get install -y {package}")
    return result


def _run(command: Sequence[str | Path], *, cwd: Path, log: Path) -> None:
    with log.open("ab") as out:
        done = subprocess.run(
            [str(part) for part in command], cwd=cwd, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise ToolError(f"{command[0]} failed (status {done.returncode}); the end of {log}:\n{tail}")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say on stderr what begins, and now and then that it still runs: a NIC takes a minute."""

    def remind() -> None:
        pauses = chain(QUIET_SECONDS, repeat(QUIET_SECONDS[-1]))
        while not over.wait(next(pauses)):
            print(f"# {what}: {time.monotonic() - began:.0f} s so far", file=sys.stderr, flush=True)

    over, began = Event(), time.monotonic()
    print(f"# {what}", file=sys.stderr, flush=True)
    reminder = Thread(target=remind, daemon=True)
    reminder.start()
    try:
        yield
    finally:
        over.set()
        reminder.join()


def _key(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:16]


def source_key(top: str) -> bytes:
    """Return a digest of all that a conversion depends on.

    The sources of oscar_hdl, what it has of the host, and the top's module.
    """
    import myhdl

    import oscar_hdl

    files = [*sorted(Path(oscar_hdl.__file__).parent.rglob("*.py")), *map(Path, OF_THE_HOST)]
    module = top.partition(":")[0]
    if module != top and (result := importlib.util.find_spec(module)) and result.origin:
        files.append(Path(result.origin))
    return _key([myhdl.__version__.encode(), *(f.read_bytes() for f in files)]).encode()


@contextmanager
def _made(done: Path) -> Iterator[Path | None]:
    """Yield an empty folder that takes the place of `done`, or None where that is there.

    One process at a time: another waits, and finds it made. What fails stays beside it, to be looked at.
    """
    done.parent.mkdir(parents=True, exist_ok=True)
    with done.with_name(f"{done.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            yield None
            return
        work = done.with_name(f"{done.name}.part")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        yield work
        work.rename(done)


def verilog_of(top: str, parameters: Mapping[str, Value], cache: Path, *, tree: bool = False) -> list[Path]:
    """Convert `top` of oscar_hdl in a fresh process, as conversion wants it; return the Verilog.

    That is one file, or with `tree` a file for each block, that of the top last.
    """
    name = block_name(top)
    settings = json.dumps(dict(parameters), sort_keys=True)
    key = _key([source_key(top), f"{top} {settings}{' tree' * tree}".encode()])
    done = cache / f"{name}-{key}"
    with _made(done) as work:
        try:
            if work:
                with _told(f"{name}: MyHDL to Verilog, kept in {_shown(cache)}"):
                    (convert_tree if tree else convert_top)(top, "verilog", work, parameters)
        except (ConvertError, ValueError) as error:
            raise ToolError(str(error)) from None
    if not tree:
        return [done / "verilog" / f"{name}.v"]
    last = done / "verilog" / name / f"{name}.v"
    return [*(file for file in sorted(last.parent.glob("*.v")) if file != last), last]


def _shown(path: Path) -> Path:
    """Return a path as a reader would type it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def build(
    top: str,
    parameters: Mapping[str, Value] | None = None,
    *,
    harness: Path | None = None,
    cache: Path = DEFAULT_CACHE,
    wave: bool = False,
) -> Built:
    """Return a shared library of `top` and `harness` (C++), built once for each state of the sources.

    wave: it can write waveforms, with the hierarchy of the source.
    Raises ToolError when verilator or a C++ compiler is missing or fails.
    """
    require("verilator", "verilator"), require("g++", "g++"), require("make", "make")
    cache = cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    verilog = verilog_of(top, parameters or {}, cache, tree=wave)
    texts = [file.read_text(encoding="utf-8") for file in verilog]
    ports = ports_of(texts[-1])
    if "clk" not in ports:
        raise ToolError(f"{top} has no port clk; there are {', '.join(ports) or 'none'}")
    sources = [*SHIM, *([harness.resolve()] if harness else [])]
    headers = [] if harness is None else sorted(harness.parent.glob("*.h"))
    key = _key([
        *(text.encode() for text in texts),
        *(f.read_bytes() for f in (*sources, *headers, Path(__file__))), b"wave" * wave,
    ])  # fmt: skip
    name = block_name(top)
    done = cache / f"{name}-so-{key}"
    with _made(done) as work:
        if work:
            for file in verilog:
                shutil.copyfile(file, work / file.name)
            (work / "ports.cpp").write_text(_addresses(ports))
            _compile(name, [file.name for file in verilog], work, sources, wave=wave)
    return Built(done / f"lib{name}.so", done / verilog[-1].name, ports)


def _addresses(ports: Sequence[str]) -> str:
    """Return C++ that knows where each port is, by its number."""
    cases = "\n".join(f"    case {n}: return &p.{port};" for n, port in enumerate(ports))
    sizes = "\n".join(f"    case {n}: return sizeof(Vtop::{port});" for n, port in enumerate(ports))
    return ADDRESS.format(cases=cases, sizes=sizes)


def _compile(name: str, verilog: Sequence[str], work: Path, sources: Sequence[Path], *, wave: bool) -> None:
    """Verilate and compile in `work`."""
    verilator, compiler, log = shutil.which("verilator"), shutil.which("g++"), work / "build.log"
    assert verilator
    assert compiler
    _run([verilator, "--getenv", "VERILATOR_ROOT"], cwd=work, log=work / "root.log")
    root = Path((work / "root.log").read_text().strip())
    if wave:
        _check_zlib(compiler, work)
    with _told(f"{name}: Verilog to C++ by Verilator"):
        _run(
            [verilator, "--cc", *verilog, "--top-module", name, "--prefix", "Vtop", "--Mdir", "obj", "-O3",
             "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint",
             "-CFLAGS", "-fPIC", *(["--trace-fst"] if wave else [])],
            cwd=work, log=log,
        )  # fmt: skip
    with _told(f"{name}: C++ to a library by g++, once for each state of the sources"):
        # With -O2 a NIC compiles for twice as long, and no clock is faster.
        _run(["make", "-s", "-C", "obj", "-f", "Vtop.mk", "OPT_FAST=-O1", "OPT_SLOW=-O0"], cwd=work, log=log)
        names = *RUNTIME, *([WAVE_RUNTIME] if wave else [])
        runtime = [file for name in names if (file := root / "include" / name).exists()]
        archives = sorted((work / "obj").glob("*.a"))
        _run(
            [compiler, "-std=c++17", "-O2", "-fPIC", "-shared", f"-I{HERE}",
             f"-I{root}/include", f"-I{root}/include/vltstd", "-Iobj", *(["-DOSCAR_WAVE"] if wave else []),
             *(s for s in sources if s.suffix == ".cpp"), "ports.cpp", *runtime, *archives,
             "-pthread", *(["-lz"] if wave else []), "-o", f"lib{name}.so"],
            cwd=work, log=log,
        )  # fmt: skip
    shutil.rmtree(work / "obj")


def _check_zlib(compiler: str, work: Path) -> None:
    """Raise ToolError without zlib, with which Verilator writes waveforms."""
    (work / "zlib.cpp").write_text("#include <zlib.h>\n")
    result = subprocess.run([compiler, "-E", "zlib.cpp"], cwd=work, capture_output=True, check=False)
    if result.returncode != 0:
        raise ToolError("zlib is needed to write a waveform: sudo apt-get install -y zlib1g-dev")
