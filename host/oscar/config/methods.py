"""The sections `methods` and `compare`: what is compared with what."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from oscar.config.base import Name, Section, one_of
from oscar.config.schedule import NAMES, ScheduleSection, refuse_old
from oscar.numerics.plans import PLANS
from oscar.schemes.registry import check_method, method_names

POINT_SECTIONS = ("scheme", "quantiser", "asc")  # what a point of a contender may change


class Choice(Section):
    """A section whose key `method` names the codec or the scheme to reduce with."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: Any) -> Any:
        if isinstance(data, dict) and "codec" in data:
            given = data["codec"]
            value = given if given in method_names() else "NAME"
            raise ValueError(
                "the key codec is called method now (the codec or scheme to reduce with); "
                f"write method: {value}"
            )
        return data

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any) -> Any:
        refuse_old(data, "gather", "")
        return data

    @field_validator("schedule", check_fields=False)
    @classmethod
    def _scheduled(cls, given: Any) -> Any:
        return one_of("schedule", given, NAMES) if isinstance(given, str) else given

    @field_validator("method", check_fields=False)
    @classmethod
    def _known(cls, name: str) -> str:
        return check_method(name)


class Method(Choice):
    """One entry of the comparison, with a row for each plan: what differs from the configuration.

    schedule: a name, or a section of its own; null: as the configuration says. asc: replaces single keys of
    the section `asc`; scheme: the options of a scheme.
    """

    name: Name
    method: str
    schedule: ScheduleSection | None = None
    plans: tuple[str, ...] = Field(default=("equal",), strict=False)
    asc: dict[str, Any] = Field(default_factory=dict)
    scheme: dict[str, Any] = Field(default_factory=dict)

    @field_validator("plans")
    @classmethod
    def _plans(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError(f"a method needs at least one plan of {', '.join(PLANS)}")
        return tuple(one_of("plan", name, PLANS) for name in names)


class Contender(Choice):
    """One method of `oscar compare`, trained once per point and seed.

    scheme, quantiser, asc: keys that differ from the rest of the configuration, at all points.
    points: how far the method compresses, from its finest to its coarsest setting. Each point replaces
    keys of scheme, quantiser and asc.
    """

    name: Name
    method: str
    schedule: str = "ring"
    plan: str = "equal"
    scheme: dict[str, Any] = Field(default_factory=dict)
    quantiser: dict[str, Any] = Field(default_factory=dict)
    asc: dict[str, Any] = Field(default_factory=dict)
    points: tuple[dict[str, dict[str, Any]], ...] = Field(default=({},), strict=False, min_length=1)

    @field_validator("points")
    @classmethod
    def _sections(
        cls, points: tuple[dict[str, dict[str, Any]], ...]
    ) -> tuple[dict[str, dict[str, Any]], ...]:
        for point in points:
            for key in point:
                one_of("section of a point", key, POINT_SECTIONS)
        return points


class CompareSection(Section):
    """What `oscar compare` trains; metric: of the held-out data, accuracy (more is better) or loss (less)."""

    seeds: tuple[int, ...] = Field(default=(0, 1, 2), strict=False, min_length=1)
    metric: Literal["accuracy", "loss"] = "accuracy"
    contenders: tuple[Contender, ...] = Field(default=(), strict=False)
