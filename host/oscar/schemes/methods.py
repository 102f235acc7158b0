"""Look up methods by name. A method is what a configuration names to reduce with: a codec or a scheme.

A codec runs inside the coded ring. A new codec is one line in oscar.coding.registry. A new scheme is one line
in oscar.schemes.registry, an entry point of a package, or just "module:Class".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from oscar.coding.codec import Codec
from oscar.coding.registry import CODECS, make_codec
from oscar.errors import did_you_mean
from oscar.plugins import outdated
from oscar.schemes.registry import is_lossless, is_scheme, parse, scheme_class, scheme_names


def method_names() -> list[str]:
    """Return the names of all methods: codecs, then schemes, those of installed packages last."""
    return [*CODECS, *scheme_names()]


@dataclass(frozen=True)
class MethodInfo:
    """The properties of a method before it runs. codec: the codec of its frames; None for a scheme."""

    name: str
    codec: Codec | None

    @property
    def lossless(self) -> bool:
        """Whether the sums equal the sums of the quantised values."""
        return is_lossless(self.name) if self.codec is None else self.codec.lossless

    @property
    def commutes(self) -> bool:
        """Whether the codec sums integers without loss, so that every order of addition gives equal bits."""
        return self.codec is not None and self.codec.lossless and self.codec.domain == "int"

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ConfigError or ValueError if the method lacks one of `options`."""
        if self.codec is None:
            parse(self.name, scheme_class(self.name), options)
        elif options:
            raise ValueError(f"method {self.name} is a codec, not a scheme: leave the section scheme empty")


def check_method(name: str) -> str:
    """Return `name`; raises ValueError for no method, with the nearest name and what is known."""
    if name not in CODECS and not is_scheme(name):
        known = method_names()
        raise ValueError(
            f"got {name!r}; {did_you_mean(name, known)}method must be one of {', '.join(known)}, or "
            f"module:Class of a scheme of your own{outdated('; ')}"
        )
    return name


@cache
def method_info(name: str) -> MethodInfo:
    """Return the properties of the method `name`, which `check_method` accepts."""
    return MethodInfo(name, None if is_scheme(name) else make_codec(name))
