"""The pages of figures: each is declared, its commands parse, and a line says what its figures stand on."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from oscar.cli import build_parser
from oscar.plotting import numbers_in
from oscar.version import METHOD_VERSIONS
from oscar_lab.cli.bench import PACKAGES, modules
from support.page_tables import PICTURES

ROOT = Path(__file__).parents[2]


def load_measure() -> Any:
    spec = importlib.util.spec_from_file_location("measure", ROOT / "docs" / "results" / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measure"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


measure = load_measure()
PAGES = measure.read_pages()
PARSER, MODULES = build_parser(), {kind: modules(kind) for kind in PACKAGES}
COMMANDS = sorted({command for page in PAGES.values() for command in page.commands})


def test_every_page_is_declared_and_says_what_its_figures_stand_on() -> None:
    there = {path.name: path for path in (ROOT / "docs" / "results").glob("*.md")}
    assert {page.file for page in PAGES.values()} == {
        path for name, path in there.items() if name not in ("README.md", "status.md")
    }
    for page in PAGES.values():
        assert page.first_line in page.file.read_text(encoding="utf-8").splitlines(), page.name
        assert all((ROOT / source).exists() for source in page.sources), page.name


def test_versions_of_methods_that_are_old_are_told() -> None:
    for page in PAGES.values():
        for one in page.measured:
            assert all(number < METHOD_VERSIONS[name] for name, number in one.methods.items()), page.name
    of = measure.Measured("abc", "frames", "3.11.2", {"asc": 1, "lhc": 1, "zen": 1})
    assert of.text() == "frames at revision abc on Python 3.11.2 (ASC's format 1, lhc 1)"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_pages_parse(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
        return
    assert words[0] == "oscar"
    parsed = PARSER.parse_args(words[1:])
    if words[1] in PACKAGES:
        assert words[2] in MODULES[words[1]]
        parser = argparse.ArgumentParser()
        importlib.import_module(f"{PACKAGES[words[1]]}.{words[2]}").add_arguments(parser)
        parser.parse_args(parsed.rest)


def test_commands_on_pages_parse_too() -> None:
    """A page may show more commands than are declared; those that begin with `$ oscar` have to exist."""
    for page in PAGES.values():
        for line in re.findall(r"^\$ (oscar .*)$", page.file.read_text(encoding="utf-8"), re.MULTILINE):
            if not re.search(r"FILE|\.\.$|\\$", line):
                test_commands_of_pages_parse(line.partition(" #")[0])


IMAGES = ROOT / "docs" / "images"
# Drawn before pictures kept their numbers: who draws one anew takes it out of here and holds it to its table.
UNHELD = {"schedule_routes"}


def test_the_table_of_readme_is_that_of_its_page() -> None:
    """Bits and times of README are those of its model in the first table of bits.md, rounded."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \**(\w+)[^|]*\| \**([\d.]+)\** \| \**(\d+) us\** \|$", readme, re.MULTILINE)
    page = (ROOT / "docs" / "results" / "bits.md").read_text(encoding="utf-8")
    measured = re.findall(r"^\| \**(\w+)[^|]*\| ([\d.]+) \((?:\w+, )?([\d.]+) us\) \|", page, re.MULTILINE)
    assert [name.replace("OSCAR", "ASC") for name, *_ in rows] == [name for name, *_ in measured]
    assert [row[1] for row in rows] == [row[1] for row in measured]
    assert [int(row[2]) for row in rows] == [round(float(row[2])) for row in measured]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_table_gives(name: str, tmp_path: Path) -> None:
    PICTURES[name](tmp_path / "a.png")
    drawn = numbers_in(tmp_path / "a.png")
    assert drawn is not None
    assert sum(len(panel["bars"]) + sum(map(len, panel["lines"])) for panel in drawn) > 10
    assert numbers_in(IMAGES / f"{name}.png") == drawn


def test_every_picture_keeps_its_numbers_and_is_shown() -> None:
    there = {path.stem for path in IMAGES.glob("*.png")}
    assert {name for name in there if numbers_in(IMAGES / f"{name}.png") is None} == UNHELD
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    shown = {name for page in pages for name in re.findall(r"images/(\w+\.\w+)\)", page.read_text("utf-8"))}
    assert {path.name for path in IMAGES.iterdir()} == shown


def test_a_change_of_a_source_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    (tmp_path / "coder" / "__pycache__").mkdir(parents=True)
    (tmp_path / "coder" / "a.py").write_text("1")
    before = measure.digest(("coder",))
    (tmp_path / "coder" / "__pycache__" / "a.pyc").write_text("1")
    page = measure.Page("x", tmp_path, (), ("coder",), 1, (), (measure.Measured("abc"),), before)
    assert page.changed() == ""
    (tmp_path / "coder" / "a.py").write_text("2")
    assert page.changed() == "sources changed"


def test_a_page_is_measured_into_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    file = tmp_path / "x.md"
    file.write_text("# X\n\n```\n$ oscar trial soon\n$ oscar --version\n```\n")
    commands = ("oscar --version", "oscar trial soon", "oscar lab FILE")
    page = measure.Page("x", file, commands, (), 1, (), (measure.Measured("abc"),), "")
    assert measure.measure(page, [1]) == 0
    assert (tmp_path / "build" / "results" / "x" / "1.txt").read_text().startswith("oscar ")
    assert "build/results/x/1.txt: takes the place of the table at x.md:5" in capsys.readouterr().out
    assert measure.measure(page, []) == 1
    said = capsys.readouterr().out
    assert "not run: x.md says what FILE is" in said
    assert "build/results/x/2.txt: the command ended with status 2" in said
    kept = json.loads((tmp_path / "build" / "results" / "x" / "results.json").read_text())
    assert kept["statuses"] == {"oscar --version": 0, "oscar trial soon": 2}
    assert "python" in kept["provenance"]
