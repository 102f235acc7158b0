"""Look for all files that archive.md lists in the folder that `make vhdl` wrote; run its commands there, and
compare with what the page shows.

Run by .ci/run as `python tests/check_archive.py FOLDER`; exits with what is wrong.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from oscar_hdl.flow.delivery import datasheets
from oscar_hdl.flow.tops import TOPS

# Of each top, and once; what a release adds is in the Makefile.
FILES = (
    "vhdl/{}.f", "verilog/{}.f", "templates/{}.vhd", "templates/{}.v", "constraints/{}.xdc",
    "constraints/{}.lpf", "constraints/{}.sdc", "sim/tb_oscar_nic.vhd", "sim/tb_oscar_nic.v",
    "sim/oscar_nic.vectors", "oscar.core", "oscar_nic.h", "files.txt",
)  # fmt: skip
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "archive.md"


def commands(page: str) -> list[str]:
    """Return the first commands of the page, without the one that unpacks the archive."""
    block = re.search(r"(?:^    .*\n)+", page, re.M)
    assert block
    return [line.strip() for line in block[0].splitlines() if not line.strip().startswith("tar ")]


def printed(page: str) -> list[str]:
    """Return the lines that the page shows, without the places that a simulator puts before them."""
    shown = re.search(r"```\n((?:\(report note\).*\n)+)```", page)
    assert shown
    return [line.partition("): ")[2] for line in shown[1].splitlines()]


def lacking(folder: Path) -> list[str]:
    """Return the files that the page lists and the folder lacks."""
    wanted = {pattern.format(top) for top in TOPS for pattern in FILES}
    wanted |= {f"{datasheets.FOLDER}/{name}.md" for name in datasheets.SHEETS}
    return [f"lacks {name}" for name in sorted(wanted) if not (folder / name).exists()]


def faults(folder: Path) -> list[str]:
    """Return what the commands did otherwise than the page says."""
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        archive = Path(temporary) / "archive"
        shutil.copytree(folder, archive, ignore=shutil.ignore_patterns("ghdl", "synth"))
        said = ""
        for command in commands(page):
            done = subprocess.run(
                ["bash", "-c", command], cwd=archive, capture_output=True, text=True, check=False
            )
            said += done.stdout + done.stderr
            if done.returncode:
                return [f"{command} ended with status {done.returncode}:\n{said}"]
        found = [f"the page says that this is printed: {line}" for line in printed(page) if line not in said]
        found += [f"warning: {line}" for line in said.splitlines() if "warning" in line]
        return found if (archive / "oscar_nic.ghw").stat().st_size else [*found, "the waveform is empty"]


if __name__ == "__main__":
    wrong = lacking(Path(sys.argv[1])) or faults(Path(sys.argv[1]))
    sys.exit("\n".join(wrong) if wrong else 0)
