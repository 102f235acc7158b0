"""The digests of a revision: the same for the same code, told apart by one bit of one case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oscar.cli import main


def test_a_changed_digest_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, words = tmp_path / "before.txt", ["trial", "digests", "--only", "indices"]
    assert main([*words, "--write", str(before)]) == 0
    assert main([*words, "--against", str(before)]) == 0
    text = before.read_text()
    assert text.count("\nindices/popular/") == 4
    assert len({line.split()[1] for line in text.splitlines()[1:]}) == text.count("\n") - 1  # of all streams
    before.write_text(re.sub(r"(indices/gaps/0.1) \w", r"\1 x", text))
    capsys.readouterr()
    assert main([*words, "--against", str(before)]) == 1
    assert "# differs: indices/gaps/0.1: bits" in capsys.readouterr().out
