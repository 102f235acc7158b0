"""Floats without any loss, in fewer bytes: `encode` and `decode` (docs/reference/floats.md)."""

from oscar.coding.floats.messages import decode, encode

__all__ = ["decode", "encode"]
