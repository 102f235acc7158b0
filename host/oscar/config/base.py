"""What all sections share: strict models, names that can be printed, errors that name the nearest word."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from oscar.errors import ConfigError, did_you_mean

LEAST_RATE, MOST = 1e-6, 1e9  # bounds of the time model: beyond them times mean nothing or overflow


if TYPE_CHECKING:
    _Base = BaseModel
else:

    class _Explained(type(BaseModel)):
        """Makes a call such as `Config(node=4)` raise the ConfigError that a file with this key gives."""

        def __call__(cls, *args: Any, **keys: Any) -> Any:
            if args:
                kinds = ", ".join(type(arg).__name__ for arg in args)
                raise TypeError(
                    f"{cls.__name__}: expected keyword arguments, as in {cls.__name__}(key=value), got "
                    f"{kinds}; {cls.__name__}.model_validate takes a dict"
                )
            try:
                return super().__call__(**keys)
            except ValidationError as error:
                raise _refused(error, cls) from None

    class _Base(BaseModel, metaclass=_Explained):
        """A model whose errors are ConfigErrors, whoever makes it."""

        @classmethod
        def model_validate(cls, obj: Any, **options: Any) -> Any:
            """Return `obj`, a dict, as a model; raises ConfigError that explains every error."""
            try:
                return super().model_validate(obj, **options)
            except ValidationError as error:
                raise _refused(error, cls) from None


class Section(_Base):
    """Part of a configuration: unknown keys and values of another type are refused with a ConfigError."""

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
        raise ValueError(f"got {name!r}; {did_you_mean(name, names)}{what} must be one of {', '.join(names)}")
    return name


Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], data: dict[str, Any], source: str = "") -> Model:
    """Return `data` as a `model`; raises ConfigError that begins with `source` and explains every error."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        text = str(_refused(error, model))
    except ConfigError as error:
        text = str(error)
    raise ConfigError(f"{source}: {text}" if source else text)


def _refused(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Return pydantic's errors as one ConfigError."""
    return ConfigError("; ".join(explain(e, model) for e in error.errors()))


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
    message = error["msg"].removeprefix("Value error, ")
    given = not isinstance(error["input"], dict) and not message.startswith("got ")
    return f"{where}: {message}" + (f", got {reprlib.repr(error['input'])}" if given else "")


def _fields(model: Any, path: Sequence[str]) -> Sequence[str]:
    """Return the keys of the section at `path` below `model`, as a file writes them."""
    for part in path:
        field = model.model_fields.get(part)
        if field is None:
            return ()
        inner = getattr(field.annotation, "__args__", (field.annotation,))[0]
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else model
    return tuple(field.alias or name for name, field in model.model_fields.items())
