"""Errors of a configuration: one line that names the key, what was expected and what was given."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from oscar.errors import ConfigError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], data: dict[str, Any], source: str = "") -> Model:
    """Return `data` as a `model`; raises ConfigError that begins with `source` and explains every error."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        text = "; ".join(explain(e, model) for e in error.errors())
        raise ConfigError(f"{source}: {text}" if source else text) from None


def explain(error: Any, model: type[BaseModel], under: Sequence[str] = ()) -> str:
    """Return one of pydantic's errors as a sentence.

    model: what was validated; under: the keys that lead to it from the top of the configuration.
    """
    place = [p for p in error["loc"] if isinstance(p, str)]
    where = ".".join(map(str, (*under, *error["loc"]))) or "configuration"
    if error["type"] == "extra_forbidden":
        valid = list(_fields(model, place[:-1]))
        hint = did_you_mean(place[-1], valid, cutoff=0.4)
        return f"unknown key {where!r}; {hint}valid keys here: {', '.join(valid)}"
    given = "" if isinstance(error["input"], dict) else f", got {reprlib.repr(error['input'])}"
    return f"{where}: {error['msg'].removeprefix('Value error, ')}{given}"


def _fields(model: Any, path: Sequence[str]) -> Sequence[str]:
    """Return the keys of the section at `path` below `model`, as a file writes them."""
    for part in path:
        field = model.model_fields.get(part)
        if field is None:
            return ()
        inner = getattr(field.annotation, "__args__", (field.annotation,))[0]
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else model
    return tuple(field.alias or name for name, field in model.model_fields.items())
