"""The section `lab` of a configuration: which hosts, link rates and methods `oscar lab` measures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from oscar.config.base import Name, Section, explain
from oscar.config.experiment import Config
from oscar.errors import ConfigError, did_you_mean
from oscar.schemes.registry import method_info

SECTIONS = ("quantiser", "asc", "plan", "schedule", "transport")  # merged key by key, others replaced


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("expected more than 0")
    return value


Rate = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_positive)]


class MethodSpec(Section):
    """One way to reduce, measured in turn with all others.

    kind: gloo (torch.distributed's own all_reduce of `dtype`), oscar (a Communicator under the configuration
    with `change`) or replay (the frames that the method `of` sent last, without coding them).
    Values of `dtype` int8 come quantised so that their sum over the hosts stays int8.
    """

    name: Name
    kind: Literal["gloo", "oscar", "replay"] = "oscar"
    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    of: str = ""
    change: dict[str, Any] = Field(default_factory=dict)

    @property
    def type(self) -> str:
        """The text of the table's column "type"."""
        return {"gloo": self.dtype, "replay": "frames"}.get(self.kind, "float32")


class Case(Section):
    """Hosts on one switch, each behind a link of each of the rates in turn (Mb/s).

    pin: host r runs on core r modulo the cores there are. loss: fraction of packets that the switch drops, at
    random. delay_ms: from host to host, on top of what the rate takes. methods: names; empty for all.
    """

    hosts: int = Field(ge=2, le=64)
    mbps: tuple[Rate, ...] = Field(strict=False, min_length=1)
    pin: bool = False
    loss: float = Field(default=0.0, ge=0, le=0.1)
    delay_ms: float = Field(default=0.0, ge=0, le=100)
    methods: tuple[str, ...] = Field(default=(), strict=False)


class Settings(Section):
    """What is measured.

    steps: recorded iterations that lie side by side in one vector. Repetition i reduces iterations i to
    i + steps - 1, so that each place of the vector sees consecutive iterations. warmup: repetitions before
    those that count. tolerance: of the calibrated goodput.
    """

    steps: int = Field(default=8, ge=1)
    warmup: int = Field(default=3, ge=0)
    repetitions: int = Field(default=12, ge=1)
    congestion: str = "reno"
    tolerance: float = Field(default=0.005, gt=0, lt=1)
    trace: str | None = None
    cases: tuple[Case, ...] = Field(strict=False, min_length=1)
    methods: tuple[MethodSpec, ...] = Field(strict=False, min_length=1)

    @model_validator(mode="after")
    def _names(self) -> Settings:
        names = [method.name for method in self.methods]
        if len(set(names)) != len(names):
            raise ValueError(f"every method needs a name of its own, got {', '.join(names)}")
        kinds = {method.name: method.kind for method in self.methods}
        for method in self.methods:
            if method.kind == "replay" and kinds.get(method.of) != "oscar":
                raise ValueError(f"{method.name}: `of` must name a method of kind oscar, got {method.of!r}")
        for case in self.cases:
            if case.loss and case.delay_ms:
                raise ValueError("loss and delay_ms are separate cases; give each one of its own")
            for name in case.methods:
                if name not in kinds:
                    hint = did_you_mean(name, names)
                    raise ValueError(f"unknown method {name!r}; {hint}there are {', '.join(names)}")
        return self

    @property
    def iterations(self) -> int:
        """Iterations that the trace must have."""
        return self.warmup + self.repetitions + self.steps - 1

    def chosen(self, case: Case) -> list[MethodSpec]:
        """Return the methods that `case` measures, in the order of the configuration."""
        return [method for method in self.methods if not case.methods or method.name in case.methods]


def read_settings(config: Config) -> Settings:
    """Return the section `lab` of `config`, checked with every method's own configuration; or ConfigError."""
    try:
        settings: Settings = Settings.__pydantic_validator__.validate_python(config.lab)
    except ValidationError as error:
        raise ConfigError("; ".join(_reasons(error))) from None
    sources = {method.of for method in settings.methods if method.kind == "replay"}
    for case in settings.cases:
        for method in settings.chosen(case):
            if method.kind == "oscar":
                chosen = method_config(config, method, case.hosts).method
                if method.name in sources and method_info(chosen).codec is None:
                    raise ConfigError(
                        f"lab: method {method.name!r}: a replay takes the frames of a codec, "
                        f"{chosen} is a scheme"
                    )
    return settings


def parse_settings(config: Config) -> Settings:
    """Return the section `lab` of `config` as `read_settings` does; ConfigError where it cannot run."""
    if not config.lab:
        raise ConfigError("the configuration has no section lab; configs/lab.yaml shows one")
    settings = read_settings(config)
    hosts = max(case.hosts for case in settings.cases)
    if hosts > config.nodes:
        raise ConfigError(
            f"lab: a case has {hosts} hosts, gradients are of {config.nodes} nodes; raise nodes"
        )
    return settings


def _reasons(error: ValidationError) -> list[str]:
    """Return what is wrong, as other sections say it."""
    errors = error.errors()
    places = [e["loc"] for e in errors]
    lines = []
    for e, place in zip(errors, places, strict=True):
        if e["type"] == "too_short" and any(p != place and p[: len(place)] == place for p in places):
            continue  # of a list whose entries are wrong
        lines.append(explain(e, Settings, ["lab"]))
    return lines


def method_config(config: Config, method: MethodSpec, hosts: int) -> Config:
    """Return the whole configuration of an oscar method; raises ConfigError that names the method."""
    base = config.model_dump()
    changes: dict[str, Any] = {"nodes": hosts, "lab": {}}
    for key, value in method.change.items():
        merges = key in SECTIONS and isinstance(value, dict)
        changes[key] = {**base[key], **value} if merges else value
    try:
        return config.variant(**changes)
    except ConfigError as error:
        raise ConfigError(f"lab: method {method.name!r}: {error}") from None
