"""OSCAR_TESTS_PASSED leaves out tests of hardware that passed by a report of pytest, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import _passed

TEXT = """
import pytest

def test_plain():
    print("said")

@pytest.mark.parametrize("what", ["a.b", "fails"])
def test_cases(what):
    assert what == "a.b"

def test_absent():
    pytest.skip("no tool")

@pytest.fixture
def ends_badly():
    yield
    raise OSError

def test_ended(ends_badly):
    pass
"""


def test_what_passed_is_known_by_its_id(tmp_path: Path) -> None:
    for room in ("hdl", "host"):
        folder = tmp_path / "tests" / room
        folder.mkdir(parents=True)
        (folder / f"test_{room}.py").write_text(TEXT)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml", "report.xml"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    known = {"tests/hdl/test_hdl.py::test_plain", "tests/hdl/test_hdl.py::test_cases[a.b]"}
    assert _passed(tmp_path / "report.xml") == known
