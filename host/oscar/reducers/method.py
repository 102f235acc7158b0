"""What a configuration's method means: its codec, its scheme, and how its coded messages travel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

from oscar.array import sizes_of
from oscar.coding.codec import Codec
from oscar.coding.registry import asc_codec, make_codec
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import KINDS, SCHEDULES, make_schedule
from oscar.config import BY_NETWORK, BY_TIME, SOFTWARE, Config, TopologySection
from oscar.errors import ConfigError
from oscar.numerics.plans import make_plan
from oscar.schemes.base import Channel, Scheme
from oscar.schemes.exact import Exact, ExactOptions
from oscar.schemes.methods import method_info
from oscar.schemes.registry import make_scheme
from oscar.timeline.choose import by_kind, choose
from oscar.timeline.equal import assumed_frames
from oscar.timeline.replay import time_of
from oscar.timeline.shares import auto_shares, settled

LEAST_BITS = 0.25  # of a value that is coarser than its distribution
MOST_REPLAYED = 32  # ranks: nine replays of more would take seconds


def make_codec_of(config: Config) -> Codec:
    """Return the codec of the method's frames, on the configured NIC; a scheme's coded messages take ASC."""
    if method_info(config.method).codec is None:
        return asc_codec(config.asc_params())
    if config.nic in SOFTWARE:
        implementation: Any = config.nic
        return make_codec(config.method, asc=config.asc_params(), implementation=implementation)
    if config.method != "asc":
        raise ConfigError(f"nic {config.nic!r} codes ASC only, the configuration asks for {config.method!r}")
    (entry,) = entry_points(group="oscar.nic", name=config.nic)
    codec: Codec = entry.load()(config)
    return codec


def schedule_of(config: Config, codec: Codec, nodes: int, values: int) -> Schedule:
    """Return the configured schedule of coded messages between `nodes`, of about `values` each.

    Raises ConfigError where it does not go with the codec, or with so many nodes.
    """
    section = config.schedule
    name = _chosen(config, codec, nodes, values)
    integers, exact = KINDS[name].integers, codec.lossless and codec.domain == "int"
    if integers and not exact:
        raise ConfigError(
            f"the schedule {name} needs a lossless integer codec, {codec.name} is not one; "
            "set schedule to direct or ring"
        )
    try:
        return make_schedule(name, nodes, adopt=not codec.lossless, **section.model_dump(exclude={"name"}))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _chosen(config: Config, codec: Codec, nodes: int, values: int) -> str:
    """Return the name of the schedule, where the configuration leaves it to the network or the time model."""
    section, exact = config.schedule, codec.lossless and codec.domain == "int"
    if section.name not in (BY_NETWORK, BY_TIME):
        return section.name
    topology = config.topology.model(nodes, config.link)
    if section.name == BY_NETWORK:
        return by_kind(topology, exact=exact)
    names = [name for name, kind in SCHEDULES.items() if exact or not kind.integers]
    options = section.model_dump(exclude={"name"})
    candidates = [make_schedule(name, nodes, **options) for name in names]
    bits = bits_of(config, nodes)
    return choose(candidates, values, config.link.model(), topology, bits, coded=codec.coded)


def check_schedule(config: Config, codec: Codec, nodes: int) -> None:
    """Raise ConfigError where the configured schedule does not go with the codec; schemes take ASC."""
    schedule_of(config, codec, nodes, 0)


def shares_of(config: Config, schedule: Schedule, values: int) -> tuple[float, ...] | None:
    """Return each chunk's share of the cost, as configured; None for equal ones. Raises ConfigError."""
    given, nodes = config.plan.shares or schedule.shares, schedule.nodes
    if given is None or nodes == 1 or not values:
        return None
    if given == "auto":
        if schedule.name != "direct":
            raise ConfigError(
                f"plan.shares is auto, which is for the schedule direct, not {schedule.name}: "
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
    """Return the shares that ports ask for, or nearer to equal ones where that is faster by the model."""
    nodes, link = schedule.nodes, config.link.model()
    bits, topology = bits_of(config, nodes), config.topology.model(nodes, config.link)
    wanted = auto_shares(topology, bits(1), bits(nodes), values)
    if nodes > MOST_REPLAYED:
        return wanted

    def seconds(shares: tuple[float, ...]) -> float:
        bounds = make_plan("equal", values, nodes, granule=1, shares=shares).bounds
        return time_of(schedule, assumed_frames(schedule, bounds, bits), link, topology)

    return settled(wanted, seconds)[0]


def bits_of(config: Config, nodes: int) -> Callable[[int], float]:
    """Return the assumed bits of a value in a frame by the number of workers that it sums.

    Of a codec of floats what it takes; of quantised values the entropy of a Laplace distribution in steps
    of the coarseness, half a bit more for each doubling. Equal on all ranks, and no measurement: schedules
    and shares are chosen by it before anything was sent.
    """
    codec, params = method_info(config.method).codec, config.quantiser_params(nodes)
    if codec is not None and not codec.coded:
        many = 1 << 16
        return lambda terms: 8 * codec.max_frame(many, params.sum_width(terms)) / many
    section = config.quantiser
    steps = section.coarseness if section.scale == "sigma" else 2.0 ** (4 - params.bits)
    own = max(LEAST_BITS, math.log2(2 * math.e * math.sqrt(0.5) / steps))
    return lambda terms: own + 0.5 * math.log2(terms)


def network_of(config: Config, nodes: int) -> dict[str, Any]:
    """Return the link, and the topology of coded messages, of the time model: arguments of LocalWire."""
    plain = config.topology == TopologySection()
    topology = None if plain else config.topology.model(nodes, config.link)
    return {"link": config.link.model(), "topology": topology}


def make_scheme_of(
    config: Config, codec: Codec, *, nodes: int, shapes: Sequence[tuple[int, ...]]
) -> tuple[Scheme, Channel]:
    """Return the method's scheme for `nodes`, and how coded messages travel that say nothing themselves.

    codec: of `make_codec_of`, or one in its place. Raises ConfigError for options that do not go together.
    """
    plan, params = config.plan, config.quantiser_params(nodes)
    values = sum(sizes_of(shapes))
    schedule = schedule_of(config, codec, nodes, values)
    default = Channel(codec, schedule, params.sum_width, plan=plan.name, granule=plan.granule)
    if method_info(config.method).codec is None:
        scheme = make_scheme(config.method, config.scheme, shapes=shapes, nodes=nodes, seed=config.seed)
        return scheme, default
    config.check_width(codec, nodes)
    shares = shares_of(config, schedule, values)
    options = ExactOptions(codec, params, schedule, plan.name, plan.granule, shares)
    return Exact(options, shapes=shapes, nodes=nodes, seed=config.seed), default


def method_fingerprint(config: Config, codec: Codec) -> str:
    """Return what must be equal for a saved state to fit, besides the number of nodes."""
    c = config
    if method_info(c.method).codec is None:
        return f"{c.method} {sorted(c.scheme.items())}, seed {c.seed}, {c.asc}, {c.schedule}, {c.plan}"
    return f"{c.quantiser}, seed={c.seed}, {codec.name}, {c.asc}, {c.schedule}, {c.plan}"
