"""Makes the codec, the scheme and the channel of a configuration's method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

from oscar.array import sizes_of
from oscar.coding.codec import Codec
from oscar.coding.registry import asc_codec, make_codec
from oscar.collective.schedule import Schedule
from oscar.config import SOFTWARE, Config
from oscar.errors import ConfigError
from oscar.reducers.on_device import kernels
from oscar.reducers.scheduling import schedule_of, shares_of
from oscar.schemes.base import Channel, Scheme
from oscar.schemes.exact import Exact, ExactOptions
from oscar.schemes.registry import make_scheme, method_info


def make_codec_of(config: Config) -> Codec:
    """Return the codec of the method's frames, on the configured NIC of each rank.

    Schemes use ASC for coded messages.
    """
    if method_info(config.method).codec is None:
        return asc_codec(config.asc_params())
    if isinstance(config.nic, str):
        return _codec_on(config, config.nic)
    names = [name or SOFTWARE[0] for name in config.nic]
    made = {name: _codec_on(config, name) for name in dict.fromkeys(names)}

    def max_frame(count: int, width: int) -> int:
        return max(codec.max_frame(count, width) for codec in made.values())

    bits = min(codec.max_bits for codec in made.values())
    shared = {name: replace(codec, max_frame=max_frame, max_bits=bits) for name, codec in made.items()}
    first = next((shared[name] for name in SOFTWARE if name in shared), shared[names[0]])
    return replace(first, ends=tuple(shared[name] for name in names))


def _codec_on(config: Config, nic: str) -> Codec:
    """Return the codec of the method's frames on one kind of NIC."""
    if nic in SOFTWARE:
        implementation: Any = nic
        return make_codec(config.method, asc=config.asc_params(), implementation=implementation)
    if config.method != "asc":
        raise ConfigError(f"nic {nic!r} codes ASC only, the configuration asks for {config.method!r}")
    (entry,) = entry_points(group="oscar.nic", name=nic)
    codec: Codec = entry.load()(config)
    return codec


def make_scheme_of(
    config: Config,
    codec: Codec,
    *,
    nodes: int,
    shapes: Sequence[tuple[int, ...]],
    schedule: Schedule | None = None,
    device: Any = None,
) -> tuple[Scheme, Channel]:
    """Return the method's scheme for `nodes`, and the default channel of coded messages.

    codec: from `make_codec_of`, or a replacement. schedule: from `schedule_of`; None to call it here.
    device: a GPU where tensors are and stay, as on_device.why_on_host allows; None for arrays.
    Raises ConfigError for options that contradict each other.
    """
    if codec.ends and len(codec.ends) != nodes:
        raise ConfigError(
            f"nic lists {len(codec.ends)} ranks, {nodes} take part: give an entry for each (null: software), "
            "or one name for all"
        )
    plan, params = config.plan, config.quantiser_params(nodes)
    values = sum(sizes_of(shapes))
    if schedule is None:
        schedule = schedule_of(config, codec, nodes, values)
    default = Channel(codec, schedule, params.sum_width, plan=plan.name, granule=plan.granule)
    if method_info(config.method).codec is None:
        if config.plan.shares is not None:
            raise ConfigError(f"plan.shares is for codecs, {config.method} is a scheme: leave shares out")
        scheme = make_scheme(config.method, config.scheme, shapes=shapes, nodes=nodes, seed=config.seed)
        return scheme, default
    config.check_width(codec, nodes)
    shares = shares_of(config, schedule, values)
    options = ExactOptions(codec, params, schedule, plan.name, plan.granule, shares)
    if device is None:
        return Exact(options, shapes=shapes, nodes=nodes, seed=config.seed), default
    gpu = kernels()
    there = gpu.GpuOptions.of(options, config.asc_params(), device)
    return gpu.GpuExact(there, shapes=shapes, nodes=nodes, seed=config.seed), default


def method_fingerprint(config: Config, codec: Codec) -> str:
    """Return the settings that must be equal for a saved state to fit, besides nodes and schedules."""
    c = config
    if method_info(c.method).codec is None:
        return f"{c.method} {sorted(c.scheme.items())}, seed {c.seed}, {c.asc}, {c.plan}"
    return f"{c.quantiser.said}, seed={c.seed}, {codec.name}, {c.asc}, {c.plan}"
