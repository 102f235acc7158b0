"""A whole experiment: all sections, the rules between them, and how one is read.

YAML is read first, then the overrides of the command line, then every rule is checked. Configurations
derive from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from oscar import yaml_core
from oscar.coding.asc.params import AscParams
from oscar.coding.codec import Codec
from oscar.collective.schedules import SCHEDULES
from oscar.config.base import validated
from oscar.config.link import LinkSection, TopologySection
from oscar.config.sections import (
    POINT_SECTIONS,
    AscSection,
    Choice,
    CompareSection,
    Contender,
    Method,
    PlanSection,
    QuantiserSection,
    ScheduleSection,
    TrainSection,
    TransportSection,
    WorkloadSection,
    refuse_old,
)
from oscar.cores import MOST_THREADS
from oscar.errors import ConfigError, one_line
from oscar.numerics.quantiser import QuantiserParams
from oscar.schemes.registry import method_info
from oscar.shipped import find

SOFTWARE = ("compiled", "reference")  # who codes ASC as the section asc says; others are simulated NICs


class Config(Choice):
    """The configuration of a whole experiment. configs/default.yaml explains every section and default.

    >>> Config(nodes=4, method="asc").variant(seed=1).seed
    1
    """

    nodes: int = Field(default=8, ge=1, le=256)
    iterations: int = Field(default=22, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    workload: WorkloadSection = WorkloadSection()
    quantiser: QuantiserSection = QuantiserSection()
    method: str = "asc"
    scheme: dict[str, Any] = Field(default_factory=dict)
    asc: AscSection = AscSection()
    plan: PlanSection = PlanSection()
    schedule: ScheduleSection = ScheduleSection()
    topology: TopologySection = TopologySection()
    nic: str | tuple[str | None, ...] = "compiled"
    threads: int | Literal["auto"] = "auto"
    link: LinkSection = LinkSection()
    transport: TransportSection = TransportSection()
    train: TrainSection = TrainSection()
    policy: str | None = None
    methods: tuple[Method, ...] = Field(default=(), strict=False)
    compare: CompareSection = CompareSection()
    lab: dict[str, Any] = Field(default_factory=dict)  # read by the laboratory alone (oscar_lab)
    output: str = "build/allreduce"

    @field_validator("nic", mode="before")
    @classmethod
    def _nic(cls, nic: Any) -> Any:
        known = [*SOFTWARE, *(e.name for e in entry_points(group="oscar.nic"))]
        listed = isinstance(nic, (list, tuple))
        if not nic or not all(
            name in known or (listed and name is None) for name in (nic if listed else [nic])
        ):
            raise ValueError(
                f"nic must be one of {', '.join(known)}, or a list of one for each rank, null for software; "
                "RTL-backed ones come with oscar_sim"
            )
        return tuple(nic) if listed else nic

    @field_validator("threads", mode="before")
    @classmethod
    def _threads(cls, threads: Any) -> Any:
        if threads != "auto" and not (type(threads) is int and 1 <= threads <= MOST_THREADS):
            raise ValueError(f"expected auto or a whole number from 1 to {MOST_THREADS}")
        return threads

    @field_validator("methods")
    @classmethod
    def _distinct(cls, methods: tuple[Method, ...]) -> tuple[Method, ...]:
        names = [method.name for method in methods]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"every method needs a name of its own, {name!r} is there more than once")
        return methods

    @model_validator(mode="before")
    @classmethod
    def _ring(cls, data: Any) -> Any:
        refuse_old(data, "ring")
        return data

    @model_validator(mode="after")
    def _sections_fit(self) -> Config:
        method = method_info(self.method)
        method.check_options(self.scheme)
        for name in (self.nic,) if isinstance(self.nic, str) else self.nic:
            if self.method == "asc" and name not in (None, *SOFTWARE) and self.asc != AscSection():
                raise ValueError(f"nic {name!r} has parameters of its own: leave the section asc out")
        fixed = dict(self._for_one_count()) if self.transport.survive else {}
        if fixed:
            raise ValueError(
                f"transport.survive: true cannot go with {', '.join(fixed)}: after a death there are fewer "
                f"ranks, which these may not fit; set {', '.join(fixed.values())}, or "
                "transport.survive to false"
            )
        wrong = dict(self._not_redundant()) if self.schedule.name == "redundant" else {}
        if wrong:
            raise ValueError(
                f"schedule redundant cannot go with {', '.join(wrong)}: every rank must make the same "
                f"integers of a task; set {', '.join(wrong.values())}, or take another schedule"
            )
        if method.codec is not None:
            self.check_width(method.codec, self.nodes)
        return self

    def _not_redundant(self) -> Iterator[tuple[str, str]]:
        """Yield (what redundant tasks cannot have, what to set instead)."""
        if method_info(self.method).codec is None:
            yield f"the scheme {self.method}", "method to a lossless codec of integers, such as asc"
        if self.quantiser.error_feedback:
            yield "error feedback, whose residual belongs to one rank", "quantiser.error_feedback to false"
        if self.quantiser.controller != "fixed":
            yield f"the controller {self.quantiser.controller}", "quantiser.controller to fixed"
        if self.transport.survive:
            yield "transport.survive", "transport.survive to false: deaths are survived anyway"
        if self.nic not in SOFTWARE:
            yield f"nic {self.nic}", "nic to compiled"

    def _for_one_count(self) -> Iterator[tuple[str, str]]:
        """Yield (what fits some numbers of ranks alone, what to set instead)."""
        schedule, network = self.schedule, self.topology
        if schedule.name == "file":
            yield "a schedule file", "schedule.name to direct or ring"
        if schedule.group not in (None, 1):
            yield f"schedule.group {schedule.group}", "schedule.group to null"
        if schedule.root:
            yield f"schedule.root {schedule.root}", "schedule.root to 0"
        if isinstance(self.plan.shares, tuple):
            yield "a list in plan.shares", "plan.shares to null or auto"
        if not isinstance(self.nic, str):
            yield "a list in nic", "nic to one name"
        if network.kind == "links":
            yield "topology.kind links", "topology.kind to switch or ring"
        if network.kind == "groups" and network.size != 1:
            yield f"groups of topology.size {network.size}", "topology.kind to switch"
        if network.nodes is not None:
            yield f"topology.nodes {network.nodes}", "topology.nodes to null"
        if isinstance(network.gbps, list):
            yield "a list in topology.gbps", "topology.gbps to one number"

    def check_width(self, codec: Codec, nodes: int) -> None:
        """Raise ConfigError where a frame of sums between `nodes` may be wider than `codec` carries."""
        kind = SCHEDULES.get(self.schedule.name)
        terms = max(1, nodes - 1) if kind is not None and kind.apart else nodes
        params = self.quantiser_params(nodes)
        width = params.sum_width(terms)
        if codec.domain == "int" and codec.lossless and width > codec.max_bits:
            raise ConfigError(
                f"{codec.name} carries up to {codec.max_bits} bits, sums of {terms} workers' {params.bits} "
                f"bits (quantiser.bits) have {width}: set quantiser.bits to auto or "
                f"{codec.max_bits - width + params.bits}, or take another codec"
            )

    def compared(self) -> Iterator[tuple[Method, str, Config]]:
        """Yield (method, plan, its whole configuration) for every row of the comparison.

        Without methods the configuration itself is compared with fp32.
        """
        configured = Method(name=self.method, method=self.method, plans=(self.plan.name,))
        raw = Method.model_validate({"name": "fp32", "method": "fp32", "schedule": "ring"})
        for method in self.methods or (raw, configured):
            if method.schedule is None:
                schedule = self.schedule.model_dump()
            else:  # its own schedule, with the sub-frames of the configuration unless it sets them
                row = method.schedule.model_dump(exclude_unset=True)
                schedule = {"subframes": self.schedule.subframes, **row}
            for plan in method.plans:
                changes = {
                    "method": method.method,
                    "schedule": schedule,
                    "plan": {**self.plan.model_dump(), "name": plan},
                    "asc": {**self.asc.model_dump(), **method.asc},
                    "scheme": method.scheme or (self.scheme if method.method == self.method else {}),
                    "nic": self.nic if method.method == "asc" else "compiled",
                    "methods": (),
                }
                yield method, plan, self._changed(changes, f"method {method.name!r}")

    def contenders(self) -> Iterator[tuple[Contender, dict[str, dict[str, Any]], Config]]:
        """Yield (contender, point, its whole configuration) for everything that `oscar compare` trains."""
        for contender in self.compare.contenders:
            for point in contender.points:
                sections = {key: {**getattr(contender, key), **point.get(key, {})} for key in POINT_SECTIONS}
                changes = {
                    "method": contender.method,
                    "schedule": self.schedule.named(contender.schedule).model_dump(),
                    "plan": {**self.plan.model_dump(), "name": contender.plan},
                    "scheme": sections["scheme"],
                    "quantiser": {**self.quantiser.model_dump(), **sections["quantiser"]},
                    "asc": {**self.asc.model_dump(), **sections["asc"]},
                    "methods": (),
                    "compare": CompareSection().model_dump(),
                }
                where = f"contender {contender.name!r}, point {point}"
                yield contender, point, self._changed(changes, where)

    def quantiser_params(self, nodes: int) -> QuantiserParams:
        """Return the quantiser's parameters for sums over `nodes`, with this experiment's seed."""
        return self.quantiser.params(nodes=nodes, seed=self.seed)

    def asc_params(self) -> AscParams:
        """Return the coder's parameters."""
        return AscParams(**self.asc.model_dump())

    def variant(self, **changes: Any) -> Config:
        """Return a copy with some top-level fields replaced, validated again; raises ConfigError.

        What was left to its default stays so, in `model_fields_set` too.
        """
        return self._changed(changes, "")

    def _changed(self, changes: dict[str, Any], where: str) -> Config:
        return validated(Config, {**self.model_dump(exclude_unset=True), **changes}, where)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file and return the validated configuration.

    Args:
        path: Path of a file, or name of a shipped configuration such as `default` (oscar.shipped).
        overrides: `key=value` texts with dotted keys and YAML values, as for the option --set.

    Raises:
        ConfigError: Names the file, the key, the expected value and the nearest valid key.

    >>> load_config("default", ["link.gbps=25"]).link.gbps
    25.0
    """
    source = find(path)
    try:
        return _read(source, overrides)
    except ConfigError as error:
        where = str(source)
        if overrides and _is_valid(source):
            where = " ".join(f"--set {text}" for text in overrides)
        raise ConfigError(one_line(f"{where}: {error}")) from None


def _read(source: Path, overrides: Sequence[str]) -> Config:
    """Return the configuration in a file with `overrides`, checked whole; raises ConfigError."""
    data = yaml_core.read(source)
    if not isinstance(data, dict):
        raise ConfigError(f"expected a mapping of keys at the top, got {type(data).__name__}")
    for text in overrides:
        _override(data, text)
    config = validated(Config, data)
    list(config.compared())
    list(config.contenders())
    return config


def _is_valid(source: Path) -> bool:
    """Whether a file is right by itself, so that only what overrides it can be wrong."""
    try:
        _read(source, ())
    except ConfigError:
        return False
    return True


def _override(data: dict[Any, Any], text: str) -> None:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError("expected key=value, for example --set link.gbps=25")
    try:
        parsed = yaml_core.parse(value)
    except ValueError as error:
        raise ConfigError(f"the value is not YAML: {error}") from None
    *path, last = key.strip().split(".")
    for part in path:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{part} is a value, not a section")
        data = inner
    data[last] = parsed
