"""Finds the schedule and the shares of a configuration: by name, by the network, or by the time model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from oscar.coding.codec import Codec
from oscar.collective.actions import SENDS
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import KINDS, SCHEDULES, make_schedule
from oscar.config import BY_NETWORK, BY_TIME, Config, TopologySection
from oscar.errors import ConfigError
from oscar.numerics.plans import make_plan
from oscar.schemes.registry import method_info
from oscar.timeline.choose import auto_shares, by_kind, choose, settled
from oscar.timeline.equal import Bits, assumed_frames
from oscar.timeline.replay import time_of
from oscar.timeline.topology import Topology

LEAST_BITS = 0.25  # bits of a value whose step is coarser than its distribution
MOST_REPLAYED = 32  # ranks; nine replays of a larger schedule would take seconds


def schedule_of(config: Config, codec: Codec, nodes: int, values: int, bits: float | None = None) -> Schedule:
    """Return the configured schedule of coded messages. values: approximate values of a message.

    bits: of a value, by which `auto` chooses; None: those of `bits_of`.

    Raises ConfigError where the schedule does not fit the codec, the number of nodes or the topology.
    """
    topology = topology_of(config, nodes)
    options = config.schedule.model_dump(exclude={"name"})
    if topology is not None and config.schedule.group is None:
        options["group"] = topology.group
    try:
        name = _chosen(config, codec, nodes, values, topology, options, bits)
        refuse_unfit(name, codec)
        schedule = make_schedule(name, nodes, adopt=not codec.lossless, **options)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if topology is None:
        return schedule
    for rank in range(nodes):
        for action in schedule.actions(rank):
            if action.op in SENDS and (rank, action.peer) not in topology.links:
                raise ConfigError(
                    f"in the schedule {schedule.name} rank {rank} sends to rank {action.peer}, and the "
                    f"topology ({topology.text}) has no such link: set schedule to network or auto, or make "
                    "one for it with `oscar schedule synth`"
                )
    return schedule


def refuse_unfit(name: str, codec: Codec) -> None:
    """Raise ConfigError where ranks would end with different sums, as they add in different orders."""
    if name in KINDS and KINDS[name].integers and not is_exact(codec):
        raise ConfigError(
            f"the schedule {name} needs a lossless integer codec, {codec.name} is not one; "
            "set schedule to direct or ring"
        )


def is_exact(codec: Codec) -> bool:
    """Whether sums of the codec's values do not depend on their order."""
    return codec.lossless and codec.domain == "int"


def topology_of(config: Config, nodes: int) -> Topology | None:
    """Return the configured network; None for ranks at one switch with the ports of section `link`."""
    return None if config.topology == TopologySection() else config.topology.model(nodes, config.link)


def _chosen(
    config: Config, codec: Codec, nodes: int, values: int, topology: Topology | None,
    options: dict[str, Any], bits: Bits | None,
) -> str:  # fmt: skip
    """Return the schedule's name; the network or the time model chooses it where configured."""
    name, exact = config.schedule.name, is_exact(codec)
    if name not in (BY_NETWORK, BY_TIME):
        return name
    if name == BY_NETWORK:  # shares: auto is direct's
        return by_kind(topology, nodes, exact=exact and config.plan.shares != "auto")
    names = [name for name, kind in SCHEDULES.items() if exact or not kind.integers]
    candidates = [make_schedule(name, nodes, **options) for name in names]
    assumed = bits_of(config, nodes) if bits is None else bits
    return choose(candidates, values, config.link.model(), topology, assumed, coded=codec.coded)


def shares_of(config: Config, schedule: Schedule, values: int) -> tuple[float, ...] | None:
    """Return each chunk's configured share of the cost; None for equal shares. Raises ConfigError."""
    given, nodes = config.plan.shares or schedule.shares, schedule.nodes
    if given is None or nodes == 1 or not values:
        return None
    if given == "auto":
        if schedule.name != "direct":
            raise ConfigError(
                f"plan.shares: auto needs the schedule direct, got {schedule.name}: "
                "write a share for each chunk, or leave shares out"
            )
        return _auto_shares(config, schedule, values)
    if len(given) != schedule.chunks:
        raise ConfigError(
            f"plan.shares has {len(given)} numbers, the schedule {schedule.name} between {nodes} ranks has "
            f"{schedule.chunks} chunks: write a share for each"
        )
    return given


def _auto_shares(config: Config, schedule: Schedule, values: int) -> tuple[float, ...]:
    """Return shares that balance the ports, moved towards equal shares where the model is faster there."""
    nodes, link = schedule.nodes, config.link.model()
    bits, topology = bits_of(config, nodes), config.topology.model(nodes, config.link)
    try:
        wanted = auto_shares(topology, bits(1), bits(nodes), values)
    except ValueError as error:
        raise ConfigError(f"plan.shares: {error}") from None
    if nodes > MOST_REPLAYED:
        return wanted

    def seconds(shares: tuple[float, ...]) -> float:
        bounds = make_plan("equal", values, nodes, granule=1, shares=shares).bounds
        return time_of(schedule, assumed_frames(schedule, bounds, bits), link, topology)

    return settled(wanted, seconds)[0]


def bits_of(config: Config, nodes: int) -> Callable[[int], float]:
    """Return a function that gives the assumed bits of a value by the number of workers that it sums.

    A codec without an entropy coder has its fixed rate. Quantised values have the entropy of a Laplace
    distribution at the configured coarseness, plus half a bit for each doubling of the workers. Nothing is
    measured, so all ranks choose the same schedule and shares before anything was sent.
    """
    codec, params = method_info(config.method).codec, config.quantiser_params(nodes)
    if codec is not None and not codec.coded:
        many = 1 << 16
        return lambda terms: 8 * codec.max_frame(many, params.sum_width(terms)) / many
    section = config.quantiser
    steps = section.coarseness if section.scale == "sigma" else 2.0 ** (4 - params.bits)
    alone = max(LEAST_BITS, math.log2(2 * math.e * math.sqrt(0.5) / steps))
    return lambda terms: alone + 0.5 * math.log2(terms)


def network_of(config: Config, nodes: int) -> dict[str, Any]:
    """Return LocalWire's arguments for the time model: the link, and the topology of coded messages."""
    link = config.link.model(block_log2=config.asc.block_log2)
    return {"link": link, "topology": topology_of(config, nodes)}
