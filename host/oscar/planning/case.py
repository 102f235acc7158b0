"""What `predict` is asked about: bits, link and schedule as assumed, or as a method's cost says."""

from __future__ import annotations

from dataclasses import dataclass

from oscar.coding.costs import Cost
from oscar.coding.registry import ASC
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.config import Config, LinkSection
from oscar.errors import ConfigError
from oscar.planning.costs import MOST_NODES, MethodCost, method_cost
from oscar.planning.predict import NOTHING
from oscar.reducers.method import make_codec_of
from oscar.reducers.scheduling import schedule_of, topology_of
from oscar.schemes.registry import method_info
from oscar.timeline.link import LinkModel
from oscar.timeline.nic import core
from oscar.timeline.topology import Topology

DENSE_BITS = 6.0  # per value, of a dense transformer


@dataclass(frozen=True)
class PredictionCase:
    """Arguments of `predict`. source, clock: where the bits and the codec's times come from, in words."""

    link: LinkModel
    schedule: Schedule
    bits: float
    source: str
    clock: str
    around: Cost = NOTHING
    cost: MethodCost | None = None
    coded: bool = True
    topology: Topology | None = None


def assumed(config: Config, values: int, nodes: int, bits: float | None) -> PredictionCase:
    """Return the case of no method in particular; bits: per value, None for those of a dense transformer."""
    chosen, link = DENSE_BITS if bits is None else bits, config.link
    schedule = schedule_of(config, make_codec_of(config), nodes, values, chosen)
    check_one_sum(config, schedule)
    return PredictionCase(
        link.model(), schedule, chosen, "", link.clock_text(), topology=topology_of(config, nodes)
    )


def check_one_sum(config: Config, schedule: Schedule) -> None:
    """Raise ConfigError where the clock is the RTL's and the schedule keeps two sums of a value."""
    if config.link.codec == "rtl" and schedule.apart:
        raise ConfigError(
            f"link.codec is rtl, and {schedule.name} keeps two sums of a value apart, where a NIC's memory "
            "holds one: take direct or ring"
        )


def estimated(
    config: Config, values: int, nodes: int, bits: float | None, *, ranks_per_core: float = 1.0
) -> PredictionCase:
    """Return the case of the method of `config` on `nodes`; bits: None for those of its estimate.

    With the host's clock the codec's rate and latency are the estimate's, too, and what a worker computes
    before and after the AllReduce counts: quantising, steps and means. ranks_per_core: this many ranks share
    a core, and each takes as many times as long.

    Raises ConfigError where the clock is the RTL's and the codec is not ASC.
    """
    topology = topology_of(config, nodes)
    config = config.variant(nodes=min(max(2, nodes), MOST_NODES))
    name, section = config.method, config.link
    codec, host = method_info(name).codec, section.codec == "host"
    if section.codec == "rtl" and name not in ASC:
        raise ConfigError(f"link.codec is rtl, which codes ASC only, not {name}: take host or ideal")
    made, cost = make_codec_of(config), method_cost(config).on_shared_core(ranks_per_core)
    coded = made.coded and cost.frame is not None
    per_value = cost.bits_per_value if bits is None else bits
    if host and cost.frame is not None:
        section = LinkSection.as_kept(section.model_dump(), core(f"{name} on a core", cost.frame))
        config = config.model_copy(update={"link": section})
    schedule = schedule_of(config, made, nodes, values, per_value) if codec or coded else Ring(nodes)
    check_one_sum(config, schedule)
    clock = section.clock_text() if coded else f"codec: {section.codec} ({name} has no coded frames)"
    if host:
        took = cost.scheme.seconds(values) * 1e3
        clock += f", estimated on this machine; {took:.3g} ms of computing before and after the AllReduce"
    return PredictionCase(
        section.model(),
        schedule,
        per_value,
        f" as {'given' if bits is not None else f'estimated on {config.nodes} nodes'} for {name}",
        clock,
        cost.scheme if host else NOTHING,
        cost,
        coded,
        topology,
    )
