"""Old names of modules: each leads to the module at its new place, and warns."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import oscar
from oscar.errors import MissingExtraError
from oscar.moved import MOVED, REMOVED_IN, new_name

EXTRAS = ("torch", "triton")  # what a moved module may need


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Leave no old name behind: the next test would see no warning."""
    yield
    for name in [name for name in sys.modules if new_name(name) is not None]:
        del sys.modules[name]


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_leads_to_the_module_and_warns(old: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            module = importlib.import_module(old)
        except ImportError as missing:
            if not isinstance(missing, MissingExtraError) and missing.name not in EXTRAS:
                raise
            pytest.skip(str(missing))
    assert str(told[-1].message) == f"{old} is {MOVED[old]} now; the old name goes in release {REMOVED_IN}"
    assert {one.category for one in told} == {DeprecationWarning}  # of its package, too, if that has moved
    new = importlib.import_module(MOVED[old])
    assert module is new or module.__getattr__("__doc__") == new.__doc__


def test_what_was_in_a_package_is_found_where_it_went() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from oscar.studies import comparison, plotting  # type: ignore[attr-defined, import-not-found]
        from oscar.workloads import make_workload, text  # type: ignore[import-not-found]
    import oscar.plotting
    import oscar_studies.comparison
    import oscar_studies.workloads.text
    from oscar_studies.workloads import make_workload as made

    assert (plotting, comparison) == (oscar.plotting, oscar_studies.comparison)
    assert (text, make_workload) == (oscar_studies.workloads.text, made)


def test_the_line_that_imports_is_blamed() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        import oscar.workloads.text  # type: ignore[import-not-found] # noqa: F401
    assert {one.filename for one in told} == {__file__}


@pytest.mark.parametrize("name", ["oscar.nothing", "oscar.studies.nothing", "oscar.schemes.nothing"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_name_that_never_was_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        importlib.import_module(name)


def test_no_file_has_an_old_name() -> None:
    for old in MOVED:
        path = Path(oscar.__file__).parent.joinpath(*old.split(".")[1:])
        assert not path.with_suffix(".py").exists(), old
        assert not (path / "__init__.py").exists(), old
