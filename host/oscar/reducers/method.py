"""Makes the codec, the scheme and the channel of a configuration's method."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return the codec of the method's frames, on the configured NIC. Schemes use ASC for coded messages."""
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
