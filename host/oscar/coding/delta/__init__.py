"""Tensors as their difference from a base that both ends have, without loss (docs/delta.md)."""
