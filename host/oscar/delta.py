"""Weights that changed a little, without loss: `encode` and `decode` (docs/reference/delta.md)."""

from oscar.coding.delta.messages import decode, encode, encode_pieces

__all__ = ["decode", "encode", "encode_pieces"]
