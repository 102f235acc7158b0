"""Floats without any loss, in fewer bytes: `encode` and `decode` (docs/floats.md)."""

from oscar.coding.floats.messages import decode, encode

__all__ = ["decode", "encode"]
