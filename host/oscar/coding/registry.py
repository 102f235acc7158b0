"""The codec registry: every codec by name.

An entry is made when its function is called, so importing this module compiles nothing and needs no extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from oscar.coding.asc import AscParams, Decoder, Encoder, make_coder, max_frame
from oscar.coding.asc.link import Implementation, InnerDecoder, InnerEncoder
from oscar.coding.baselines.atalanta import Atalanta, AtalantaDp
from oscar.coding.baselines.mx import E2M1, E2M3, E4M3, Fp8Rows, Mx
from oscar.coding.baselines.oracle import Oracle
from oscar.coding.baselines.order0 import Rans0
from oscar.coding.baselines.raw import Bf16, Fp16, Fp32, Int8, Int16, Int32, Zstd
from oscar.coding.codec import Codec, FramedEncoder, LinkEncoder, framed
from oscar.coding.floats.codec import Bf16Lossless, Fp32Lossless


def _saturated(encoder: LinkEncoder) -> tuple[int, float]:
    """Return Codec.saturated of an encoder of a clipping codec."""
    codec = cast("Bf16 | Fp16 | Int8", cast(FramedEncoder, encoder).codec)
    return codec.saturated, codec.lost


def clipping(name: str, payload: type[Bf16] | type[Fp16] | type[Int8], *, coded: bool = False) -> Codec:
    """Return the entry of a clipping codec; each encoder gets a counter of its own."""
    entry = framed(name, payload(), lossless=False, coded=coded)
    return replace(entry, make_encoder=lambda: FramedEncoder(payload()), saturated=_saturated)


BASELINES: dict[str, Callable[[], Codec]] = {
    "fp32": partial(framed, "fp32", Fp32(), lossless=True, coded=False),
    "bf16": partial(clipping, "bf16", Bf16),
    "fp16": partial(clipping, "fp16", Fp16),
    "int16": partial(framed, "int16", Int16(), lossless=True, coded=False, max_bits=Int16.bits),
    "int32": partial(framed, "int32", Int32(), lossless=True, coded=False),
    "int8": partial(clipping, "int8", Int8),
    "atalanta": partial(framed, "atalanta", Atalanta(), lossless=True),
    "atalanta-dp": partial(framed, "atalanta-dp", AtalantaDp(), lossless=True),
    "rans0": partial(framed, "rans0", Rans0(), lossless=True),
    "zstd": partial(framed, "zstd", Zstd(), lossless=True),
    "constriction": partial(framed, "constriction", Oracle(), lossless=True),
    "mxfp8": partial(framed, "mxfp8", Mx(E4M3, 17), lossless=False, coded=False),
    "mxfp6": partial(framed, "mxfp6", Mx(E2M3, 18), lossless=False, coded=False),
    "mxfp4": partial(framed, "mxfp4", Mx(E2M1, 19), lossless=False, coded=False),
    "fp8-rows": partial(framed, "fp8-rows", Fp8Rows(E4M3, 20), lossless=False, coded=False),
}


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


FLOATS: dict[str, Callable[[], Codec]] = {  # made when asked for: each has memory of its own
    "bf16-lossless": lambda: clipping("bf16-lossless", Bf16Lossless, coded=True),
    "fp32-lossless": lambda: framed("fp32-lossless", Fp32Lossless(), lossless=True),
}

CODECS: dict[str, Callable[[], Codec]] = {
    **BASELINES,
    **FLOATS,
    **{name: partial(asc_codec, params, name=name) for name, params in ASC.items()},
}


def make_codec(
    name: str, *, asc: AscParams | None = None, implementation: Implementation = "compiled"
) -> Codec:
    """Return the codec `name`.

    asc: parameters of "asc"; implementation: "compiled" or "reference", for "asc" and "asc-paper" only.
    Raises ValueError for an unknown name.

    >>> make_codec("asc").lossless, make_codec("int8").lossless
    (True, False)
    """
    if name not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, got {name!r}")
    if name not in ASC:
        return CODECS[name]()
    params = asc if name == "asc" and asc is not None else ASC[name]
    return asc_codec(params, implementation=implementation, name=name)
