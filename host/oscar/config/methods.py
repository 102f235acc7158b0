"""The sections `methods` and `compare`: what is compared with what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, field_validator

from oscar.coding.registry import CODECS
from oscar.config.base import Name, Section, one_of
from oscar.numerics.plans import PLANS
from oscar.schemes.registry import SCHEMES

POINT_SECTIONS = ("scheme", "quantiser", "asc")  # what a point of a contender may change


def known_codecs() -> Iterable[str]:
    """Return the names of all codecs and schemes."""
    return [*CODECS, *SCHEMES]


class Method(Section):
    """One line of the comparison and what differs from the rest of the configuration; a row per plan.

    asc: replaces single keys of the section `asc`; scheme: the options of a scheme.
    """

    name: Name
    codec: str
    gather: Literal["forward", "boomerang", "duplex"] = "forward"
    plans: tuple[str, ...] = Field(default=("equal",), strict=False)
    asc: dict[str, Any] = Field(default_factory=dict)
    scheme: dict[str, Any] = Field(default_factory=dict)

    @field_validator("codec")
    @classmethod
    def _codec(cls, name: str) -> str:
        return one_of("codec", name, known_codecs())

    @field_validator("plans")
    @classmethod
    def _plans(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError(f"a method needs at least one plan of {', '.join(PLANS)}")
        return tuple(one_of("plan", name, PLANS) for name in names)


class Contender(Section):
    """One method of `oscar compare`, trained once per point and seed.

    points: how far it compresses, from its finest to its coarsest setting; each replaces keys of the sections
    scheme, quantiser and asc. `sections` of the contender itself hold for all its points.
    """

    name: Name
    codec: str
    gather: Literal["forward", "boomerang", "duplex"] = "forward"
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
