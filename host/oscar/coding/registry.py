"""The codec registry: every codec by name.

A package makes its codecs known with entry points of the group "oscar.codecs", each a function that returns
an `oscar.coding.codec.Codec`. An entry is made when its function is called, so importing this module compiles
nothing and needs no extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import cast

from oscar import plugins
from oscar.coding.asc import AscParams, Decoder, Encoder, make_coder, max_frame
from oscar.coding.asc.link import Implementation, InnerDecoder, InnerEncoder
from oscar.coding.codec import Codec, FramedEncoder, LinkEncoder, framed
from oscar.coding.floats.codec import Bf16Lossless, Fp32Lossless
from oscar.coding.plain import Bf16, Fp16, Fp32, Int8, Int16, Int32, Zstd
from oscar.errors import ConfigError


def _saturated(encoder: LinkEncoder) -> tuple[int, float]:
    """Return Codec.saturated of an encoder of a clipping codec."""
    codec = cast("Bf16 | Fp16 | Int8", cast(FramedEncoder, encoder).codec)
    return codec.saturated, codec.lost


def clipping(name: str, payload: type[Bf16] | type[Fp16] | type[Int8], *, coded: bool = False) -> Codec:
    """Return the entry of a clipping codec; each encoder gets a counter of its own."""
    entry = framed(name, payload(), lossless=False, coded=coded)
    return replace(entry, make_encoder=lambda: FramedEncoder(payload()), saturated=_saturated)


def asc_codec(
    params: AscParams | None = None, *, implementation: Implementation = "compiled", name: str = "asc"
) -> Codec:
    """Return ASC as a codec. Several threads may use the compiled coder's links at once, each another one."""
    chosen = params or AscParams()
    coder = make_coder(chosen, implementation)
    encoder, decoder = (InnerEncoder, InnerDecoder) if implementation == "compiled" else (Encoder, Decoder)
    return Codec(
        name=name,
        domain="int",
        lossless=True,
        make_encoder=lambda: encoder(chosen, coder=coder),
        make_decoder=lambda: decoder(chosen, coder=coder),
        max_frame=lambda count, width: max_frame(chosen, count, width),
        uses_context=chosen.uses_position,
        decodes_into=True,
        work=coder.work,
        options=f"{implementation} {chosen}",
        parallel=implementation == "compiled",
    )


# The paper's ASC, taken literally: a table for each step, no context, no table rows sent.
PAPER = AscParams(context="none", sent_rows=False)
ASC = {"asc": AscParams(), "asc-paper": PAPER}


CODECS: dict[str, Callable[[], Codec]] = {
    "fp32": partial(framed, "fp32", Fp32(), lossless=True, coded=False),
    "bf16": partial(clipping, "bf16", Bf16),
    "fp16": partial(clipping, "fp16", Fp16),
    "int16": partial(framed, "int16", Int16(), lossless=True, coded=False, max_bits=Int16.bits),
    "int32": partial(framed, "int32", Int32(), lossless=True, coded=False),
    "int8": partial(clipping, "int8", Int8),
    "zstd": partial(framed, "zstd", Zstd(), lossless=True),
    # Made when asked for: each has memory of its own.
    "bf16-lossless": lambda: clipping("bf16-lossless", Bf16Lossless, coded=True),
    "fp32-lossless": lambda: framed("fp32-lossless", Fp32Lossless(), lossless=True),
    **{name: partial(asc_codec, params, name=name) for name, params in ASC.items()},
}


@cache
def installed_codecs() -> dict[str, Callable[[], Codec]]:
    """Return the codecs of installed packages by name. Names of OSCAR's own stay OSCAR's. Imports none."""
    entries = plugins.entries(plugins.CODECS)
    return {name: partial(_load, name) for name in entries if name not in CODECS}


def _load(name: str) -> Codec:
    """Return the codec that the entry point `name` leads to; raises ConfigError for anything else."""
    entry = plugins.entries(plugins.CODECS)[name]
    expected = f"codec {name}: expected {entry.value} to return an oscar.coding.codec.Codec of this name"
    try:
        codec = entry.load()()
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"{expected}; {error}: mend or remove the package that installed it") from error
    if not isinstance(codec, Codec) or codec.name != name:
        raise ConfigError(f"{expected}, got {codec!r}")
    return codec


def codec_names() -> list[str]:
    """Return the names of all codecs: those of this package, then those of installed ones."""
    return [*CODECS, *installed_codecs()]


def is_codec(name: str) -> bool:
    """Return whether `name` names a codec. Imports nothing."""
    return name in CODECS or name in installed_codecs()


def make_codec(
    name: str, *, asc: AscParams | None = None, implementation: Implementation = "compiled"
) -> Codec:
    """Return the codec `name`.

    Args:
        asc: Parameters of "asc".
        implementation: "compiled" or "reference", for "asc" and "asc-paper" only.

    Raises:
        ValueError: For an unknown name.

    >>> make_codec("asc").lossless, make_codec("int8").lossless
    (True, False)
    """
    if not is_codec(name):
        known = ", ".join(codec_names())
        own = f"or one of a package, by an entry point of the group {plugins.CODECS}"
        raise ValueError(f"codec must be one of {known}, {own}; got {name!r}{plugins.outdated('; ')}")
    if name not in ASC:
        return (CODECS.get(name) or installed_codecs()[name])()
    params = asc if name == "asc" and asc is not None else ASC[name]
    return asc_codec(params, implementation=implementation, name=name)
