"""Pseudo-gradients as bytes, for transports of your own: `encode` and `decode` (docs/reference/pseudo.md)."""

from oscar.coding.pseudo import SparseTensor, decode, encode

__all__ = ["SparseTensor", "decode", "encode"]
