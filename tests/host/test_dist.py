"""Wheel and sdist: they hold what they should, are the same bytes from anywhere, and run anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import oscar
from oscar import cli
from oscar.cli import laboratory
from oscar.config import load_config

ROOT = Path(__file__).parents[2]
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
    assert {name.partition("/")[0] for name in names} == {"oscar", "oscar_hdl", "oscar_sim", info}


def test_wheel_knows_its_configurations_in_any_folder(released: tuple[Path, Path], tmp_path: Path) -> None:
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    zipfile.ZipFile(released[1]).extractall(installed)
    elsewhere.mkdir()
    script = (
        "import oscar, oscar.cli, sys\n"
        "assert oscar.load_config('default') == oscar.load_config(sys.argv[1])\n"
        "print(oscar.__file__)\n"
        "sys.exit(oscar.cli.main(['init']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT / "configs/default.yaml")],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(installed) in done.stdout
    assert load_config(elsewhere / "oscar.yaml") == load_config("default")


def test_without_the_laboratory_its_commands_say_that_they_need_a_clone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(laboratory, "PACKAGE", "no_such_package")
    for words in (["bench"], ["bench", "ratios", "--nodes", "4"], ["trial", "--help"], ["lab"]):
        assert cli.main(words) == 2
        assert "is not in the wheel; clone OSCAR's repository" in capsys.readouterr().err


def test_every_place_says_the_same_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [oscar.__version__]
