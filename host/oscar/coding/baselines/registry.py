"""The baseline codecs by name.

An entry is made when its function is called, so importing this module compiles nothing and needs no extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from oscar.coding.baselines.atalanta import Atalanta, AtalantaDp
from oscar.coding.baselines.mx import E2M1, E2M3, E4M3, Fp8Rows, Mx
from oscar.coding.baselines.oracle import Oracle
from oscar.coding.baselines.order0 import Rans0
from oscar.coding.baselines.raw import Bf16, Fp16, Fp32, Int8, Int16, Int32
from oscar.coding.baselines.zstd import Zstd
from oscar.coding.codec import Codec, FramedEncoder, LinkEncoder, framed


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
