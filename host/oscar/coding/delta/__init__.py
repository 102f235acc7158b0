"""Tensors as their difference from a base that both ends have, without loss (docs/reference/delta.md)."""
