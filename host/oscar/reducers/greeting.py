"""The greeting that ranks compare before they reduce: all settings that must be equal."""

from __future__ import annotations

from typing import Any

from oscar.coding.codec import Codec
from oscar.coding.frame import VERSION
from oscar.config import Config
from oscar.transports.handshake import flatten
from oscar.version import __version__

SECTIONS = ("quantiser", "asc", "plan", "schedule")  # configuration sections that change bytes or values


def greeting(config: Config, codec: Codec, nodes: int) -> dict[str, Any]:
    """Return the settings that must be equal on all ranks, as one flat mapping with dotted keys."""
    whole = config.model_dump(mode="json")
    pairs: dict[str, Any] = {
        "oscar": __version__,
        "frame version": VERSION,
        "nodes": nodes,
        "seed": config.seed,
        "method": config.method,
        "codec": codec.name,
        **flatten(config.scheme, "scheme"),
    }
    for section in SECTIONS:
        pairs.update(flatten(whole[section], section))
    pairs.pop("schedule.file")  # paths may differ; the schedules' digests are compared
    pairs["quantiser.bits"] = config.quantiser_params(nodes).bits  # the number, where it was auto
    return pairs
