"""Adaptive stepwise coding (docs/reference/asc.md): an `Encoder` and a `Decoder` a link direction."""

from oscar.coding.asc.link import Decoder, Encoder, make_coder, max_frame
from oscar.coding.asc.params import ASC_CODE, AscParams

__all__ = ["ASC_CODE", "AscParams", "Decoder", "Encoder", "make_coder", "max_frame"]
