"""Look up methods by name: codecs, schemes of OSCAR and of installed packages, classes named by their module.

A method is what a configuration names to reduce with: a codec, which runs inside the coded ring, or a
scheme. A package makes its schemes known with entry points of the group "oscar.methods". Without a package,
the name "module:Class" imports the class; modules are also looked for in the current folder. So a
configuration that names one runs its code as soon as it is read.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from inspect import getfile, isabstract
from pathlib import Path
from typing import Any

from oscar import plugins
from oscar.coding.codec import Codec
from oscar.coding.registry import codec_names, is_codec, make_codec
from oscar.errors import ConfigError, did_you_mean
from oscar.schemes.base import Scheme


@dataclass(frozen=True)
class SchemeEntry:
    """A scheme of the registry.

    target: "module:class", imported when the scheme is made. summary: one line for the user.
    lossless: whether the integer sums are those of a plain AllReduce.
    """

    target: str
    summary: str
    lossless: bool = False


SCHEMES: dict[str, SchemeEntry] = {
    "oscar-sw": SchemeEntry(
        "oscar.schemes.oscar_sw:OscarSw", "probable non-zeros dense, the others count-sketched"
    ),
    "oscar-sw-best": SchemeEntry(
        "oscar.schemes.oscar_sw:OscarSwBest", "probable non-zeros dense, others in turn, error feedback"
    ),
    "oscar-sw-lossless": SchemeEntry(
        "oscar.schemes.lhc:SplitLhc", "probable non-zeros dense, the others by index", lossless=True
    ),
    "count-sketch": SchemeEntry("oscar.schemes.count_sketch:CountSketchScheme", "all values count-sketched"),
    "lhc": SchemeEntry("oscar.schemes.lhc:Lhc", "index of non-zeros and a peeled sketch", lossless=True),
    "topk": SchemeEntry("oscar.schemes.sparse.top_k:TopK", "each worker's largest values, error feedback"),
    "zen": SchemeEntry("oscar.schemes.sparse.zen:Zen", "all non-zeros, summed by balanced servers; exact"),
    "adatopk": SchemeEntry(
        "oscar.schemes.sparse.top_k:AdaTopK", "topk with a density that fits each rank's link"
    ),
    "fedft": SchemeEntry(
        "oscar.schemes.sparse.frequency:FedFt", "largest cosine coefficients, error feedback"
    ),
    "demo": SchemeEntry(
        "oscar.schemes.sparse.frequency:Demo", "largest cosine coefficients of local momentum"
    ),
    "spafl": SchemeEntry("oscar.schemes.sparse.spafl:SpaFl", "one number for each row, error feedback"),
    "micro": SchemeEntry(
        "oscar.schemes.sparse.micro:Micro", "a range for each rank, one threshold, error feedback"
    ),
    "exdyna": SchemeEntry(
        "oscar.schemes.sparse.micro:ExDyna", "ranges of equal counts, one threshold, error feedback"
    ),
    "deft": SchemeEntry(
        "oscar.schemes.sparse.deft:Deft", "each tensor's top-k, k by its norm, error feedback"
    ),
}


@cache
def installed() -> dict[str, str]:
    """Return the schemes of installed packages: "module:Class" by name. Names of OSCAR's own stay OSCAR's."""
    entries = plugins.entries(plugins.METHODS)
    return {name: one.value for name, one in entries.items() if name not in SCHEMES and not is_codec(name)}


def scheme_names() -> list[str]:
    """Return the names of all schemes: those of this package, then those of installed ones."""
    return [*SCHEMES, *installed()]


def is_scheme(name: str) -> bool:
    """Return whether `name` names a scheme, and not a codec. Imports nothing."""
    return name in SCHEMES or (not is_codec(name) and (":" in name or name in installed()))


def is_lossless(name: str) -> bool:
    """Return whether the integer sums of the scheme `name` are those of a plain AllReduce."""
    return SCHEMES[name].lossless if name in SCHEMES else scheme_class(name).lossless


def source_of(name: str) -> bytes:
    """Return the source of the module of a scheme that an entry point or module:Class names; else nothing.

    Results that are kept for a method are of this source.
    """
    if name in SCHEMES or not is_scheme(name):
        return b""
    return Path(getfile(scheme_class(name))).read_bytes()


@cache
def scheme_class(name: str) -> type[Scheme]:
    """Return the class of the scheme `name`, or of "module:Class".

    Raises:
        ConfigError: No such scheme, with the nearest valid name; or the class cannot be imported.
    """
    if not is_scheme(name):
        known = scheme_names()
        raise ConfigError(
            f"unknown scheme {name!r}; {did_you_mean(name, known)}valid ones: {', '.join(known)}; or name a "
            f"class of your own, module:Class{plugins.outdated('; ')}"
        )
    target = SCHEMES[name].target if name in SCHEMES else installed().get(name, name)
    module, _, attribute = target.partition("[")[0].strip().partition(":")
    # A console script does not look in the current folder. It comes last, so that nothing there hides a
    # module of Python or of a package; `python -P` does not search it at all.
    if ":" in name and os.getcwd() not in sys.path and not getattr(sys.flags, "safe_path", False):
        sys.path.append(os.getcwd())
    expected = f"method {name}: expected module:Class, of a module in this folder or of an installed package"
    if not module or module.startswith("."):
        raise ConfigError(f"{expected}, got {target!r}")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:  # any other error of the module is its author's to see
        raise ConfigError(f"{expected}; {error}") from error
    if not hasattr(imported, attribute):
        classes = {name: one for name, one in vars(imported).items() if isinstance(one, type)}
        schemes = [name for name, one in classes.items() if issubclass(one, Scheme) and one is not Scheme]
        offered = ", ".join(schemes) or "no scheme"
        raise ConfigError(f"{expected}; {module} has no {attribute!r}, it has {offered}")
    kind: Any = getattr(imported, attribute)
    if (
        not (isinstance(kind, type) and issubclass(kind, Scheme))
        or isabstract(kind)
        or not hasattr(kind, "name")
    ):
        raise ConfigError(
            f"{expected}, a subclass of oscar.schemes.base.Scheme with `name`, `messages` and `finish`, got "
            f"{kind!r}; examples/compressor.py is one"
        )
    return kind


def make_scheme(
    name: str, options: Mapping[str, Any], *, shapes: Sequence[tuple[int, ...]], nodes: int, seed: int
) -> Scheme:
    """Return the scheme `name` for tensors of `shapes` on `nodes` workers.

    options: values by option name; the others keep their defaults. seed: seed of all random draws.
    Raises ConfigError for an unknown option, and for a value that is invalid alone or for this many workers.
    """
    kind = scheme_class(name)
    parsed = parse(name, kind, options)
    try:
        return kind(parsed, shapes=shapes, nodes=nodes, seed=seed)
    except ValueError as error:
        raise ConfigError(f"scheme {name}: {error}") from None


def parse(name: str, kind: type[Scheme], given: Mapping[str, Any]) -> Any:
    """Return the options of the scheme `name` with the values of `given`. Raises ConfigError."""
    known = {f.name: f for f in fields(kind.Options)}
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"scheme {name} has no option {key!r}; {hint}valid ones: {', '.join(known)}")
    defaults = kind.Options()
    for key, value in given.items():
        expected = type(getattr(defaults, key))
        fits = isinstance(value, expected) or (expected is float and isinstance(value, int))
        if not fits or (isinstance(value, bool) and expected is not bool):
            raise ConfigError(
                f"scheme {name}: option {key}: expected {expected.__name__}, got {value!r} "
                f"(default: {getattr(defaults, key)!r})"
            )
    try:
        return kind.Options(**given)
    except ValueError as error:
        raise ConfigError(f"scheme {name}: {error}") from None


def method_names() -> list[str]:
    """Return the names of all methods: codecs, then schemes, those of installed packages last."""
    return [*codec_names(), *scheme_names()]


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
    if not is_codec(name) and not is_scheme(name):
        known = method_names()
        raise ValueError(
            f"got {name!r}; {did_you_mean(name, known)}method must be one of {', '.join(known)}, "
            f"a codec of a package (an entry point of the group {plugins.CODECS}), or "
            f"module:Class of a scheme of your own{plugins.outdated('; ')}"
        )
    return name


@cache
def method_info(name: str) -> MethodInfo:
    """Return the properties of the method `name`, which `check_method` accepts."""
    return MethodInfo(name, None if is_scheme(name) else make_codec(name))
