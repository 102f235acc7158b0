"""YAML configuration, validated: an unknown key is refused with the nearest valid one named."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from oscar import yaml_core
from oscar.coding.asc.params import AscParams, ContextMode, MapMode, TableMode
from oscar.errors import ConfigError, one_line
from oscar.numerics.plans import PLANS
from oscar.numerics.quantiser import MAX_BITS, MIN_BITS, QuantiserParams, Rounding, Scale, default_bits
from oscar.shipped import find
from oscar.timeline.link import LinkModel
from oscar.timeline.nic import NicFile, host_nic, load_nic

if TYPE_CHECKING:
    from oscar.coding.codec import Codec

LEAST_RATE, MOST = 1e-6, 1e9  # of the time model: beyond them times are no longer finite or of any use
BURST = 4  # consecutive iterations with the ring: the link tables catch up, the last one is measured


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected characters that can be printed, all in one line")
    return text


Name = Annotated[str, Field(min_length=1), AfterValidator(_printable)]  # of a row in tables and figures


class WorkloadSection(_Section):
    """Where gradients come from: a workload by name with its options, or a recorded trace."""

    name: str = "numpy-lm"
    options: dict[str, Any] = Field(default_factory=dict)
    trace: str | None = None


class QuantiserSection(_Section):
    """See oscar.numerics.quantiser.QuantiserParams."""

    scale: Scale = "sigma"
    coarseness: float = 0.125
    bits: int | Literal["auto"] = "auto"
    rounding: Rounding = "nearest"
    error_feedback: bool = False

    @field_validator("bits", mode="before")
    @classmethod
    def _bits(cls, bits: Any) -> Any:
        if bits != "auto" and not (type(bits) is int and MIN_BITS <= bits <= MAX_BITS):
            raise ValueError(f"expected auto or a whole number from {MIN_BITS} to {MAX_BITS}")
        return bits

    @model_validator(mode="after")
    def _valid(self) -> QuantiserSection:
        self.params(nodes=1, seed=0)
        return self

    def params(self, *, nodes: int, seed: int) -> QuantiserParams:
        """Return the quantiser's parameters for sums over `nodes`."""
        bits = default_bits(nodes) if self.bits == "auto" else self.bits
        return QuantiserParams(**{**self.model_dump(), "bits": bits}, seed=seed)


class AscSection(_Section):
    """See oscar.coding.asc.AscParams."""

    block_log2: int = 16
    interval_log2: int = 12
    context: ContextMode = "both"
    tables: TableMode = "step"
    map: MapMode = "learned"

    @model_validator(mode="after")
    def _valid(self) -> AscSection:
        AscParams(**self.model_dump())
        return self


class PlanSection(_Section):
    """Chunk plan and its block size in values."""

    name: str = "interleave"
    granule: int = Field(default=256, ge=1, le=1 << 20)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return _one_of("plan", name, PLANS)


class RingSection(_Section):
    """Direction of the all-gather and how many sub-frames a chunk is cut into."""

    gather: Literal["forward", "boomerang", "duplex"] = "boomerang"
    subframes: int = Field(default=1, ge=1, le=64)


class LinkSection(_Section):
    """Link and codec of the time model.

    codec: whose clock it has. ideal: it keeps up with the line and is `codec_latency_us` deep; rtl: what
    `make rtl` measured on a NIC (nic_file; null: the one that comes with the package); host: the compiled
    coder on a core of this machine. codec_gvalues, codec_latency_us, encode_latency_us: assumed in place of
    the ideal ones.
    """

    gbps: float = Field(default=100.0, ge=LEAST_RATE, le=MOST)
    latency_us: float = Field(default=2.0, ge=0, le=MOST)
    codec: Literal["ideal", "rtl", "host"] = "ideal"
    nic_file: str | None = None
    codec_gvalues: float | None = Field(default=None, ge=LEAST_RATE, le=MOST)
    codec_latency_us: float = Field(default=0.5, ge=0, le=MOST)
    encode_latency_us: float | None = Field(default=None, ge=0, le=MOST)
    _kept: NicFile | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, data: Any) -> Any:
        if isinstance(data, dict) and "nic_mhz" in data:
            raise ValueError(
                "nic_mhz has gone: a NIC's clock rate is in its file; copy the one that `make rtl` writes, "
                "change mhz there, and name it as nic_file"
            )
        return data

    @model_validator(mode="after")
    def _one_clock(self) -> LinkSection:
        if self.codec != "ideal" and self.assumed:
            raise ValueError(
                f"codec: {self.codec} takes rate and latency as measured: leave {', '.join(self.assumed)} "
                "out, or set codec: ideal"
            )
        if self.codec == "rtl" or self.nic_file is not None:
            load_nic(self.nic_file)
        return self

    @property
    def assumed(self) -> list[str]:
        """Names of the keys that replace what an ideal codec has."""
        keys = ("codec_gvalues", "codec_latency_us", "encode_latency_us")
        return [key for key in keys if getattr(self, key) != type(self).model_fields[key].default]

    @property
    def clock(self) -> str:
        """The name of the clock: ideal, rtl, host, or assumed where a key replaces the ideal one."""
        return "assumed" if self.assumed else self.codec

    def clock_text(self) -> str:
        """Return the clock as every table, figure and report of modelled times names it."""
        if self.codec != "ideal":
            return f"codec: {self.codec} ({self.nic().text()})"
        rate = "line rate" if self.codec_gvalues is None else f"{self.codec_gvalues:g} G values/s"
        deep = f"{self.codec_latency_us:g} us deep"
        if self.encode_latency_us is not None:
            deep += f", {self.encode_latency_us:g} us encoding"
        return f"codec: {self.clock} ({rate}, {deep})"

    def nic(self) -> NicFile:
        """Return the NIC, or the host's coder, whose clock it is; with an ideal one the NIC it is held to."""
        if self._kept is not None:
            return self._kept
        return host_nic() if self.codec == "host" else load_nic(self.nic_file)

    @classmethod
    def as_kept(cls, section: dict[str, Any], nic: NicFile) -> LinkSection:
        """Return the link that results keep, with the clock of `nic`, whatever files say by now."""
        link = cls.model_validate(section | {"nic_file": None})
        link._kept = nic
        return link

    def rtl(self) -> LinkSection:
        """Return the same link with the clock of the RTL."""
        return LinkSection(gbps=self.gbps, latency_us=self.latency_us, codec="rtl", nic_file=self.nic_file)

    def model(self) -> LinkModel:
        """Return the link for the time model."""
        return LinkModel.of(
            gbps=self.gbps,
            latency_us=self.latency_us,
            codec_gvalues=self.codec_gvalues,
            codec_latency_us=self.codec_latency_us,
            encode_latency_us=self.encode_latency_us,
            engines=None if self.codec == "ideal" else self.nic().model(),
        )


class TransportSection(_Section):
    """Ranks in processes of their own: how long one may wait, what a death means; see transports.keyed."""

    timeout_s: float = Field(default=60.0, gt=0, le=1e6)
    survive: bool = False
    security: Literal["none", "aes-gcm"] = "none"
    key: str | None = None

    @model_validator(mode="after")
    def _valid(self) -> TransportSection:
        if self.key is not None and self.security == "none":
            raise ValueError(
                "a key is named, but transport.security is none and frames would be plain text: "
                "set transport.security to aes-gcm, or leave the key out"
            )
        return self


class TrainSection(_Section):
    """How `oscar train` goes through a run; none of it changes a weight.

    compute_ms: of one node's forward and backward pass in the time model; null: as measured here.
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


class Method(_Section):
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
        return _one_of("codec", name, _codecs())

    @field_validator("plans")
    @classmethod
    def _plans(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError(f"a method needs at least one plan of {', '.join(PLANS)}")
        return tuple(_one_of("plan", name, PLANS) for name in names)


class Contender(_Section):
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
                _one_of("section of a point", key, POINT_SECTIONS)
        return points


POINT_SECTIONS = ("scheme", "quantiser", "asc")


class CompareSection(_Section):
    """What `oscar compare` trains; metric: of the held-out data, accuracy (more is better) or loss (less)."""

    seeds: tuple[int, ...] = Field(default=(0, 1, 2), strict=False, min_length=1)
    metric: Literal["accuracy", "loss"] = "accuracy"
    contenders: tuple[Contender, ...] = Field(default=(), strict=False)


class Config(_Section):
    """A whole experiment. Sections are explained in configs/default.yaml, which sets every default."""

    nodes: int = Field(default=8, ge=1, le=256)
    iterations: int = Field(default=22, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    workload: WorkloadSection = WorkloadSection()
    quantiser: QuantiserSection = QuantiserSection()
    codec: str = "asc"
    scheme: dict[str, Any] = Field(default_factory=dict)
    asc: AscSection = AscSection()
    plan: PlanSection = PlanSection()
    ring: RingSection = RingSection()
    nic: str = "compiled"
    link: LinkSection = LinkSection()
    transport: TransportSection = TransportSection()
    train: TrainSection = TrainSection()
    methods: tuple[Method, ...] = Field(default=(), strict=False)
    compare: CompareSection = CompareSection()
    lab: dict[str, Any] = Field(default_factory=dict)  # see oscar.lab.settings
    output: str = "build/allreduce"

    @field_validator("codec")
    @classmethod
    def _codec(cls, name: str) -> str:
        return _one_of("codec", name, _codecs())

    @field_validator("nic")
    @classmethod
    def _nic(cls, name: str) -> str:
        known = ["compiled", "reference", *(e.name for e in entry_points(group="oscar.nic"))]
        if name not in known:
            raise ValueError(f"nic must be one of {', '.join(known)}; RTL-backed ones come with oscar_sim")
        return name

    @field_validator("methods")
    @classmethod
    def _distinct(cls, methods: tuple[Method, ...]) -> tuple[Method, ...]:
        names = [method.name for method in methods]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"every method needs a name of its own, {name!r} is there more than once")
        return methods

    @model_validator(mode="after")
    def _scheme_options(self) -> Config:
        from oscar.schemes.registry import SCHEMES, parse, scheme_class

        if self.codec in SCHEMES:
            parse(self.codec, scheme_class(self.codec), self.scheme)
        elif self.scheme:
            raise ValueError(f"codec {self.codec} is no scheme: the section scheme must be empty")
        return self

    @model_validator(mode="after")
    def _widths(self) -> Config:
        from oscar.coding.registry import CODECS, make_codec

        if self.codec in CODECS:
            self.check_width(make_codec(self.codec), self.nodes)
        return self

    def check_width(self, codec: Codec, nodes: int) -> None:
        """Raise ConfigError where a frame of sums between `nodes` may be wider than `codec` carries."""
        terms = nodes if self.ring.gather == "forward" else max(1, nodes - 1)
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
        own = Method(name=self.codec, codec=self.codec, gather=self.ring.gather, plans=(self.plan.name,))
        for method in self.methods or (Method(name="fp32", codec="fp32"), own):
            for plan in method.plans:
                changes = {
                    "codec": method.codec,
                    "ring": {**self.ring.model_dump(), "gather": method.gather},
                    "plan": {**self.plan.model_dump(), "name": plan},
                    "asc": {**self.asc.model_dump(), **method.asc},
                    "scheme": method.scheme or (self.scheme if method.codec == self.codec else {}),
                    "nic": self.nic if method.codec == "asc" else "compiled",
                    "methods": (),
                }
                yield method, plan, _validated({**self.model_dump(), **changes}, f"method {method.name!r}")

    def contenders(self) -> Iterator[tuple[Contender, dict[str, dict[str, Any]], Config]]:
        """Yield (contender, point, its whole configuration) for everything that `oscar compare` trains."""
        for contender in self.compare.contenders:
            for point in contender.points:
                own = {key: {**getattr(contender, key), **point.get(key, {})} for key in POINT_SECTIONS}
                changes = {
                    "codec": contender.codec,
                    "ring": {**self.ring.model_dump(), "gather": contender.gather},
                    "plan": {**self.plan.model_dump(), "name": contender.plan},
                    "scheme": own["scheme"],
                    "quantiser": {**self.quantiser.model_dump(), **own["quantiser"]},
                    "asc": {**self.asc.model_dump(), **own["asc"]},
                    "methods": (),
                    "compare": CompareSection().model_dump(),
                }
                where = f"contender {contender.name!r}, point {point}"
                yield contender, point, _validated({**self.model_dump(), **changes}, where)

    def quantiser_params(self, nodes: int) -> QuantiserParams:
        """Return the quantiser's parameters for sums over `nodes`, with this experiment's seed."""
        return self.quantiser.params(nodes=nodes, seed=self.seed)

    def asc_params(self) -> AscParams:
        """Return the coder's parameters."""
        return AscParams(**self.asc.model_dump())

    def variant(self, **changes: Any) -> Config:
        """Return a copy with some top-level fields replaced, validated again; raises ConfigError."""
        return _validated({**self.model_dump(), **changes}, "configuration")


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file and return the validated configuration.

    path: of a file, or the name of a shipped configuration, such as `default` (oscar.shipped).
    overrides: `key=value` texts with dotted keys, values in YAML (`--set link.gbps=25`).
    Raises ConfigError that names file, key, what was expected and the nearest valid key.
    """
    source = find(path)
    try:
        data = yaml_core.read(source)
        if not isinstance(data, dict):
            raise ConfigError(f"expected a mapping of keys at the top, got {type(data).__name__}")
        for text in overrides:
            _override(data, text)
        config = _validated(data)
        list(config.compared())
        list(config.contenders())
        if config.lab:
            from oscar.lab.settings import read_settings

            read_settings(config)
    except ConfigError as error:
        raise ConfigError(one_line(f"{source}: {error}")) from None
    return config


def _validated(data: dict[str, Any], source: str = "") -> Config:
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        text = "; ".join(_explain(e) for e in error.errors())
        raise ConfigError(f"{source}: {text}" if source else text) from None


def _one_of(what: str, name: str, known: Iterable[str]) -> str:
    """Return `name`; raises ValueError that lists what is known and the nearest."""
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"{hint}{what} must be one of {', '.join(names)}")
    return name


def _codecs() -> Iterable[str]:
    from oscar.coding.registry import CODECS
    from oscar.schemes.registry import SCHEMES

    return [*CODECS, *SCHEMES]


def _override(data: dict[Any, Any], text: str) -> None:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"--set {text}: expected key=value, for example --set link.gbps=25")
    try:
        parsed = yaml_core.parse(value)
    except ValueError as error:
        raise ConfigError(f"--set {text}: the value is not YAML: {error}") from None
    *path, last = key.strip().split(".")
    for part in path:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {text}: {part} is a value, not a section")
        data = inner
    data[last] = parsed


def _explain(error: Any) -> str:
    place = [p for p in error["loc"] if isinstance(p, str)]
    where = ".".join(str(p) for p in error["loc"]) or "configuration"
    if error["type"] == "extra_forbidden":
        valid = list(_fields(place[:-1]))
        near = difflib.get_close_matches(place[-1], valid, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"unknown key {where!r}; {hint}valid keys here: {', '.join(valid)}"
    given = "" if isinstance(error["input"], dict) else f", got {reprlib.repr(error['input'])}"
    return f"{where}: {error['msg'].removeprefix('Value error, ')}{given}"


def _fields(path: Sequence[str]) -> Sequence[str]:
    """Names of the fields of the section at `path`."""
    model: Any = Config
    for part in path:
        field = model.model_fields.get(part)
        if field is None:
            return ()
        inner = getattr(field.annotation, "__args__", (field.annotation,))[0]
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else model
    return tuple(model.model_fields)
