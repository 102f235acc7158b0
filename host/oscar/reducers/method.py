"""What a configuration's method means: its codec, its scheme, and how its coded messages travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

from oscar.coding.codec import Codec
from oscar.coding.registry import asc_codec, make_codec
from oscar.collective.gather import BOOMERANG, RAW, Gather
from oscar.config import SOFTWARE, Config
from oscar.errors import ConfigError
from oscar.schemes.base import Channel, Scheme
from oscar.schemes.exact import Exact, ExactOptions
from oscar.schemes.methods import method_info
from oscar.schemes.registry import make_scheme


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


def gather_of(config: Config, codec: Codec) -> Gather:
    """Return how sums come back; raises ConfigError where the codec's sums depend on their order.

    A scheme's messages are plain AllReduces, whatever the section `ring` says.
    """
    if method_info(config.method).codec is None:
        return RAW
    gather = Gather(config.ring.gather, coded=codec.coded)
    if gather.boomerang and not (codec.lossless and codec.domain == "int"):
        raise ConfigError(
            f"the {gather.name} all-gather needs a lossless integer codec, "
            f"{codec.name} is not one; set ring.gather to forward"
        )
    return replace(gather, adopt=not codec.lossless)


def make_scheme_of(
    config: Config, codec: Codec, *, nodes: int, shapes: Sequence[tuple[int, ...]]
) -> tuple[Scheme, Channel]:
    """Return the method's scheme for `nodes`, and how coded messages travel that say nothing themselves.

    codec: of `make_codec_of`, or one in its place. Raises ConfigError for options that do not go together.
    """
    plan, params = config.plan, config.quantiser_params(nodes)
    default = Channel(codec, BOOMERANG, params.sum_width, plan=plan.name, granule=plan.granule)
    if method_info(config.method).codec is None:
        scheme = make_scheme(config.method, config.scheme, shapes=shapes, nodes=nodes, seed=config.seed)
        return scheme, default
    config.check_width(codec, nodes)
    gather = gather_of(config, codec)
    options = ExactOptions(codec, params, gather, config.ring.subframes, plan.name, plan.granule)
    return Exact(options, shapes=shapes, nodes=nodes, seed=config.seed), default


def method_fingerprint(config: Config, codec: Codec) -> str:
    """Return what must be equal for a saved state to fit, besides the number of nodes."""
    c = config
    if method_info(c.method).codec is None:
        return f"{c.method} {sorted(c.scheme.items())}, seed {c.seed}, {c.asc}, {c.plan}"
    return f"{c.quantiser}, seed={c.seed}, {codec.name}, {c.asc}, {c.ring.gather}, {c.plan}"
