"""The house stays in order: imports go down only, modules and functions stay readable, its page is true."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import oscar

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "host").rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 400, 60
HOUSE = Path(oscar.__file__).parent
PAGE = (ROOT / "docs" / "develop" / "architecture.md").read_text(encoding="utf-8")


def test_imports_go_down_only() -> None:
    """The layers are in pyproject.toml, and drawn in docs/develop/architecture.md."""
    program = [sys.executable, "-c", "from importlinter.cli import *; lint_imports_command()", "--no-cache"]
    done = subprocess.run(
        program,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("host", "hdl", "sim"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_is_longer_than_400_lines() -> None:
    long = {
        path.name: count for path in SOURCES if (count := len(path.read_text().splitlines())) > MODULE_LINES
    }
    assert not long


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{path.name}:{node.name}": node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    }
    assert not long


def layers(container: str = "oscar") -> list[list[str]]:
    """The layers of a package in pyproject.toml, from the top."""
    pattern = rf'^containers = \["{container}"\]\n.*?^layers = \[(.*?)\]$'
    found = re.search(pattern, (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return [line.split(" | ") for line in re.findall(r'"(.*?)"', found[1])]


@pytest.mark.parametrize(
    ("package", "title"),
    [
        ("oscar", "## The layers"),
        ("oscar_gpu", "### On a GPU"),
        ("oscar_studies", "### The studies"),
        ("oscar_lab", "### The laboratory"),
    ],
)
def test_the_page_draws_the_layers_that_hold(package: str, title: str) -> None:
    drawing = PAGE.partition(f"\n{title}\n")[2].split("```")[1]
    names = [re.split(r"  +", line)[-1].split(" | ") for line in drawing.strip("\n").splitlines()]
    assert names == layers(package)


def test_the_page_draws_the_rooms_of_hdl_and_sim() -> None:
    """A line of the drawing is a layer; one that begins at the margin names the package first."""
    drawn: dict[str, list[list[str]]] = {}
    package = ""
    for line in PAGE.partition("## The rooms of hdl and sim")[2].split("```")[1].strip("\n").splitlines():
        head, _, layer = line.partition(" ")
        package = head or package
        drawn.setdefault(package, [])
        if layer.strip():
            drawn[package].append(layer.strip().split(" | "))
    sim = drawn.pop("sim")
    assert sim == layers("oscar_sim")
    assert [[name] for name in drawn] == layers("oscar_hdl")
    assert {name: rooms for name, rooms in drawn.items() if rooms} == {
        name: layers(f"oscar_hdl.{name}") for name in ("flow", "nic", "coder")
    }


def test_hdl_takes_parameters_of_the_host_and_nothing_else() -> None:
    found = {
        module
        for path in (ROOT / "hdl").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for module in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [name.name for name in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        if module.split(".")[0] in ("oscar", "oscar_sim")
    }
    assert found == {"oscar.coding.asc.params", "oscar.coding.frame", "oscar.version"}


def room(frame: FrameType) -> str | None:
    """The package, or the module at the bottom, that a frame is of; None outside the house."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(HOUSE).parts[0].removesuffix(".py") if path.is_relative_to(HOUSE) else None


@pytest.mark.parametrize("schedule", ["ring", "duplex"])
def test_a_gradient_passes_the_packages_that_the_page_names_and_no_call_goes_up(schedule: str) -> None:
    random = np.random.default_rng(0)
    gradients = [[random.laplace(size=5000).astype(np.float32)] for _ in range(3)]
    cluster = oscar.LocalCluster(oscar.Config.model_validate({"nodes": 3, "schedule": {"name": schedule}}))
    cluster.allreduce(gradients)
    calls: set[tuple[str | None, str]] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        here = room(frame) if event == "call" else None
        if here is None:
            return
        caller = frame.f_back
        while caller is not None and room(caller) is None:
            caller = caller.f_back
        calls.add((None if caller is None else room(caller), here))

    sys.setprofile(watch)
    try:
        cluster.allreduce(gradients)
    finally:
        sys.setprofile(None)
    listed = re.search(r"run in this call: (.*?)\.", PAGE)
    assert listed is not None
    assert {here for _, here in calls} == set(re.findall(r"`(\w+)`", listed[1]))
    height = {name: level for level, names in enumerate(layers()) for name in names}
    known = [(caller, here) for caller, here in calls if caller in height]
    up = [(caller, here) for caller, here in known if height[caller] > height[here] and caller != "cores"]
    assert not up


def test_files_and_names_on_the_page_exist() -> None:
    """Where a new thing goes has to be there; NAME stands for the new one."""
    for path in re.findall(r"`((?:[a-z_]+/)+(?:\w+\.py)?)`", PAGE):
        known = [ROOT / path, HOUSE / path]
        assert any(place.exists() for place in known) or "NAME" in path, path
    rows = PAGE.partition("## Where a new one goes")[2].partition("###")[0]
    rooms = (
        *SOURCES,
        *(ROOT / "hdl").rglob("*.py"),
        *(ROOT / "tests" / "support").glob("*.py"),
        *(ROOT / "examples").glob("*.py"),
    )
    house = "\n".join(path.read_text() for path in rooms)
    for name in set(re.findall(r"`([A-Z]\w{3,})`", rows)) - {"NAME"}:
        assert re.search(rf"\b{name}\b", house), name
