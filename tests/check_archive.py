"""Run the commands of archive.md in the folder that `make vhdl` wrote; compare with what the page shows.

Run by .ci/run as `python tests/check_archive.py FOLDER`; exits with what is wrong.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

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
    wrong = faults(Path(sys.argv[1]))
    sys.exit("\n".join(wrong) if wrong else 0)
