"""One word, one thing: public classes have names of their own, and every term of the glossary has a home."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from oscar.planning.tuning import policy

ROOT = Path(__file__).parents[2]
PACKAGES = "host/oscar", "host/oscar_gpu", "host/oscar_studies", "host/oscar_lab", "sim/oscar_sim"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_public_classes_share_a_name(package: str) -> None:
    homes = defaultdict(list)
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert homes
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_a_public_name_of_before_is_found_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="is now PolicyProblem"):
        assert policy.Problem is policy.PolicyProblem
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        policy.Nothing  # noqa: B018
