"""Results name where they come from."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import pytest

from oscar import __version__, provenance
from oscar.cli import main
from oscar.coding.asc.params import FORMAT
from oscar.results import write_results
from oscar.schemes.registry import method_info
from oscar.version import METHOD_VERSIONS


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_revision_is_of_our_own_clone_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel in an environment inside its user's repository is not of that repository's commit."""
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--allow-empty", "--quiet", "-m", "theirs")
    assert provenance.revision() == f"version {__version__}"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n')
    assert provenance.revision() == f"version {__version__}"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "oscar-allreduce"\n')
    assert provenance.revision() == git(tmp_path, "rev-parse", "--short", "HEAD")


def test_every_results_file_says_where_it_is_from(tmp_path: Path) -> None:
    """`oscar bench --json`, `oscar worker --json` and the simulations' had nothing of it."""
    write_results(tmp_path / "a.json", {"rows": [{"bits": 2.0}]})
    there = json.loads((tmp_path / "a.json").read_text())["provenance"]
    assert there["revision"] == provenance.revision()
    assert there["python"].startswith(f"{platform.python_version()}, ")
    assert f"asc {FORMAT}, " in there["methods"]
    assert all(method_info(name) for name in METHOD_VERSIONS)  # unknown: ConfigError
    write_results(tmp_path / "a.json", {"rows": [], "provenance": ["of others"]})
    assert json.loads((tmp_path / "a.json").read_text())["provenance"] == ["of others"]
    assert main(["bench", "ratios", "--models", "--json", str(tmp_path / "b.json")]) == 0
    assert "provenance" in json.loads((tmp_path / "b.json").read_text())


def test_keys_are_not_kept() -> None:
    words = ["train", "--set", "transport.key=0123 secret", "--set", "link.codec=rtl", "--key=a", "--seed=1"]
    kept = "train --set transport.key=... --set link.codec=rtl --key=... --seed=1"
    assert provenance.arguments(words) == kept
    assert provenance.arguments(["--set", "transport={security: aes-gcm, key: secret}"]).count("secret") == 0
