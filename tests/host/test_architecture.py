"""The house stays in order: imports go down only, modules and functions stay readable."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "host").rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 400, 60


def test_imports_go_down_only() -> None:
    """The layers are in pyproject.toml, and drawn in docs/architecture.md."""
    program = [sys.executable, "-c", "from importlinter.cli import *; lint_imports_command()", "--no-cache"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
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
