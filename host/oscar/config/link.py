"""The sections `link` and `topology`: the link of the time model with the codec in front of it, and the links
that there are between ranks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer, model_validator

from oscar import yaml_core
from oscar.config.base import LEAST_RATE, MOST, Section, validated
from oscar.errors import ConfigError, one_line
from oscar.timeline.link import LinkModel, Pipeline
from oscar.timeline.nic import NicFile, host_nic, load_nic
from oscar.timeline.topology import Pair, Topology, grouped, switch, wires


class LinkSection(Section):
    """Link and codec of the time model.

    codec: whose clock the model uses. ideal: the codec keeps up with the line and is `codec_latency_us` deep.
        rtl: the NIC's RTL. host: the compiled coder on a core of this machine.
    nic_file: the NIC of codec rtl; null: the part that comes with the package for this rate.
    driver: with codec rtl, the work of a board's driver counts, as the NIC's file has it.
    codec_gvalues, codec_latency_us, encode_latency_us: replace the figures of the ideal codec.
    """

    gbps: float = Field(default=100.0, ge=LEAST_RATE, le=MOST)
    latency_us: float = Field(default=2.0, ge=0, le=MOST)
    codec: Literal["ideal", "rtl", "host"] = "ideal"
    nic_file: str | None = None
    driver: bool = True
    codec_gvalues: float | None = Field(default=None, ge=LEAST_RATE, le=MOST)
    codec_latency_us: float = Field(default=0.5, ge=0, le=MOST)
    encode_latency_us: float | None = Field(default=None, ge=0, le=MOST)
    _saved_nic: NicFile | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, data: Any) -> Any:
        if isinstance(data, dict) and "nic_mhz" in data:
            raise ValueError(
                "nic_mhz was removed: a NIC's clock rate is in its file; copy that of the package, "
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
            load_nic(self.nic_file, self.gbps)
        return self

    @property
    def assumed(self) -> list[str]:
        """Names of the keys that replace what an ideal codec has."""
        keys = ("codec_gvalues", "codec_latency_us", "encode_latency_us")
        return [key for key in keys if getattr(self, key) != type(self).model_fields[key].default]

    @property
    def driven(self) -> bool:
        """Whether what a board's driver does takes time."""
        return self.driver and self.codec == "rtl"

    @property
    def clock(self) -> str:
        """The name of the clock: ideal, rtl, host, or assumed where a key replaces the ideal one."""
        return "assumed" if self.assumed else self.codec

    def clock_text(self) -> str:
        """Return the clock as every table, figure and report of modelled times names it."""
        if self.codec != "ideal":
            return f"codec: {self.codec} ({self.nic().text(driven=self.driven)})"
        rate = "line rate" if self.codec_gvalues is None else f"{self.codec_gvalues:g} G values/s"
        deep = f"{self.codec_latency_us:g} us deep"
        if self.encode_latency_us is not None:
            deep += f", {self.encode_latency_us:g} us encoding"
        return f"codec: {self.clock} ({rate}, {deep})"

    def nic(self) -> NicFile:
        """Return the NIC, or the host's coder, whose clock is used; an ideal codec is compared with it."""
        if self._saved_nic is not None:
            return self._saved_nic
        return host_nic() if self.codec == "host" else load_nic(self.nic_file, self.gbps)

    @classmethod
    def as_kept(cls, section: dict[str, Any], nic: NicFile) -> LinkSection:
        """Return the link that results hold, with the clock of `nic`, whatever files say today."""
        link = cls.model_validate(section | {"nic_file": None})
        link._saved_nic = nic
        return link

    def rtl(self) -> LinkSection:
        """Return the same link with the clock of the RTL."""
        fields = self.model_dump(include={"gbps", "latency_us", "nic_file", "driver"})
        return LinkSection(codec="rtl", **fields)

    def model(self, *, block_log2: int = 0) -> LinkModel:
        """Return the link for the time model; block_log2: of frames that a NIC codes, 0: as its file says."""
        coder = None if self.codec == "ideal" else self.nic().model()
        if block_log2 and isinstance(coder, Pipeline):
            coder = replace(coder, block=1 << block_log2)
        return LinkModel.of(
            gbps=self.gbps,
            latency_us=self.latency_us,
            codec_gvalues=self.codec_gvalues,
            codec_latency_us=self.codec_latency_us,
            encode_latency_us=self.encode_latency_us,
            coder=coder,
            driver=self.nic().driver_model() if self.driven else None,
        )


Rate = float | list[float] | None
OPTIONS = {  # keys beside kind, nodes and message_us, by kind
    "switch": ("gbps", "latency_us"),
    "ring": ("gbps", "latency_us", "both"),
    "groups": ("size", "gbps", "latency_us", "nic_gbps", "nic_latency_us"),
    "links": ("links",),
}


class LinkEntry(Section):
    """One link: from a rank to a rank, and back with `both`; null takes `link.gbps` and `link.latency_us`."""

    source: int = Field(alias="from", ge=0, le=1023)
    target: int = Field(alias="to", ge=0, le=1023)
    gbps: float | None = Field(default=None, ge=LEAST_RATE, le=MOST)
    latency_us: float | None = Field(default=None, ge=0, le=MOST)
    both: bool = False

    @model_validator(mode="after")
    def _two_ranks(self) -> LinkEntry:
        if self.source == self.target:
            raise ValueError(f"expected a link between two ranks, got one from {self.source} to itself")
        return self

    @model_serializer(mode="wrap")
    def _as_read(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the keys that a file has, so that what is dumped can be read again."""
        named = {name: field.alias or name for name, field in type(self).model_fields.items()}
        return {named.get(name, name): value for name, value in inner(self).items()}


class TopologySection(Section):
    """The network between ranks; without it a switch whose ports are `link`'s.

    Null rates and latencies are those of `link`.

    kind: switch has a port for every rank, of `gbps` (a number, or one for each rank). ring has a link to the
        next rank, and with `both` one to the rank before. groups are of `size` ranks each, with a link of
        `gbps` for each pair inside, and a NIC of `nic_gbps` that a group shares. links are listed one by one.
    nodes: number of ranks, where no configuration says so; null: the configuration does.
    message_us: how long each message occupies its ports beside its bytes.
    """

    kind: Literal["switch", "ring", "groups", "links"] = "switch"
    nodes: int | None = Field(default=None, ge=1, le=1024)
    gbps: Rate = None
    latency_us: float | None = Field(default=None, ge=0, le=MOST)
    both: bool = True
    size: int | None = Field(default=None, ge=1, le=1024)
    nic_gbps: float | None = Field(default=None, ge=LEAST_RATE, le=MOST)
    nic_latency_us: float | None = Field(default=None, ge=0, le=MOST)
    links: list[LinkEntry] = Field(default_factory=list)
    message_us: float = Field(default=0.0, ge=0, le=MOST)

    @model_validator(mode="after")
    def _fits(self) -> TopologySection:
        known = OPTIONS[self.kind]
        for kind, options in OPTIONS.items():
            for name in options:
                if name not in known and getattr(self, name) != type(self).model_fields[name].get_default(
                    call_default_factory=True
                ):
                    raise ValueError(f"{name} is for the kind {kind}, not {self.kind}: leave it out")
        rates = self.gbps if isinstance(self.gbps, list) else [self.gbps or 1.0]
        if isinstance(self.gbps, list) and self.kind != "switch":
            raise ValueError(f"gbps: a list is for the kind switch, not {self.kind}: write one number")
        for rate in [self.gbps] if self.gbps == 0 else rates:
            if not (isinstance(rate, float | int) and LEAST_RATE <= rate <= MOST):
                raise ValueError(f"gbps: expected rates from {LEAST_RATE:g} to {MOST:g}, got {rate!r}")
        if self.kind == "groups" and self.size is None:
            raise ValueError("the kind groups needs the key size: how many ranks a group has")
        if self.kind == "links" and not self.links:
            raise ValueError("the kind links needs the key links: a list of {from, to, gbps, latency_us}")
        return self

    def model(self, nodes: int, link: LinkSection) -> Topology:
        """Return the topology between `nodes` ranks; raises ConfigError where it is not for so many."""
        if self.nodes not in (None, nodes):
            raise ConfigError(f"topology.nodes: expected {nodes}, the ranks that run, got {self.nodes}")
        made = {"switch": self._switch, "ring": self._ring, "groups": self._groups, "links": self._links}
        topology = made[self.kind](nodes, link)
        _check_connected(topology)
        return replace(topology, message_s=self.message_us * 1e-6) if self.message_us else topology

    def _one(self, link: LinkSection) -> tuple[float, float]:
        """Return Gb/s and seconds of latency where all links are alike."""
        assert not isinstance(self.gbps, list)
        latency = link.latency_us if self.latency_us is None else self.latency_us
        return self.gbps or link.gbps, latency * 1e-6

    def _switch(self, nodes: int, link: LinkSection) -> Topology:
        rates = self.gbps if isinstance(self.gbps, list) else [self.gbps or link.gbps] * nodes
        if len(rates) != nodes:
            raise ConfigError(f"topology.gbps: expected a number for each of {nodes} ranks, got {len(rates)}")
        latency = link.latency_us if self.latency_us is None else self.latency_us
        return switch(rates, latency * 1e-6)

    def _ring(self, nodes: int, link: LinkSection) -> Topology:
        ends = [(rank, (rank + 1) % nodes) for rank in range(nodes) if nodes > 1]
        pairs = [*ends, *((j, i) for i, j in ends if self.both)]
        return wires(nodes, dict.fromkeys(pairs, self._one(link)))

    def _groups(self, nodes: int, link: LinkSection) -> Topology:
        size = self.size or 1
        if nodes % size:
            raise ConfigError(f"topology.size: expected a divisor of {nodes} ranks, got {size}")
        late = link.latency_us if self.nic_latency_us is None else self.nic_latency_us
        between = self.nic_gbps or link.gbps, late * 1e-6
        return grouped(nodes // size, size, inside=self._one(link), between=between)

    def _links(self, nodes: int, link: LinkSection) -> Topology:
        ends: dict[Pair, tuple[float, float]] = {}
        for index, entry in enumerate(self.links):
            for rank in (entry.source, entry.target):
                if rank >= nodes:
                    raise ConfigError(f"topology.links.{index}: expected ranks 0 to {nodes - 1}, got {rank}")
            late = link.latency_us if entry.latency_us is None else entry.latency_us
            pairs = [(entry.source, entry.target), (entry.target, entry.source)][: 1 + entry.both]
            for pair in pairs:
                if pair in ends:
                    raise ConfigError(
                        f"topology.links.{index}: expected each link once, got a second from rank {pair[0]} "
                        f"to {pair[1]}"
                    )
                ends[pair] = entry.gbps or link.gbps, late * 1e-6
        return wires(nodes, ends)


def read_topology(path: str | Path, nodes: int | None = None) -> Topology:
    """Return the topology in a YAML file: the section `topology`, or its keys alone, with `nodes`.

    nodes: of a configuration, where there is one. Raises ConfigError that names file, key, what was
    expected and what came.
    """
    return read_section(path, nodes)[1]


def read_section(path: str | Path, nodes: int | None = None) -> tuple[TopologySection, Topology]:
    """Return the section and the topology of `read_topology`."""
    source = Path(path)
    data: Any = yaml_core.read(source)
    try:
        if not isinstance(data, dict):
            raise ConfigError(f"expected a mapping of keys at the top, got {type(data).__name__}")
        inner = data["topology"] if list(data) == ["topology"] else data
        section = validated(TopologySection, {} if inner is None else inner)
        count = nodes or section.nodes or _count(section)
        return section, section.model(count, LinkSection())
    except ConfigError as error:
        raise ConfigError(one_line(f"{source}: {error}")) from None


def _count(section: TopologySection) -> int:
    """Return the number of ranks of a topology that leaves `nodes` out."""
    if isinstance(section.gbps, list):
        return len(section.gbps)
    if section.links:
        return 1 + max(max(entry.source, entry.target) for entry in section.links)
    raise ConfigError("expected the key nodes: how many ranks there are")


def _check_connected(topology: Topology) -> None:
    """Raise ConfigError that names two ranks without a way from the first to the second."""
    reached, back = (_reached(topology.links, topology.nodes, turned) for turned in (False, True))
    for rank in range(topology.nodes):
        if rank not in reached or rank not in back:
            pair = (0, rank) if rank not in reached else (rank, 0)
            raise ConfigError(
                "topology: expected a way between all ranks, there is none from rank "
                f"{pair[0]} to {pair[1]}; add links"
            )


def _reached(links: Any, nodes: int, turned: bool) -> set[int]:
    """Return the ranks that rank 0 reaches, or that reach it."""
    if not isinstance(links, dict):
        return set(range(nodes))  # at a switch
    beside: dict[int, list[int]] = {rank: [] for rank in range(nodes)}
    for i, j in links:
        beside[j if turned else i].append(i if turned else j)
    reached, todo = {0}, [0]
    while todo:
        fresh = [rank for rank in beside[todo.pop()] if rank not in reached]
        reached.update(fresh)
        todo += fresh
    return reached
