"""What all sections share: strict models, names that can be printed, errors that name the nearest word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from oscar.errors import did_you_mean

LEAST_RATE, MOST = 1e-6, 1e9  # of the time model: beyond them times are no longer finite or of any use


class Section(BaseModel):
    """Part of a configuration: unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected characters that can be printed, all in one line")
    return text


Name = Annotated[str, Field(min_length=1), AfterValidator(_printable)]  # of a row in tables and figures


def one_of(what: str, name: str, known: Iterable[str]) -> str:
    """Return `name`; raises ValueError that lists what is known and the nearest."""
    names = list(known)
    if name not in names:
        raise ValueError(f"{did_you_mean(name, names)}{what} must be one of {', '.join(names)}")
    return name
