"""The sections of a configuration, except `link` and `topology`, which the time model reads (config.link)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from oscar.coding.asc.params import AscParams, ContextMode, TableMode
from oscar.collective.schedules import KINDS
from oscar.config.base import MOST, Name, Section, one_of
from oscar.numerics.bandit import ARMS, check_arms
from oscar.numerics.plans import PLANS, cuts_of
from oscar.numerics.quantiser import MAX_BITS, MIN_BITS, QuantiserParams, Rounding, Scale, Step, default_bits
from oscar.schemes.registry import check_method, method_names
from oscar.transports.keyed import LEAST_PERCENT, MOST_PERCENT, PAD_NEEDS_SECURITY

BY_NETWORK, BY_TIME = "network", "auto"
NAMES = (BY_NETWORK, BY_TIME, *KINDS)
SCHEDULE_OF_GATHER = {
    "forward": "ring",
    "boomerang": "boomerang",
    "duplex": "duplex",
}  # ring.gather, up to release 0.9
GATHER_HINT = "is called schedule now (ring.gather: forward is schedule: ring)"
OPTIONS = {  # options of some schedules alone
    "group": ("hierarchical", "exchange"), "root": ("star",), "file": ("file",),
    "copies": ("redundant",), "pieces": ("redundant",),
}  # fmt: skip
BURST = 4  # consecutive iterations with the ring: link tables catch up, and the last iteration is measured
POINT_SECTIONS = ("scheme", "quantiser", "asc")  # what a point of a contender may change


class ScheduleSection(Section):
    """A schedule by name, or `name` as a text alone.

    name: network takes direct where ranks are at a switch (two ranks exchange their values), and a ring where
        links are one; auto asks the time model.
    subframes: pieces of a chunk, which overlap.
    group: ranks of a group, of hierarchical and exchange; null: about the square root of the nodes.
    root: the rank that adds, of star.
    file: path of a schedule file, with the name file.
    copies: ranks that can compute each task, of redundant.
    pieces: tasks of a rank's part, of redundant; null: one for each other rank, at most 8.
    """

    name: str = BY_NETWORK
    subframes: int = Field(default=1, ge=1, le=64)
    group: int | None = Field(default=None, ge=1, le=256)
    root: int = Field(default=0, ge=0, le=255)
    file: str | None = None
    copies: int = Field(default=2, ge=1, le=256)
    pieces: int | None = Field(default=None, ge=1, le=64)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _fits(self) -> ScheduleSection:
        one_of("schedule", self.name, NAMES)
        for option, names in OPTIONS.items():
            if getattr(self, option) != type(self).model_fields[option].default and self.name not in names:
                raise ValueError(
                    f"{option} is for the schedule {' and '.join(names)}, not {self.name}: leave it out"
                )
        if self.name == "file" and self.file is None:
            raise ValueError(
                "the schedule file needs the key file: a path, as `oscar schedule synth` writes one"
            )
        return self

    def named(self, name: str) -> ScheduleSection:
        """Return this section with another name; options that are another schedule's stay behind."""
        keys = {key: value for key, value in self.model_dump().items() if name in OPTIONS.get(key, (name,))}
        return type(self)(**keys | {"name": name})


def refuse_old(data: Any, key: str) -> None:
    """Raise ValueError for the key that said how sums come back before there were schedules."""
    if isinstance(data, dict) and key in data:
        old = data[key] if isinstance(data[key], dict) else {"gather": data[key]}
        value = SCHEDULE_OF_GATHER.get(str(old.get("gather", "boomerang")), "NAME")
        if "subframes" in old:
            value = f"{{name: {value}, subframes: {old['subframes']}}}"
        raise ValueError(f"the key {key} {GATHER_HINT}; write schedule: {value}")


class WorkloadSection(Section):
    """Where gradients come from: a workload by name with its options, or a recorded trace.

    warmup: iterations to train with the float mean before gradients are measured; auto: the workload's own
    number (`oscar_studies.workloads.registry`), and none for a trace. A training by one method begins without
    it.
    """

    name: str = "numpy-lm"
    options: dict[str, Any] = Field(default_factory=dict)
    trace: str | None = None
    warmup: int | Literal["auto"] = "auto"

    @field_validator("warmup", mode="before")
    @classmethod
    def _warmup(cls, warmup: Any) -> Any:
        if warmup != "auto" and not (type(warmup) is int and 0 <= warmup <= MOST):
            raise ValueError(f"expected auto or a whole number from 0 to {MOST}")
        return warmup

    @model_validator(mode="after")
    def _valid(self) -> WorkloadSection:
        if self.trace is not None and self.warmup not in ("auto", 0):
            raise ValueError(
                f"warmup: expected auto or 0 with a trace, whose gradients are recorded, got {self.warmup}; "
                "record the trace with --warmup"
            )
        return self


class QuantiserSection(Section):
    """See oscar.numerics.quantiser.QuantiserParams. Codecs of integers use it.

    controller: "bandit" chooses one of `arms` for coarseness by what iterations take, and begins with the one
    nearest to it; "fixed" leaves it.
    """

    scale: Scale = "sigma"
    coarseness: float = 0.125
    bits: int | Literal["auto"] = "auto"
    rounding: Rounding = "nearest"
    error_feedback: bool = False
    step: Step = "tensor"
    controller: Literal["fixed", "bandit"] = "fixed"
    arms: tuple[float, ...] = Field(default=ARMS, strict=False)

    @field_validator("bits", mode="before")
    @classmethod
    def _bits(cls, bits: Any) -> Any:
        if bits != "auto" and not (type(bits) is int and MIN_BITS <= bits <= MAX_BITS):
            raise ValueError(f"expected auto or a whole number from {MIN_BITS} to {MAX_BITS}")
        return bits

    @model_validator(mode="after")
    def _valid(self) -> QuantiserSection:
        self.params(nodes=1, seed=0)
        check_arms(self.arms)
        if self.controller == "bandit" and self.scale != "sigma":
            raise ValueError(f"controller: bandit chooses step / sigma; set scale to sigma, not {self.scale}")
        if self.controller == "bandit" and self.step == "value":
            raise ValueError("controller: bandit moves the steps of tensors; set step to tensor, not value")
        return self

    @property
    def said(self) -> str:
        """What differs between two sections that do not do the same; arms, where one of them is chosen."""
        none = {"controller", "arms"} if self.controller == "fixed" else set[str]()
        none |= {"step"} if self.step == "tensor" else set()
        return " ".join(f"{key}={value!r}" for key, value in self if key not in none)

    def params(self, *, nodes: int, seed: int) -> QuantiserParams:
        """Return the quantiser's parameters for sums over `nodes`."""
        bits = default_bits(nodes) if self.bits == "auto" else self.bits
        params = self.model_dump(exclude={"controller", "arms"})
        return QuantiserParams(**{**params, "bits": bits}, seed=seed)


GONE = {  # keys of the section asc that format 3 of the coder has no more
    "interval_log2": "tables change once a frame; for smaller pieces set schedule.subframes",
    "map": "contexts are fixed; for own tables where they pay set sent_rows: true",
}


class AscSection(Section):
    """See oscar.coding.asc.AscParams."""

    context: ContextMode = "class"
    tables: TableMode = "step"
    sent_rows: bool = True
    block_log2: int = 0

    @model_validator(mode="before")
    @classmethod
    def _gone(cls, data: Any) -> Any:
        for key in GONE.keys() & data.keys() if isinstance(data, dict) else ():
            raise ValueError(f"the key {key} is gone: {GONE[key]}, and leave {key} out")
        return data

    @field_validator("context", mode="before")
    @classmethod
    def _renamed(cls, context: Any) -> Any:
        if context in ("both", "position", "neighbour"):
            raise ValueError(
                f"context {context} is gone: write class, which tells values apart better, or none"
            )
        return context

    @model_validator(mode="after")
    def _valid(self) -> AscSection:
        AscParams(**self.model_dump())
        return self


class PlanSection(Section):
    """Chunk plan and its block size in values.

    shares: how much of the cost each chunk has, a number for each; auto: what lets the busiest port of a
    direct schedule be free earliest, by the topology; null: equal.
    """

    name: str = "interleave"
    granule: int = Field(default=256, ge=1, le=1 << 20)
    shares: tuple[float, ...] | Literal["auto"] | None = None

    @field_validator("shares", mode="before")
    @classmethod
    def _whole(cls, shares: Any) -> Any:
        if shares is None or shares == "auto":
            return shares
        numbers = isinstance(shares, (list, tuple)) and all(type(s) in (int, float) for s in shares)
        if not numbers:
            raise ValueError("expected auto, or a list of a number for each chunk")
        cuts_of(tuple(shares))
        return tuple(float(share) for share in shares)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return one_of("plan", name, PLANS)


class TransportSection(Section):
    """Ranks in separate processes: how long one may wait, what a death means, and encryption.

    pad: by how many per cent at most encrypted messages are lengthened, so that sizes tell less; none (0), or
    1 to 100.
    """

    timeout_s: float = Field(default=60.0, gt=0, le=1e6)
    survive: bool = False
    security: Literal["none", "aes-gcm"] = "none"
    key: str | None = None
    pad: float = 0.0

    @property
    def given_timeout_s(self) -> float | None:
        """`timeout_s` if it was set, else None: the hooks of torch then take the process group's timeout."""
        return self.timeout_s if "timeout_s" in self.model_fields_set else None

    @field_validator("pad", mode="before")
    @classmethod
    def _percent(cls, pad: Any) -> Any:
        if pad in (None, "none"):
            return 0.0
        number = isinstance(pad, (int, float)) and not isinstance(pad, bool)
        if not (number and (pad == 0 or LEAST_PERCENT <= pad <= MOST_PERCENT)):
            raise ValueError("expected none, or a number of per cent from 1 to 100")
        return pad

    @model_validator(mode="after")
    def _valid(self) -> TransportSection:
        if self.pad and self.security == "none":
            raise ValueError(
                f"frames should be padded, but transport.security is none: {PAD_NEEDS_SECURITY}, "
                "or transport.pad to none"
            )
        if self.key is not None and self.security == "none":
            raise ValueError(
                "a key is named, but transport.security is none and frames would be plain text: "
                "set transport.security to aes-gcm, or leave the key out"
            )
        return self


class TrainSection(Section):
    """How `oscar train` runs; nothing here changes a weight.

    compute_ms: of one node's forward and backward pass in the time model; null: as measured on this machine.
    """

    evaluate_every: int = Field(default=25, ge=0)
    checkpoint_every: int = Field(default=100, ge=0)
    ring_every: int = Field(default=1, ge=1)
    compute_ms: float | None = Field(default=None, ge=0, le=MOST)
    buckets: int = Field(default=4, ge=1, le=1024)

    @field_validator("ring_every")
    @classmethod
    def _bursts(cls, every: int) -> int:
        if 1 < every < BURST:
            raise ValueError(f"expected 1 (every iteration has its ring) or {BURST} and more")
        return every


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
        refuse_old(data, "gather")
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

    schedule: a name, or a section of its own; null: as the configuration says.
    asc: replaces single keys of the section `asc`.
    scheme: the options of a scheme.
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
