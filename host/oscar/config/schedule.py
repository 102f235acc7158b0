"""The section `schedule`: who sends what to whom (docs/schedules.md)."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from oscar.collective.schedules import KINDS
from oscar.config.base import Section, one_of

BY_NETWORK, BY_TIME = "network", "auto"
NAMES = (BY_NETWORK, BY_TIME, *KINDS)
OLD = {"forward": "ring", "boomerang": "boomerang", "duplex": "duplex"}  # ring.gather, up to release 0.9
GONE = "is called schedule now (ring.gather: forward is schedule: ring)"
OPTIONS = {  # options of some schedules alone
    "group": ("hierarchical", "exchange"), "root": ("star",), "file": ("file",),
}  # fmt: skip


class ScheduleSection(Section):
    """A schedule by name, or `name` as a text alone.

    name: network takes direct where ranks are at a switch (two ranks exchange their values), and a ring where
    links are one; auto asks the time model. subframes: pieces of a chunk, which overlap. group: ranks of a
    group, of hierarchical and exchange (null: about the root of the nodes). root: the rank that adds, of
    star. file: a path, of the schedule file.
    """

    name: str = BY_NETWORK
    subframes: int = Field(default=1, ge=1, le=64)
    group: int | None = Field(default=None, ge=1, le=256)
    root: int = Field(default=0, ge=0, le=255)
    file: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _fits(self) -> ScheduleSection:
        one_of("schedule", self.name, NAMES)
        for option, names in OPTIONS.items():
            if getattr(self, option) != type(self).model_fields[option].default and self.name not in names:
                said = " and ".join(names)
                raise ValueError(f"{option} is for the schedule {said}, not {self.name}: leave it out")
        if self.name == "file" and self.file is None:
            raise ValueError(
                "the schedule file needs the key file: a path, as `oscar schedule synth` writes one"
            )
        return self

    def named(self, name: str) -> ScheduleSection:
        """Return this section with another name; options that are another schedule's stay behind."""
        kept = {key: value for key, value in self.model_dump().items() if name in OPTIONS.get(key, (name,))}
        return type(self)(**kept | {"name": name})


def refuse_old(data: Any, key: str, where: str) -> None:
    """Raise ValueError for the key that said how sums come back before there were schedules."""
    if isinstance(data, dict) and key in data:
        old = data[key] if isinstance(data[key], dict) else {"gather": data[key]}
        value = OLD.get(str(old.get("gather", "boomerang")), "NAME")
        if "subframes" in old:
            value = f"{{name: {value}, subframes: {old['subframes']}}}"
        raise ValueError(f"the key {where}{key} {GONE}; write schedule: {value}")
