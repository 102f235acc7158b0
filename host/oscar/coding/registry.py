"""The codec registry: every codec by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from oscar.coding.asc import AscParams, Decoder, Encoder, make_coder, max_frame
from oscar.coding.asc.link import Implementation, InnerDecoder, InnerEncoder
from oscar.coding.baselines.registry import BASELINES, clipping
from oscar.coding.codec import Codec, framed
from oscar.coding.floats.codec import Bf16Lossless, Fp32Lossless


def asc_codec(
    params: AscParams | None = None, *, implementation: Implementation = "compiled", name: str = "asc"
) -> Codec:
    """Return ASC as a codec. Its links share one coder's scratch memory, so only one thread may use them."""
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
