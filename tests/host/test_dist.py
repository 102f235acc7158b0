"""Wheel and sdist: they hold what they should, are the same bytes from anywhere, and run anywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

import oscar
from oscar import plugins
from oscar.cli import COMMANDS as RUNTIME_COMMANDS
from oscar.cli import installed as installed_commands
from oscar.config import load_config

ROOT = Path(__file__).parents[2]
COMMANDS = (
    *RUNTIME_COMMANDS,
    *(
        name
        for name, entry in plugins.entries(plugins.COMMANDS).items()
        if plugins.package_of(entry) != installed_commands.LABORATORY
    ),
)
CONFIGS = {path.name: path.read_bytes() for path in (ROOT / "configs").glob("*.yaml")}


def build(root: Path, out: Path) -> tuple[Path, Path]:
    """Build sdist and wheel of `root` and return them."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_sdist_makes_the_same_files_again_and_nothing_stray(
    released: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(released[0]) as archive:
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Debian's 3.11.2 has none
        archive.extractall(tmp_path, **safe)
    (unpacked,) = tmp_path.iterdir()
    for stray in ("notes.txt", "shared/big.bin", "host/oscar/keep.npz", "dist/old.whl", ".env"):
        (unpacked / stray).parent.mkdir(exist_ok=True)
        (unpacked / stray).write_text("stray")
    for path in unpacked.rglob("*.py"):  # neither times nor modes matter
        os.utime(path, (1e9, 1e9))
        path.chmod(0o600)
    for first, second in zip(released, build(unpacked, tmp_path / "out"), strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes()


def test_wheel_holds_packages_types_and_configurations(released: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(released[1]) as wheel:
        names = wheel.namelist()
        configs = {n.rpartition("/")[2]: wheel.read(n) for n in names if n.startswith("oscar/configs/")}
    assert configs == CONFIGS
    assert "oscar/py.typed" in names
    info = f"oscar_allreduce-{oscar.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {
        "oscar", "oscar_gpu", "oscar_hdl", "oscar_sim", "oscar_studies", info,
    }  # fmt: skip


def required(names: list[str], known: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return the distributions that `names` are and need, extras left out."""
    for name in names:
        if name not in known:
            known[name] = distribution(name)
            wanted = [Requirement(line) for line in known[name].requires or []]
            required([w.name for w in wanted if w.marker is None or w.marker.evaluate({"extra": ""})], known)
    return known


@pytest.fixture(scope="module")
def installed(released: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and what it requires, without any extra, in one folder."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(released[1]).extractall(folder)
    (info,) = folder.glob("*.dist-info")
    wanted = [Requirement(line) for line in Distribution.at(info).requires or []]
    for found in required([w.name for w in wanted if w.marker is None], {}).values():
        for top in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            (folder / top).symlink_to(found.locate_file(top))
    return folder


# Runs each command of a JSON list in one process, which is faster, and prints its status and what it said.
RUNNER = """
import contextlib, io, json, sys
from oscar import cli
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = cli.main(words)
        except SystemExit as end:
            status = end.code
    print(json.dumps([words, status, said.getvalue()]))
"""


def run(installed: Path, folder: Path, *commands: list[str]) -> list[tuple[list[str], int, str]]:
    """Run commands of the wheel in `folder`, with no other package in reach (-S)."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", RUNNER, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_every_product_command_of_the_wheel_explains_itself(installed: Path, tmp_path: Path) -> None:
    for words, status, said in run(installed, tmp_path, *([name, "--help"] for name in COMMANDS)):
        assert (status, said.split()[:3]) == (0, ["usage:", "oscar", words[0]])


def test_the_wheel_runs_outside_a_clone_and_names_the_extras_that_it_lacks(
    installed: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "g.npy", np.linspace(-1, 1, 1000, dtype=np.float32))
    works = [
        ["init"],
        ["init", "--list"],
        ["schedule", "list", "--nodes", "4"],
        ["schedule", "check", "direct", "--nodes", "4"],
        ["codec", "g.npy", "--codec", "fp32"],
    ]
    for words, status, said in run(installed, tmp_path, *works):
        assert status == 0, (words, said)
    assert load_config(tmp_path / "oscar.yaml") == load_config("default")
    lacks = {
        "schedule synth net.yaml -o s.json": "schedule",
        "worker --transport tcp": "torch",
        "worker --transport mpi": "mpi",
        "train cnn": "torch",
    }
    (tmp_path / "net.yaml").write_text("{kind: switch, nodes: 4, gbps: 1}")
    for words, status, said in run(installed, tmp_path, *(line.split() for line in lacks)):
        assert (status, said.count("\n")) == (2, 1), (words, said)
        assert f"oscar-allreduce[{lacks[' '.join(words)]}]" in said


def test_without_the_laboratory_its_commands_say_that_they_need_a_clone(
    installed: Path, tmp_path: Path
) -> None:
    words = ["bench"], ["bench", "ratios", "--nodes", "4"], ["trial", "--help"], ["lab"]
    for _, status, said in run(installed, tmp_path, *words):
        assert status == 2
        assert "is not in the wheel; clone OSCAR's repository" in said


def test_every_place_says_the_same_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [oscar.__version__]
