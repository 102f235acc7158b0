"""Floats without loss: exponents by ASC, signs and mantissas as they are (docs/reference/floats.md)."""
