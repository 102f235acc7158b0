"""Methods by name: what a user chooses to reduce with, a codec around the coded ring or a scheme.

A new codec is a line in oscar.coding.registry, a new scheme one in oscar.schemes.registry; both are methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from oscar.coding.codec import Codec
from oscar.coding.registry import CODECS, make_codec
from oscar.schemes.registry import SCHEMES, parse, scheme_class

METHODS = (*CODECS, *SCHEMES)


@dataclass(frozen=True)
class MethodInfo:
    """What there is to know of a method before it runs. codec: of its frames; None for a scheme."""

    name: str
    codec: Codec | None

    @property
    def lossless(self) -> bool:
        """Whether its sums are exactly those of what was quantised."""
        return SCHEMES[self.name].lossless if self.codec is None else self.codec.lossless

    @property
    def commutes(self) -> bool:
        """Whether it sums integers around the ring without loss: in any order with equal bits."""
        return self.codec is not None and self.codec.lossless and self.codec.domain == "int"

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ConfigError or ValueError for options that the method does not have."""
        if self.codec is None:
            parse(self.name, scheme_class(self.name), options)
        elif options:
            raise ValueError(f"method {self.name} is no scheme: the section scheme must be empty")


@cache
def method_info(name: str) -> MethodInfo:
    """Return what there is to know of the method `name`, one of METHODS; raises KeyError for another."""
    return MethodInfo(name, None if name in SCHEMES else make_codec(name))
