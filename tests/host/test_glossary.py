"""One word, one thing: public classes have names of their own, and every term of the glossary has a home."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from oscar.planning.tuning import policy

ROOT = Path(__file__).parents[2]
PACKAGES = "host/oscar", "host/oscar_gpu", "host/oscar_studies", "host/oscar_lab", "sim/oscar_sim"
PAGE = ROOT / "docs" / "reference" / "glossary.md"
ROWS = re.findall(r"^\| ([a-z][^|]*) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_public_classes_share_a_name(package: str) -> None:
    homes = defaultdict(list)
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert homes
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_every_term_of_the_glossary_has_one_home() -> None:
    terms = [term for term, _, _ in ROWS if term != "term"]
    assert len(terms) > 40
    assert len(set(terms)) == len(terms)
    for term, _, home in ROWS:
        if term == "term":
            continue
        found = re.fullmatch(r"`(.+)`|\[.+\]\(([\w/.-]+)(#[\w-]+)?\)", home)
        assert found is not None, (term, home)
        file, page = found[1], found[2]
        places = [PAGE.parent / page] if page else [ROOT / "host/oscar" / file, ROOT / file]
        assert any(place.is_file() for place in places), (term, home)


def test_a_public_name_of_before_is_found_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="is now PolicyProblem"):
        assert policy.Problem is policy.PolicyProblem
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        policy.Nothing  # noqa: B018
