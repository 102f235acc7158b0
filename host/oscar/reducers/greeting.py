"""What ranks tell each other before they reduce: all that must be equal for frames to be understood."""

from __future__ import annotations

from typing import Any

from oscar.coding.codec import Codec
from oscar.coding.frame import VERSION
from oscar.config import Config
from oscar.transports.handshake import flatten
from oscar.version import __version__

SECTIONS = ("quantiser", "asc", "plan", "schedule")  # sections that change bytes or values


def greeting(config: Config, codec: Codec, nodes: int) -> dict[str, Any]:
    """Return what must be equal on all ranks for frames to be understood, flat, with dotted keys."""
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
    pairs.pop("schedule.file")  # a path may differ; the schedule in it is compared
    pairs["quantiser.bits"] = config.quantiser_params(nodes).bits  # auto, resolved
    return pairs
