"""Adaptive stepwise coding (docs/reference/asc.md): its public names; they live in oscar.coding.asc."""

from oscar.coding.asc import ASC_CODE, AscParams, Decoder, Encoder, make_coder, max_frame

__all__ = ["ASC_CODE", "AscParams", "Decoder", "Encoder", "make_coder", "max_frame"]
