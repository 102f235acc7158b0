"""Commands of other packages, and what an installation says that is older than the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from oscar import Config, plugins
from oscar.cli import main
from oscar.coding import registry as codecs
from oscar.errors import ConfigError
from oscar.schemes import registry


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read the entry points anew before and after each test."""
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    for function in (plugins.entries, codecs.installed_codecs, registry.installed, registry.scheme_class):
        function.cache_clear()


HELLO = """
from oscar.cli.common import declare

def add(commands):
    declare(commands, "hello", lambda args: 7, short="say hello", example="  oscar hello", compiles=False)
"""


def give(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    """Make these the only entry points of the group oscar.commands."""
    entries = [EntryPoint(name, value, plugins.COMMANDS) for name, value in commands.items()]
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == plugins.COMMANDS else [])


def test_a_package_adds_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hello_command.py").write_text(HELLO)
    monkeypatch.syspath_prepend(tmp_path)
    give(monkeypatch, hello="hello_command:add", init="no_such_package:never_asked")
    assert main(["hello"]) == 7
    assert main(["init", "--list"]) == 0  # a package cannot take over a command of OSCAR's


def test_a_command_that_does_not_load_says_so_and_hurts_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "broken_command.py").write_text("raise RuntimeError('no such luck')\n")
    half = "def add(commands):\n    commands.add_parser('half')\n    raise RuntimeError('half way')\n"
    (tmp_path / "half_command.py").write_text(half)
    monkeypatch.syspath_prepend(tmp_path)
    give(monkeypatch, broken="broken_command:add", lost="no_such_package:add", half="half_command:add")
    assert main(["init", "--list"]) == 0
    reasons = {"broken": "no such luck", "lost": "No module named 'no_such_package'", "half": "half way"}
    for name, reason in reasons.items():
        assert main([name, "--anything"]) == 2
        error = capsys.readouterr().err
        assert f"oscar {name}: error: expected the command at" in error
        assert f"which cannot be loaded: {reason}; install its package again" in error


def test_an_installation_older_than_the_code_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remedy = "as it is older than this code: run `make setup`, or pip install -e . in the checkout"
    give(monkeypatch)
    with pytest.raises(SystemExit):
        main(["train"])
    assert remedy in capsys.readouterr().err
    with pytest.raises(ConfigError, match=re.escape(remedy)):
        Config(method="powersgd")
    monkeypatch.setattr(plugins, "is_importable", lambda package: False)
    with pytest.raises(ConfigError, match=r"module:Class of a scheme of your own$"):
        Config(method="powersgd")
