"""The house stays in order: imports go down only, modules and functions stay readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "host").rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 400, 60


def test_imports_go_down_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The layers are in pyproject.toml, and drawn in docs/architecture.md."""
    from importlinter.cli import lint_imports

    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


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
