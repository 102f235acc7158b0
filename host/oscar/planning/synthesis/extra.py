"""The optional packages of the extra `schedule`, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from oscar.errors import MissingExtraError, install


def package(name: str) -> Any:
    """Return the module `name` of scipy or networkx; raises MissingExtraError without it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"making a schedule needs {name.partition('.')[0]}: {install('schedule')} ({error})"
        ) from None
